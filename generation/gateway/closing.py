"""Closes streams and sockets whose credential has ended, all of the process' with a few queries."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from accounts import live
from accounts.aio import in_database_apart
from accounts.api_errors import AWAY
from generation.open_connections import OpenConnections, Why

log = logging.getLogger(__name__)

CHECK_S: Final = 2.0
"""Well under the 5 s within which a sign-out closes everything, with room for a slow query."""

ANSWER_S: Final = 2.0
"""How long a check may take. A PostgreSQL that hangs is away, and closes no less than one that
refuses: otherwise a lock on the users would keep everybody in."""

UNANSWERED: Final[tuple[type[Exception], ...]] = (*AWAY, TimeoutError)

BLIND_S: Final = 60.0
"""How long nothing is closed while PostgreSQL cannot be asked. An answer goes on without it, so a
fail-over must not cut what people are reading; but a process that is cut off from it for good must
not show anything to somebody who was signed out meanwhile."""


async def close_ended_forever(connections: OpenConnections) -> None:
    """Ask every CHECK_S about everything that is open here."""
    loop = asyncio.get_running_loop()
    known_at_s = loop.time()
    while True:
        await asyncio.sleep(CHECK_S)
        asked_at_s = loop.time()
        try:
            await close_ended(connections)
            known_at_s = asked_at_s
        except UNANSWERED:
            log.warning("credentials not checked", extra={"action": "credentials_not_checked"})
        except Exception:
            # A loop that dies would leave every stream open to whoever has signed out.
            log.exception("credentials not checked", extra={"action": "credentials_not_checked"})
        if loop.time() - known_at_s > BLIND_S:
            close_unknown(connections)
            known_at_s = loop.time()


async def close_ended(connections: OpenConnections) -> None:
    """Close what credentials that have ended had opened.

    PostgreSQL's errors pass through; TimeoutError where it does not answer.
    """
    asked = connections.credentials()
    if not asked:
        return
    async with asyncio.timeout(ANSWER_S):
        ended = await in_database_apart(live.ended, asked)
    closed = connections.close(ended, Why.SIGNED_OUT)
    if closed:
        log.info("%d streams and sockets closed", closed, extra={"action": "credentials_ended"})


def close_unknown(connections: OpenConnections) -> None:
    """Close everything: their clients come back, and are let in once they can be asked about."""
    closed = connections.close_all(Why.UNKNOWN)
    log.warning(
        "%d streams and sockets closed: nobody can be asked whether they may stay open",
        closed,
        extra={"action": "credentials_unknown"},
    )
