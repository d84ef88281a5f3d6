"""Django's ASGI handler, with a bounded number of threads and a door to the gateway.

A view that answers with a `GatewayResponse` is finished by the gateway once Django's part of the
request is over: by then its thread, its request and its database connection have been given back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from asgiref.sync import ThreadSensitiveContext
from django.conf import settings
from django.core.handlers.asgi import ASGIHandler
from django.http.response import HttpResponseBase

from generation.gateway.process import hub
from generation.gateway.stream import Message, Receive, Send, write_end, write_stream
from generation.run_response import EndPlan, GatewayResponse, StreamPlan

Scope = dict[str, Any]


class _Handoff:
    """The `send` of one request. Takes the plan of a GatewayResponse instead of its bytes."""

    __slots__ = ("plan", "send")

    def __init__(self, send: Send) -> None:
        self.send = send
        self.plan: StreamPlan | EndPlan | None = None

    async def __call__(self, message: Message) -> None:
        await self.send(message)


class GatewayHandler(ASGIHandler):
    """Django's handler, with a bounded number of threads and a door to the gateway."""

    def __init__(self) -> None:
        super().__init__()
        self._room = asyncio.Semaphore(settings.WEB_THREADS)

    async def __call__(  # type: ignore[override]  # Channels' messages are mutable mappings
        self, scope: Scope, receive: Receive, send: Send
    ) -> None:
        handoff = _Handoff(send)
        # Each request gets a thread of its own; without the bound a burst would start hundreds,
        # all of them waiting for the same few database connections.
        async with self._room, ThreadSensitiveContext():
            await self.handle(scope, receive, handoff)  # type: ignore[arg-type]
        if handoff.plan is not None:
            await _finish(handoff.plan, receive, send)

    async def send_response(self, response: HttpResponseBase, send: Callable[..., Any]) -> None:
        if isinstance(response, GatewayResponse) and isinstance(send, _Handoff):
            send.plan = response.plan
            return
        await super().send_response(response, send)


async def _finish(plan: StreamPlan | EndPlan, receive: Receive, send: Send) -> None:
    if isinstance(plan, StreamPlan):
        await write_stream(await hub(), plan, receive, send)
    else:
        await write_end(await hub(), plan, receive, send)


async def refuse_websocket(scope: Scope, receive: Receive, send: Send) -> None:
    """There is no WebSocket here; without an answer the server would log an error for each try."""
    await receive()
    await send({"type": "websocket.close", "code": 4404})
