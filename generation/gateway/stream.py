"""Writes one run's events to one client, over bare ASGI.

No thread, no database connection and no request object is held while a stream is open: two small
tasks, a cursor and an inbox of at most 64 KiB.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, Final

from accounts.aio import in_database
from accounts.api_errors import headers_of, to_api_error
from accounts.errors import ApiError
from generation import runs
from generation.events import Event, encode_data, retry_frame, sse_frame
from generation.gateway.hub import Hub
from generation.gateway.viewer import Viewer
from generation.open_connections import OPEN, Why
from generation.run_response import AgainPlan, EndPlan, StreamPlan
from generation.run_state import ENDED

log = logging.getLogger(__name__)

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

RETRY_MS: Final = 2_000
DRAIN_RETRY_MS: Final = 1_000
"""At a deploy clients come back after a random time below this, not all at once."""

CLOSE_S: Final = 2.0
"""How long a client that does not read may keep the end of its stream waiting."""

STREAM_HEADERS: Final = [
    (b"content-type", b"text/event-stream"),
    # no-transform: a proxy that compresses holds everything back to the end.
    (b"cache-control", b"no-store, no-transform"),
    (b"x-accel-buffering", b"no"),
    (b"x-content-type-options", b"nosniff"),
]


async def write_stream(hub: Hub, plan: StreamPlan, receive: Receive, send: Send) -> None:
    """Write events after the plan's cursor until `done`, the client's leaving, or a drain; or until
    the credential ends: then the body ends too, and whoever goes on from the cursor is asked anew.

    For a client that does not read it returns with the body unended: the server cuts it.
    """
    ending = _Ending()
    entry = OPEN.enter(plan.credential, "stream", ending.ask)
    try:
        async with ending.patience:
            start, after = opening(plan)
            headers = [*STREAM_HEADERS, *_header_pairs(plan.headers)]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await send(_body(retry_frame(RETRY_MS) + start))
            viewer = await hub.attach(plan.run, plan.pool, after)
            await _write_chunks(hub, viewer, ending, receive, send)
    except TimeoutError:
        if not ending.patience.expired():
            raise
        log.info("a stream was cut: its client does not read", extra={"action": "stream_cut"})
    finally:
        OPEN.leave(entry)


class _Ending:
    """Asks a stream to end after what is being written; CLOSE_S later that is given up.

    A timer and no task: it costs nothing while nobody asks.
    """

    __slots__ = ("_asked", "patience", "viewer")

    def __init__(self) -> None:
        self._asked = False
        self.patience = asyncio.timeout(None)
        self.viewer: Viewer | None = None

    def ask(self, _why: Why | None = None) -> None:
        if self._asked:
            return
        self._asked = True
        self.patience.reschedule(asyncio.get_running_loop().time() + CLOSE_S)
        if self.viewer is not None:
            self.viewer.close()

    def ends(self, viewer: Viewer) -> None:
        """From here on it is this viewer that ends, at once where somebody has asked already."""
        self.viewer = viewer
        if self._asked:
            viewer.close()
        elif viewer.closed:
            self.ask()


async def _write_chunks(
    hub: Hub, viewer: Viewer, ending: _Ending, receive: Receive, send: Send
) -> None:
    ending.ends(viewer)
    gone = asyncio.create_task(_call_when_gone(receive, ending.ask))
    loop = asyncio.get_running_loop()
    try:
        # As `viewer.chunks()`; without a generator, which is felt at thousands of pieces a second.
        while not viewer.over:
            if chunk := viewer.ready() or await viewer.take():
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
                viewer.wrote_at_s = loop.time()
            elif not viewer.over:
                await viewer.wait()
        await send(_body(_farewell(hub, viewer), more=False))
    finally:
        gone.cancel()
        hub.detach(viewer)


def opening(plan: StreamPlan) -> tuple[bytes, int]:
    """`start` from the row, for a client that has not had it; the log's own copy is passed over.

    It is seq 1 of every run and always has the same data, so it can carry its id.
    """
    if plan.after > 0:
        return b"", plan.after
    return sse_frame(plan.run, Event(1, "start", plan.start_data)), 1


def _farewell(hub: Hub, viewer: Viewer) -> bytes:
    if hub.draining and not viewer.ended:
        return retry_frame(secrets.randbelow(DRAIN_RETRY_MS))
    return b""


def _body(body: bytes, *, more: bool = True) -> Message:
    return {"type": "http.response.body", "body": body, "more_body": more}


async def _call_when_gone(receive: Receive, call: Callable[[], None]) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    call()


async def write_end(hub: Hub, plan: EndPlan, receive: Receive, send: Send) -> None:
    """Answer with the run as JSON: 200 once it has ended, 202 where that takes too long."""
    viewer = await hub.attach(plan.run, plan.pool, 0)
    gone = asyncio.create_task(_call_when_gone(receive, viewer.close))
    try:
        await _until_end(viewer, plan.wait_s)
    finally:
        gone.cancel()
        hub.detach(viewer)
    try:
        payload = await in_database(runs.payload_of, plan.run)
    except Exception as error:  # noqa: BLE001 - the stop is recorded, whatever the look at it says
        await write_error(send, to_api_error(error))
        return
    await write_json(send, 200 if payload["status"] in ENDED else 202, payload)


async def wait_end(hub: Hub, plan: AgainPlan, wait_s: float) -> None:
    """Return once the run has ended, after `wait_s`, or at once in a process that is drained.

    Whoever sent the request may have left meanwhile: it is served all the same, as any other is.
    """
    viewer = await hub.attach(plan.run, plan.pool, 0)
    try:
        await _until_end(viewer, wait_s)
    finally:
        hub.detach(viewer)


async def _until_end(viewer: Viewer, wait_s: float) -> None:
    try:
        async with asyncio.timeout(wait_s):
            async for _ in viewer.chunks():
                pass
    except TimeoutError:
        pass


async def write_json(
    send: Send, status: int, payload: dict[str, Any], more: Mapping[str, str] | None = None
) -> None:
    headers = [
        (b"content-type", b"application/json"),
        (b"cache-control", b"no-store"),
        (b"x-content-type-options", b"nosniff"),
        *_header_pairs(more or {}),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send(_body(encode_data(payload), more=False))


def _header_pairs(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.lower().encode(), value.encode()) for name, value in headers.items()]


async def write_empty(send: Send, status: int) -> None:
    headers = [(b"cache-control", b"no-store")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send(_body(b"", more=False))


async def write_error(send: Send, error: ApiError) -> None:
    """The error in its one shape, with the headers that belong to it."""
    await write_json(send, error.http_status, error.as_dict(), headers_of(error))
