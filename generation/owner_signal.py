"""Telling a run's owner that it was asked to stop."""

from __future__ import annotations

from generation.redis_clients import token_log


def tell_owner(run: str) -> None:
    """Set the flag that every append returns, and tell the owner directly. May be repeated.

    Redis' errors pass through.
    """
    owner = token_log().request_stop(run)
    if owner:
        token_log().tell_stop(owner, run)
