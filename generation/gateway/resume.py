"""The resume: `GET /v1/runs/{g}/stream` with `Last-Event-ID`, on any web process."""

from __future__ import annotations

from typing import Any

from accounts.aio import in_database
from accounts.api_errors import MethodNotAllowed, to_api_error
from accounts.authentication import credential_of_request
from accounts.errors import ApiError, InvalidRequest, NotSignedIn
from accounts.live import live_credential
from generation import payloads, runs
from generation.events import parse_cursor
from generation.gateway.process import hub
from generation.gateway.stream import Receive, Send, write_empty, write_error, write_stream
from generation.open_connections import OPEN
from generation.run_response import StreamPlan

NO_CONTENT = 204


async def resume(scope: dict[str, Any], receive: Receive, send: Send) -> None:
    """The ASGI application. Bare: a channel for each stream would be a subscription in Redis for
    each, and while Redis is away a text that PostgreSQL holds could not be read.
    """
    try:
        plan = await _plan(scope)
        if plan is None:
            await write_empty(send, NO_CONTENT)
        else:
            OPEN.refuse_more_streams(plan.credential.user_id)
            await write_stream(await hub(), plan, receive, send)
    except ApiError as error:
        await write_error(send, error)


async def _plan(scope: dict[str, Any]) -> StreamPlan | None:
    try:
        run = scope["url_route"]["kwargs"]["run"]
        return await in_database(plan_resume, scope["method"], scope["headers"], run)
    except Exception as error:
        raise to_api_error(error) from error


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
