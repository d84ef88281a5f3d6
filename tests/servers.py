"""Ending an asyncio server of a test's own without leaving a socket behind."""

from __future__ import annotations

import asyncio
from typing import Final

TURNS: Final = 10
"""More turns of the loop than from accepting a connection to its handler's first step."""


async def close_server(server: asyncio.Server) -> None:
    """Accept nobody any more, see those accepted just now to their handlers, and close.

    A connection that was accepted but has no transport yet when its server closes, or when the
    loop ends, is left to the garbage collector, whose warning then fails whichever test is running.
    """
    for listening in server.sockets:
        asyncio.get_running_loop().remove_reader(listening.fileno())
    for _ in range(TURNS):
        await asyncio.sleep(0)
    server.close()
