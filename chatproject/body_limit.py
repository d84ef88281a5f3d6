"""No request body above the limit is read, whoever asks and whatever it claims."""

from __future__ import annotations

from typing import Any, Final

from accounts.errors import BodyTooLarge
from generation.gateway.stream import Message, Receive, Send, write_error

# The answer is sent while the client may still be writing: telling it to close spares both.
_TOO_LARGE: Final = "The request body is larger than {limit} bytes. Send less, or in parts."


class _Over(Exception):
    """The body has grown beyond the limit while it was read."""


class BodyLimit:
    """ASGI middleware: 413 in the one error shape for bodies over `limit_bytes`."""

    def __init__(self, app: Any, limit_bytes: int) -> None:
        self._app = app
        self._limit_bytes = limit_bytes

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        if _declared_bytes(scope) > self._limit_bytes:
            await self._refuse(send)
            return
        try:
            await self._app(scope, _Counted(receive, self._limit_bytes), send)
        except _Over:
            await self._refuse(send)

    async def _refuse(self, send: Send) -> None:
        await write_error(send, BodyTooLarge(_TOO_LARGE.format(limit=self._limit_bytes)))


class _Counted:
    """`receive`, which raises _Over once more than the limit has come in."""

    __slots__ = ("_left_bytes", "_receive")

    def __init__(self, receive: Receive, limit_bytes: int) -> None:
        self._receive = receive
        self._left_bytes = limit_bytes

    async def __call__(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.request":
            self._left_bytes -= len(message.get("body", b""))
            if self._left_bytes < 0:
                raise _Over
        return message


def _declared_bytes(scope: dict[str, Any]) -> int:
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit():
            return int(value[:18])
    return 0
