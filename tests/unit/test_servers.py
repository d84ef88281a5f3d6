"""A server that is ended leaves no connection behind, wherever one stands that was accepted."""

from __future__ import annotations

import asyncio
import gc
import socket
import warnings

import pytest

from tests.servers import close_server


@pytest.mark.parametrize("turns", range(8))
def test_a_connection_that_comes_at_the_end_is_closed(turns: int) -> None:
    ended: list[str] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.abort()
        ended.append("served")

    async def whole() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        with socket.create_connection(server.sockets[0].getsockname()):
            for _ in range(turns):
                await asyncio.sleep(0)
            await close_server(server)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
            runner.run(whole())
        gc.collect()
    assert [str(one.message) for one in caught if one.category is ResourceWarning] == []
    # Accepted from the second turn on; before that it is refused, which leaves nothing either.
    assert ended == ["served"] or turns < 3
