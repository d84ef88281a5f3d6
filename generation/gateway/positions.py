"""Queue positions as notices without an id: they are not in the log."""

from __future__ import annotations

from generation.events import encode_data, frame_without_id
from generation.scheduler import Place


def queued_frame(place: Place) -> bytes:
    """`notice` with code `queued`; `position` counts from 1, the next to be claimed; `eta_s` is
    null where nobody knows."""
    position, eta_s = place.position, place.eta_s
    text = "Next in line" if position == 1 else f"Number {position} in line"
    data = {"code": "queued", "text": text, "position": position, "eta_s": eta_s}
    return frame_without_id("notice", encode_data(data))
