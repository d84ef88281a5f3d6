"""Django's ASGI handler, with a bounded number of threads and a door to the gateway.

A view that answers with a `GatewayResponse` is finished by the gateway once Django's part of the
request is over: by then its thread, its request and its database connection have been given back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from asgiref.sync import ThreadSensitiveContext
from django.conf import settings
from django.core.handlers.asgi import ASGIHandler
from django.http.response import HttpResponseBase

from accounts.errors import ApiError
from generation.gateway.process import hub
from generation.gateway.stream import (
    Message,
    Receive,
    Send,
    wait_end,
    write_end,
    write_error,
    write_json,
    write_stream,
)
from generation.run_response import (
    AGAIN_WAIT_S,
    MAY_WAIT,
    AgainPlan,
    EndPlan,
    GatewayResponse,
    StreamPlan,
)

Scope = dict[str, Any]

BODY_S: Final = 30.0
"""How long a body may take: 1 MiB at 35 KiB/s. Without it whoever announces a body and sends none
keeps a connection, and up to 1 MiB, for as long as he likes."""


class BodyTooSlow(ApiError):
    """The request body took too long to arrive. Send it again."""

    code = "body_too_slow"
    http_status = 408


class _Handoff:
    """The `send` of one request: what is to be sent once Django's part of it is over.

    That is the plan of a GatewayResponse, or the messages of an answer that is whole already.
    """

    __slots__ = ("plan", "send", "waiting")

    def __init__(self, send: Send) -> None:
        self.send = send
        self.plan: StreamPlan | EndPlan | AgainPlan | None = None
        self.waiting: list[Message] = []

    async def __call__(self, message: Message) -> None:
        await self.send(message)

    async def later(self, message: Message) -> None:
        self.waiting.append(message)


class _Body:
    """`receive` of a request whose body has been read: gives it whole, then goes on."""

    __slots__ = ("_body", "_receive")

    def __init__(self, body: bytes, receive: Receive) -> None:
        self._body: bytes | None = body
        self._receive = receive

    async def __call__(self) -> Message:
        body, self._body = self._body, None
        if body is None:
            return await self._receive()
        return {"type": "http.request", "body": body, "more_body": False}


class GatewayHandler(ASGIHandler):
    """Django's handler, with a bounded number of threads and a door to the gateway."""

    def __init__(self) -> None:
        super().__init__()
        self._room = asyncio.Semaphore(settings.WEB_THREADS)

    async def __call__(  # type: ignore[override]  # Channels' messages are mutable mappings
        self, scope: Scope, receive: Receive, send: Send
    ) -> None:
        try:
            async with asyncio.timeout(BODY_S):
                body = await _read_body(receive)
        except TimeoutError:
            await write_error(send, BodyTooSlow())
            return
        if body is None:
            return
        scope = _with_length(scope, body)
        handoff = await self._ask_patiently(scope, body, receive, send)
        for message in handoff.waiting:
            await send(message)
        if isinstance(handoff.plan, StreamPlan):
            await write_stream(await hub(), handoff.plan, receive, send)
        elif isinstance(handoff.plan, EndPlan):
            await write_end(await hub(), handoff.plan, receive, send)

    async def _ask_patiently(
        self, scope: Scope, body: bytes, receive: Receive, send: Send
    ) -> _Handoff:
        """Ask Django; again, when a run that is being stopped has ended, where it says so.

        Nothing is held while that run ends. When time is up Django is told to wait no longer.
        """
        loop = asyncio.get_running_loop()
        until_s = loop.time() + AGAIN_WAIT_S
        waited: set[str] = set()
        may_wait = True
        while True:
            handoff = _Handoff(send)
            whole = _Body(body, _never if waited else receive)
            await self._ask({**scope, MAY_WAIT: may_wait}, whole, handoff)
            if not isinstance(handoff.plan, AgainPlan):
                return handoff
            left_s = until_s - loop.time()
            # Twice for one run would be in a circle: a process that is drained waits for nothing.
            may_wait = left_s > 0 and handoff.plan.run not in waited
            if may_wait:
                waited.add(handoff.plan.run)
                await wait_end(await hub(), handoff.plan, left_s)

    async def _ask(self, scope: Scope, receive: Receive, handoff: _Handoff) -> None:
        # Each request gets a thread of its own; without the bound a burst would start hundreds,
        # all of them waiting for the same few database connections. Reading and writing are
        # outside: as many slow phones as there is room would stop the whole process.
        async with self._room, ThreadSensitiveContext():
            await self.handle(scope, receive, handoff)  # type: ignore[arg-type]

    async def send_response(self, response: HttpResponseBase, send: Callable[..., Any]) -> None:
        if isinstance(response, GatewayResponse) and isinstance(send, _Handoff):
            send.plan = response.plan
            return
        if isinstance(send, _Handoff) and not response.streaming:
            send = send.later
        await super().send_response(response, send)


async def _never() -> Message:
    """`receive` of a request that was waited for: Django would drop it where the client has left,
    though all of it has come.
    """
    await asyncio.Event().wait()
    raise AssertionError("unreachable")


async def _read_body(receive: Receive) -> bytes | None:
    """The whole body (BodyLimit bounds it); None where the client left before its end."""
    parts: list[bytes] = []
    while (message := await receive())["type"] == "http.request":
        parts.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(parts)
    return None


def _with_length(scope: Scope, body: bytes) -> Scope:
    """A body that came in chunks has no length, and DRF would take it for no body at all."""
    headers = [pair for pair in scope["headers"] if pair[0] != b"content-length"]
    return {**scope, "headers": [*headers, (b"content-length", b"%d" % len(body))]}


class Liveness:
    """ASGI middleware: `/healthz` without a thread and without a place in any line.

    While PostgreSQL is away every thread waits for it; a process that could not say that it is
    alive would be killed for that, and the open streams with it.
    """

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/healthz" and scope["method"] in ("GET", "HEAD"):
            await write_json(send, 200, {"status": "ok"})
        else:
            await self._app(scope, receive, send)


async def refuse_websocket(scope: Scope, receive: Receive, send: Send) -> None:
    """There is no WebSocket at this address; unanswered, each try would be logged as an error."""
    await receive()
    await send({"type": "websocket.close", "code": 4404})
