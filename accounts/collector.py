"""What a long-lived process tells Python's garbage collector once it has started."""

from __future__ import annotations

import gc


def settle() -> None:
    """Let the collector pass over everything that start-up has made: code, models, settings.

    None of it ever becomes garbage, but every full collection would look at all of it. That is
    200 ms on a slow machine, in which no stream of the process moves.
    """
    gc.collect()
    gc.freeze()
