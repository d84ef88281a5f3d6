"""How often a client may say something over one socket."""

from __future__ import annotations

from typing import Final

BURST: Final = 120
"""A page that comes back watches all its runs again, with MAX_WATCHES frames at once."""

PER_S: Final = 20.0
"""Each may cost a query."""


class FrameRate:
    """A bucket of BURST frames that PER_S refill."""

    __slots__ = ("_at_s", "_left")

    def __init__(self, now_s: float) -> None:
        self._left = float(BURST)
        self._at_s = now_s

    def allows(self, now_s: float) -> bool:
        """Whether one more frame is in time; it counts as said."""
        self._left = min(float(BURST), self._left + (now_s - self._at_s) * PER_S)
        self._at_s = now_s
        if self._left < 1:
            return False
        self._left -= 1
        return True
