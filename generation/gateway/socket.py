"""`WS /v1/ws`: any number of runs and the account's hints over one connection.

Nothing of a run is buffered here: each watched run has a viewer with a cursor, as a stream has, and
a client that reads slowly falls behind in the log. No thread and no database connection is held.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final
from uuid import UUID

from channels.consumer import AsyncConsumer, get_handler_name
from channels.exceptions import StopConsumer
from channels.utils import await_many_dispatch

from accounts.aio import in_database
from accounts.api_errors import to_api_error
from accounts.authentication import (
    Credential,
    carries_session_cookie,
    credential_of_request,
    credential_of_secret,
)
from accounts.errors import ApiError
from accounts.live import live_credential
from generation.exceptions import TooManySockets, TooManyWatches
from generation.gateway.frame_rate import FrameRate
from generation.gateway.hub import Hub
from generation.gateway.origin import is_own_origin
from generation.gateway.outbox import Outbox
from generation.gateway.process import hub
from generation.gateway.socket_frames import (
    LOOK_AGAIN,
    PONG,
    BadFrame,
    ClientFrame,
    FrameTooBig,
    parse_frame,
    ready_frame,
    refused_frame,
    run_frame,
    run_frames,
)
from generation.gateway.stream import opening
from generation.gateway.watching import stop_run_of, watch_plan
from generation.open_connections import OPEN, Entry, Why
from generation.run_response import StreamPlan
from generation.token_log.tasks import end_task

log = logging.getLogger(__name__)

MAX_WATCHES: Final = 50
WATCH_INBOX_BYTES: Final = 16 * 1024
"""What may wait for one watched run: with MAX_WATCHES of them, 800 KiB for the slowest client."""

CHUNKS_AT_ONCE: Final = 4
"""Chunks held while they are written; the other viewers wait with nothing but their inbox."""

FIRST_FRAME_S: Final = 10.0
SUBSCRIBE_S: Final = 1.0
"""How long `ready` waits for Redis to confirm that hints will come."""

CLOSE_S: Final = 2.0
"""How long a client that does not read may keep the close frame waiting."""

BAD_FRAME: Final = 4400
NOT_SIGNED_IN: Final = 4401
WRONG_ORIGIN: Final = 4403
NO_FIRST_FRAME: Final = 4408
TOO_MANY_SOCKETS: Final = 4409
TOO_BIG: Final = 1009
TOO_MANY_FRAMES: Final = 1008
FAILED: Final = 1011
RESTART: Final = 1012
TRY_LATER: Final = 1013

CODES: Final = {
    Why.SIGNED_OUT: NOT_SIGNED_IN,
    Why.UNKNOWN: TRY_LATER,
    Why.RESTART: RESTART,
}


class SocketConsumer(AsyncConsumer):  # type: ignore[misc]  # channels is not typed
    """One socket. Only its own event loop touches it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._hub: Hub
        self._credential: Credential | None = None
        self._entry: Entry | None = None
        self._listening: UUID | None = None
        self._ready = False
        self._outbox = Outbox()
        self._rate = FrameRate(asyncio.get_running_loop().time())
        self._writing = asyncio.Lock()
        self._chunks = asyncio.Semaphore(CHUNKS_AT_ONCE)
        self._watches: dict[str, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._ending: asyncio.Task[None] | None = None
        self._over = asyncio.Event()

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        # Not Channels' own: a channel for each socket would be a subscription in Redis for each,
        # and a queue without a bound; and nobody could connect while Redis is away.
        self.scope, self.base_send, self.channel_layer = scope, send, None
        try:
            with contextlib.suppress(StopConsumer):
                await await_many_dispatch([receive, self._until_over], self.dispatch)
        finally:
            await self._leave()

    async def dispatch(self, message: dict[str, Any]) -> None:
        # Channels' own goes through a thread each time, to close a connection we never open.
        await getattr(self, get_handler_name(message))(message)

    async def _until_over(self) -> dict[str, Any]:
        await self._over.wait()
        return {"type": "socket.over"}

    # --- Channels' messages -----------------------------------------------------------------------

    async def websocket_connect(self, message: dict[str, Any]) -> None:
        await self.base_send({"type": "websocket.accept"})
        self._hub = await hub()
        self._spawn(self._write_outbox())
        headers = self.scope["headers"]
        has_cookie = carries_session_cookie(headers)
        if self._hub.draining:
            self._end(RESTART, "restart")
        elif has_cookie and not is_own_origin(self.scope):
            self._end(WRONG_ORIGIN, "wrong_origin")
        elif has_cookie or b"authorization" in dict(headers):
            await self._sign_in(partial(credential_of_request, headers))
        else:
            self._spawn(self._end_without_first_frame())

    async def websocket_receive(self, message: dict[str, Any]) -> None:
        if self._ending is not None:
            return
        if not self._rate.allows(asyncio.get_running_loop().time()):
            self._end(TOO_MANY_FRAMES, "too_many_frames")
            return
        try:
            await self._obey(_parse(message))
        except FrameTooBig:
            self._end(TOO_BIG, "frame_too_big")
        except BadFrame as problem:
            self._end(BAD_FRAME, str(problem))

    async def websocket_disconnect(self, message: dict[str, Any]) -> None:
        raise StopConsumer

    async def socket_over(self, message: dict[str, Any]) -> None:
        raise StopConsumer

    # --- signing in -------------------------------------------------------------------------------

    async def _end_without_first_frame(self) -> None:
        await asyncio.sleep(FIRST_FRAME_S)
        if self._credential is None:
            self._end(NO_FIRST_FRAME, "no_first_frame")

    async def _sign_in(self, find: Callable[[], Credential | None]) -> None:
        try:
            credential = await in_database(find)
        except Exception as problem:  # noqa: BLE001 - whatever it was, the client is told
            self._end_because(to_api_error(problem))
            return
        if credential is None:
            self._end(NOT_SIGNED_IN, "not_signed_in")
        elif self._enter(credential):
            await self._listen(credential.user.id)
            self._ready = True
            self._reply(ready_frame(credential.user.external_id))

    def _end_because(self, error: ApiError) -> None:
        if error.http_status in (401, 403):
            self._end(NOT_SIGNED_IN, error.code)
        else:
            self._end(TRY_LATER if error.http_status == 503 else FAILED, error.code)

    def _enter(self, credential: Credential) -> bool:
        if self._ending is not None:
            return False
        try:
            OPEN.refuse_more_sockets(credential.user.id)
        except TooManySockets as refusal:
            self._end(TOO_MANY_SOCKETS, refusal.code)
            return False
        self._credential = credential
        self._entry = OPEN.enter(live_credential(credential), "socket", self._close)
        if self._hub.draining:
            self._close(Why.RESTART)
        return True

    def _close(self, why: Why) -> None:
        self._end(CODES[why], "not_signed_in" if why is Why.SIGNED_OUT else why.value)

    # --- hints ------------------------------------------------------------------------------------

    async def _listen(self, user_id: UUID) -> None:
        """Subscribed when `ready` is said; where Redis is away, the client is told later."""
        self._listening = user_id
        confirmed = self._hub.hints.listen(user_id, self._on_hint)
        try:
            async with asyncio.timeout(SUBSCRIBE_S):
                await confirmed.wait()
        except TimeoutError:
            self._spawn(self._look_again_after(confirmed))

    async def _look_again_after(self, confirmed: asyncio.Event) -> None:
        await confirmed.wait()
        self._on_hint(LOOK_AGAIN)

    def _on_hint(self, frame: str) -> None:
        if self._ready:  # before that the client has not looked at anything yet
            self._outbox.hint(frame)

    # --- what the client asks ---------------------------------------------------------------------

    async def _obey(self, frame: ClientFrame) -> None:
        if self._credential is None:
            if frame.type == "auth":
                await self._sign_in(partial(credential_of_secret, frame.token))
            else:
                self._end(NOT_SIGNED_IN, "not_signed_in")
        elif frame.type == "auth":
            raise BadFrame("signed in already")
        elif frame.type == "ping":
            self._reply(PONG)
        elif frame.type == "unwatch":
            await self._unwatch(frame.run)
        else:
            await self._watch_or_stop(frame, self._credential)

    async def _watch_or_stop(self, frame: ClientFrame, credential: Credential) -> None:
        try:
            if frame.type == "watch":
                await self._watch(frame, credential)
            else:
                await in_database(stop_run_of, credential, frame.run)
        except Exception as problem:  # noqa: BLE001 - whatever it was, the client is told
            self._reply(refused_frame(frame, to_api_error(problem)))

    async def _watch(self, frame: ClientFrame, credential: Credential) -> None:
        """Watch the run after the client's cursor; in place of an earlier watch of it."""
        if frame.run not in self._watches and len(self._watches) >= MAX_WATCHES:
            raise TooManyWatches
        plan = await in_database(watch_plan, credential, frame.run, frame.after)
        await self._unwatch(frame.run)
        if isinstance(plan, bytes):  # the cursor is at the end: all there is to say is how it ended
            self._reply(run_frame(frame.run, "", "done", plan.decode()))
        elif self._ending is None:
            self._watches[plan.run] = asyncio.create_task(self._pump(plan))

    async def _unwatch(self, run: str) -> None:
        task = self._watches.pop(run, None)
        if task is not None:
            await end_task(task)

    # --- writing ----------------------------------------------------------------------------------

    def _reply(self, frame: str) -> None:
        if not self._outbox.reply(frame):
            self._end(TOO_MANY_FRAMES, "replies_not_read")

    async def _write_outbox(self) -> None:
        with contextlib.suppress(OSError):  # the client has gone; told to websocket_disconnect
            while True:
                await self._write(await self._outbox.take())

    async def _write(self, frame: str) -> None:
        async with self._writing:
            await self.base_send({"type": "websocket.send", "text": frame})

    async def _pump(self, plan: StreamPlan) -> None:
        """Write one run until its `done`, or until nobody wants it any more."""
        try:
            await self._write_run(plan)
        except OSError:
            return  # the client has gone
        except Exception:
            # Nobody awaits this task: without an end the client would wait for ever.
            log.exception("a watch failed", extra={"action": "watch_failed"})
            self._end(FAILED, "internal_error")
        if self._watches.get(plan.run) is asyncio.current_task():
            del self._watches[plan.run]

    async def _write_run(self, plan: StreamPlan) -> None:
        start, after = opening(plan)
        for frame in run_frames(plan.run, start):
            await self._write(frame)
        viewer = await self._hub.attach(plan.run, plan.pool, after, WATCH_INBOX_BYTES)
        loop = asyncio.get_running_loop()
        try:
            while not viewer.over:
                async with self._chunks:
                    chunk = await viewer.take()
                    for frame in run_frames(plan.run, chunk):
                        await self._write(frame)
                    viewer.wrote_at_s = loop.time()
                if not chunk and not viewer.over:
                    await viewer.wait()
        finally:
            self._hub.detach(viewer)

    # --- the end ----------------------------------------------------------------------------------

    def _end(self, code: int, reason: str) -> None:
        """Close the socket from here, once. Never blocks."""
        if self._ending is None:
            self._ending = asyncio.create_task(self._finish(code, reason))

    async def _finish(self, code: int, reason: str) -> None:
        try:
            await self._cancel_all()
            async with asyncio.timeout(CLOSE_S):
                await self.base_send({"type": "websocket.close", "code": code, "reason": reason})
        except (TimeoutError, OSError):
            pass  # it does not read, or has gone: the connection is dropped instead
        finally:
            self._over.set()

    async def _leave(self) -> None:
        if self._entry is not None:
            OPEN.leave(self._entry)
        if self._listening is not None:
            self._hub.hints.leave(self._listening, self._on_hint)
        if self._ending is not None:
            await end_task(self._ending)
        await self._cancel_all()

    async def _cancel_all(self) -> None:
        tasks, self._watches = [*self._tasks, *self._watches.values()], {}
        for task in tasks:
            await end_task(task)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _parse(message: dict[str, Any]) -> ClientFrame:
    text = message.get("text")
    if text is None:
        raise BadFrame("binary")
    return parse_frame(text)
