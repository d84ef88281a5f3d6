"""The resume: `GET /v1/runs/{g}/stream` with `Last-Event-ID`, on any web process."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Any

from channels.exceptions import StopConsumer
from channels.generic.http import AsyncHttpConsumer

from accounts.aio import in_database
from accounts.api_errors import MethodNotAllowed, to_api_error
from accounts.authentication import credential_of_request
from accounts.errors import ApiError, InvalidRequest, NotSignedIn
from accounts.live import live_credential
from generation import payloads, runs
from generation.events import parse_cursor
from generation.gateway.process import hub
from generation.gateway.stream import write_empty, write_error, write_stream
from generation.open_connections import OPEN
from generation.run_response import StreamPlan

log = logging.getLogger(__name__)

NO_CONTENT = 204


class ResumeConsumer(AsyncHttpConsumer):  # type: ignore[misc]  # channels is not typed
    """Streams from a task of its own, so that a disconnect is seen at once."""

    # No layer: a channel for each stream would be a subscription in Redis for each, and while
    # Redis is away a text that PostgreSQL holds could not be read.
    channel_layer_alias = ""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._task: asyncio.Task[None] | None = None
        self._gone: asyncio.Event = asyncio.Event()

    async def http_request(self, message: dict[str, Any]) -> None:
        if self._task is None:
            self._task = asyncio.create_task(self._serve())

    async def http_disconnect(self, message: dict[str, Any]) -> None:
        self._gone.set()
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        raise StopConsumer

    async def _serve(self) -> None:
        try:
            plan = await self._plan()
            if plan is None:
                await write_empty(self.base_send, NO_CONTENT)
            else:
                OPEN.refuse_more_streams(plan.credential.user_id)
                await write_stream(await hub(), plan, self._disconnect, self.base_send)
        except ApiError as error:
            await write_error(self.base_send, error)
        except Exception:
            # Nobody awaits this task: without an end the client would wait on a dead connection.
            log.exception("a stream failed", extra={"action": "stream_failed"})
            with contextlib.suppress(Exception):
                await self.base_send({"type": "http.response.body", "body": b""})

    async def _plan(self) -> StreamPlan | None:
        try:
            run = self.scope["url_route"]["kwargs"]["run"]
            return await in_database(plan_resume, self.scope["method"], self.scope["headers"], run)
        except Exception as error:
            raise to_api_error(error) from error

    async def _disconnect(self) -> dict[str, str]:
        """What the stream's writer awaits; Channels has taken the message itself."""
        await self._gone.wait()
        return {"type": "http.disconnect"}


def plan_resume(method: str, headers: list[tuple[bytes, bytes]], run: str) -> StreamPlan | None:
    """What to stream, decided in a database thread; None where the client has all of an ended run.

    Raises NotSignedIn, NotFound, or InvalidRequest for a cursor that is none of this run.
    """
    if method != "GET":
        raise MethodNotAllowed(allow="GET")
    credential = credential_of_request(headers)
    if credential is None:
        raise NotSignedIn
    row = runs.access_run(credential.user, run)
    after = _cursor(headers, row.external_id)
    if row.last_seq is not None and after >= row.last_seq:
        return None
    start, lives = payloads.start_data(row), live_credential(credential)
    return StreamPlan(row.external_id, after, start, row.pool_id, lives)


def _cursor(headers: list[tuple[bytes, bytes]], run: str) -> int:
    given = dict(headers).get(b"last-event-id", b"").decode("latin-1").strip()
    if not given:
        return 0
    try:
        of_run, seq = parse_cursor(given)
    except ValueError:
        raise InvalidRequest("Last-Event-ID must be <run>:<seq>.", param="Last-Event-ID") from None
    if of_run != run:
        raise InvalidRequest("Last-Event-ID belongs to another run.", param="Last-Event-ID")
    return seq
