"""Queue positions as notices without an id: they are not in the log."""

from __future__ import annotations

from generation.events import encode_data, frame_without_id


def queued_frame(position: int) -> bytes:
    """`notice` with code `queued`; `position` counts from 1, the next to be claimed."""
    text = "Next in line" if position == 1 else f"Number {position} in line"
    data = {"code": "queued", "text": text, "position": position, "eta_s": None}
    return frame_without_id("notice", encode_data(data))
