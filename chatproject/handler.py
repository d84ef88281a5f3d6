"""Django's ASGI handler, with a bounded number of threads and a door to the gateway.

A view that answers with a `GatewayResponse` is finished by the gateway once Django's part of the
request is over: by then its thread, its request and its database connection have been given back.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from io import BytesIO
from typing import Any, Final

from django.conf import settings
from django.core.handlers.asgi import ASGIHandler, get_script_prefix
from django.core.signals import request_started
from django.db import connections
from django.http.response import HttpResponseBase
from django.urls import set_script_prefix

from accounts.errors import ApiError
from chatproject.refusals import Known, Refusals, asker_digest, request_digest
from generation.gateway.process import hub
from generation.gateway.stream import (
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
Asked = asyncio.Future[HttpResponseBase] | asyncio.Task[HttpResponseBase | Known]

BODY_S: Final = 30.0
"""How long a body may take: 1 MiB at 35 KiB/s. Without it whoever announces a body and sends none
keeps a connection, and up to 1 MiB, for as long as he likes."""


BEHIND: Final = 1
"""Requests of people who were refused lately that have a thread, or are in line for one, at the
same time. Two threads that compute take turns of 5 ms at the interpreter; with more of them the
streams of the process would stutter."""


class BodyTooSlow(ApiError):
    """The request body took too long to arrive. Send it again."""

    code = "body_too_slow"
    http_status = 408


class GatewayHandler(ASGIHandler):
    """Django's handler, whole in one of a bounded number of threads, with a door to the gateway.

    Django's own runs middleware and view as coroutines and adapts every synchronous part of them:
    many hops between loop and threads (docs/decisions.md, 25). Here a request is one hop, as under
    WSGI, and its thread serves the next one.
    """

    def __init__(self) -> None:
        super().__init__()
        # Without the bound a burst would start hundreds, all of them waiting for the same few
        # database connections. Reading and writing are outside: as many slow phones as there are
        # threads would stop the whole process.
        self._threads = ThreadPoolExecutor(settings.WEB_THREADS, thread_name_prefix="django")
        self._refusals = Refusals(time.monotonic)
        self._behind = asyncio.Semaphore(BEHIND)

    def load_middleware(self, is_async: bool = False) -> None:
        """Synchronous, whatever Django asks for: the thread calls it."""
        super().load_middleware(is_async=False)

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
        response = await self._answer(_with_length(scope, body), body, receive)
        plan = response.plan if isinstance(response, GatewayResponse) else None
        if response is None:
            return
        if isinstance(response, Known):
            await _write(send, response)
        elif isinstance(plan, StreamPlan):
            await write_stream(await hub(), plan, receive, send)
        elif isinstance(plan, EndPlan):
            await write_end(await hub(), plan, receive, send)
        else:
            await self.send_response(response, send)  # type: ignore[arg-type]

    async def _answer(
        self, scope: Scope, body: bytes, receive: Receive
    ) -> HttpResponseBase | Known | None:
        """What was refused and may not be asked yet is answered from memory, else Django is asked.
        None: the client has left."""
        who, same = asker_digest(scope), request_digest(scope, body)
        asked_at_s = self._refusals.now_s()
        if known := self._known(same):
            return known
        if who is None or not self._refusals.was_refused(who):
            first: Asked = self._ask(scope, body)
        else:
            first = asyncio.ensure_future(self._ask_behind(scope, body, same))
        response = await self._ask_patiently(first, scope, body, receive)
        if isinstance(response, HttpResponseBase) and who is not None:
            self._refusals.note_asker(who, response, asked_at_s)
            if same is not None:
                self._refusals.note(same, response, asked_at_s)
        return response

    def _known(self, same: bytes | None) -> Known | None:
        return self._refusals.again(same) if same is not None else None

    async def _ask_behind(
        self, scope: Scope, body: bytes, same: bytes | None
    ) -> HttpResponseBase | Known:
        """For somebody who was refused lately: those who were not find at most BEHIND of these
        before them. What came before it may meanwhile have been told what it would be told."""
        await self._behind.acquire()
        if known := self._known(same):
            self._behind.release()
            return known
        loop = asyncio.get_running_loop()
        asked = self._submit({**scope, MAY_WAIT: True}, body)
        # When its thread is done with it: a client that leaves frees no thread.
        asked.add_done_callback(lambda _: _call_in(loop, self._behind.release))
        return await asyncio.wrap_future(asked)

    async def _ask_patiently(
        self, first: Asked, scope: Scope, body: bytes, receive: Receive
    ) -> HttpResponseBase | Known | None:
        """Django's answer; where it says so, it is asked again when a run that is being stopped has
        ended.

        Nothing is held while that run ends. When time is up Django is told to wait no longer.
        None: the client has left. What has waited for a run is done for a client that has left,
        too: all of it has come.
        """
        loop = asyncio.get_running_loop()
        until_s = loop.time() + AGAIN_WAIT_S
        waited: set[str] = set()
        response = await _unless_left(first, receive)
        while True:
            plan = response.plan if isinstance(response, GatewayResponse) else None
            if not isinstance(plan, AgainPlan):
                return response
            left_s = until_s - loop.time()
            # Twice for one run would be in a circle: a process that is drained waits for nothing.
            may_wait = left_s > 0 and plan.run not in waited
            if may_wait:
                waited.add(plan.run)
                await wait_end(await hub(), plan, left_s)
            response = await self._ask(scope, body, may_wait=may_wait)

    def _ask(
        self, scope: Scope, body: bytes, *, may_wait: bool = True
    ) -> asyncio.Future[HttpResponseBase]:
        return asyncio.wrap_future(self._submit({**scope, MAY_WAIT: may_wait}, body))

    def _submit(self, scope: Scope, body: bytes) -> Future[HttpResponseBase]:
        # Its own context: what one request sets (a language, say) must not meet the next.
        return self._threads.submit(partial(copy_context().run, self._serve, scope, body))

    def _serve(self, scope: Scope, body: bytes) -> HttpResponseBase:
        """One request from its first signal to its last: by then the connection is given back."""
        try:
            return self._served(scope, body)
        except BaseException:
            # The last signal was not sent: the thread would keep its connection till its next turn.
            connections.close_all()
            raise

    def _served(self, scope: Scope, body: bytes) -> HttpResponseBase:
        set_script_prefix(get_script_prefix(scope))
        request_started.send(sender=self.__class__, scope=scope)
        request, refusal = self.create_request(scope, BytesIO(body))
        response: Any = refusal if request is None else self.get_response(request)
        response._handler_class = self.__class__  # the sender of the last signal
        if response.streaming:
            # It would be read on the loop, and hold up everything there.
            raise RuntimeError(f"{scope['path']}: only a run may stream, by a GatewayResponse")
        response.close()
        return response  # type: ignore[no-any-return]


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _unless_left(asked: Asked, receive: Receive) -> HttpResponseBase | Known | None:
    """The answer; None where the client leaves before it is there.

    In line for a thread it then never takes one: while PostgreSQL is slow the line would be full of
    requests that nobody waits for any more. In a thread it goes on to its end.
    """
    leaving = asyncio.ensure_future(_left(receive))
    try:
        await asyncio.wait((asked, leaving), return_when=asyncio.FIRST_COMPLETED)
        if asked.done():
            return asked.result()
        asked.cancel()
        return None
    finally:
        leaving.cancel()
        # To its end: whoever asks for the next message must be the only one who does.
        await asyncio.wait((leaving,))


async def _read_body(receive: Receive) -> bytes | None:
    """The whole body (BodyLimit bounds it); None where the client left before its end."""
    parts: list[bytes] = []
    while (message := await receive())["type"] == "http.request":
        parts.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(parts)
    return None


async def _write(send: Send, known: Known) -> None:
    await send({"type": "http.response.start", "status": known.status, "headers": known.headers})
    await send({"type": "http.response.body", "body": known.body})


def _call_in(loop: asyncio.AbstractEventLoop, what: Callable[[], None]) -> None:
    # A thread may be done after the loop is: then nobody waits any more.
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(what)


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
