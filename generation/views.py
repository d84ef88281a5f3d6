"""The HTTP doors of generation: parse, call one verb, answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from redis.exceptions import RedisError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.ids import external_id
from accounts.parsers import accepts_event_stream
from accounts.requests import signed_in_user
from conversations import access, selectors
from conversations.models import Conversation
from conversations.serializers import ThreadQuery, conversation_item, message_item
from conversations.tree import Node
from conversations.views import rename_view_body
from generation import payloads, runs
from generation.catalogue import models_for
from generation.models import Model, Run
from generation.run_response import (
    EndPlan,
    GatewayResponse,
    RunEndResponse,
    RunStreamResponse,
    StreamPlan,
)
from generation.scheduler import scheduler_sync
from generation.send import send
from generation.serializers import send_request
from generation.stop import request_stop


def _body(request: Request) -> dict[str, Any]:
    return cast("dict[str, Any]", request.data)  # BoundedJSONParser lets nothing else pass


class SendView(APIView):
    """`POST /v1/conversations/{c}/messages`; `new` for {c} makes the conversation too."""

    def post(self, request: Request, conversation: str) -> Response | GatewayResponse:
        wanted = None if conversation == "new" else conversation
        key = request.headers.get("Idempotency-Key")
        run = send(signed_in_user(request), send_request(wanted, request.data, key))
        if accepts_event_stream(request):
            return RunStreamResponse(
                StreamPlan(run.external_id, 0, payloads.start_data(run), run.pool_id)
            )
        return Response(payloads.run_payload(run), status=202)


class ConversationView(APIView):
    """`GET /v1/conversations/{c}`: the active branch from the leaf up. `PATCH`: rename."""

    def get(self, request: Request, conversation: str) -> Response:
        query = ThreadQuery(data=request.query_params.dict())
        query.is_valid(raise_exception=True)
        wanted = query.validated_data
        row = access.access_conversation(signed_in_user(request), conversation)
        before = wanted["before"] and access.access_message(
            signed_in_user(request), row, wanted["before"]
        )
        live = runs.live_runs_of(row.id)
        # After the live runs: one that ends in between is then seen as both, never as neither.
        row.refresh_from_db(fields=["active_leaf_id"])
        page = selectors.messages_page(
            row,
            row.active_leaf_id,
            before.id if before else None,
            wanted["limit"],
            live=[Node(run.reply_id, run.parent_id, "assistant") for run in live],
        )
        return Response(_detail(row, page, live))

    def patch(self, request: Request, conversation: str) -> Response:
        return Response(rename_view_body(signed_in_user(request), conversation, _body(request)))


def _detail(
    row: Conversation, page: selectors.MessagesPage, live: Sequence[Run]
) -> dict[str, object]:
    """The conversation as its detail shows it; messages oldest first, each reply with its run."""
    ended = {run.reply_id: run for run in _runs_of(page)}
    return {
        **conversation_item(selectors.item_of(row)),
        "messages": [
            {**message_item(message), "run": _run_of_reply(ended.get(message.id))}
            for message in page.messages
        ],
        "has_more_before": page.before is not None,
        "before": external_id("m", page.before) if page.before else None,
        "live_runs": [_live_run(run) for run in live],
    }


def _runs_of(page: selectors.MessagesPage) -> list[Run]:
    replies = [message.id for message in page.messages if message.role == "assistant"]
    return list(Run.objects.filter(reply_id__in=replies)) if replies else []


def _run_of_reply(run: Run | None) -> dict[str, object] | None:
    if run is None:
        return None
    return {
        "id": run.external_id,
        "status": run.status,
        "finish": run.finish or None,
        "model": run.model_used,
        "usage": payloads.usage_payload(run),
    }


def _live_run(run: Run) -> dict[str, object]:
    return {
        "id": run.external_id,
        "reply_id": external_id("m", run.reply_id),
        "parent_id": external_id("m", run.parent_id),
        "status": run.status,
        "model": run.model_used,
    }


class RunView(APIView):
    """`GET /v1/runs/{g}`: status, position in the queue, timings."""

    def get(self, request: Request, run: str) -> Response:
        row = runs.access_run(signed_in_user(request), run)
        return Response(payloads.run_payload(row, _position(row)))


def _position(row: Run) -> int | None:
    if row.status != "queued":
        return None
    try:
        return scheduler_sync().position(row.external_id, row.pool_id)
    except RedisError:
        return None  # the run is worth telling without it


class StopView(APIView):
    """`POST /v1/runs/{g}:stop`: answers when the run has ended, or 202 after 2 s."""

    def post(self, request: Request, run: str) -> GatewayResponse:
        row = request_stop(signed_in_user(request), run)
        return RunEndResponse(EndPlan(row.external_id, row.pool_id))


class ModelsView(APIView):
    """`GET /v1/models`: what I may choose, in OpenAI's list shape plus our fields."""

    def get(self, request: Request) -> Response:
        models = models_for(signed_in_user(request))
        return Response({"object": "list", "data": [_model(model) for model in models]})


def _model(model: Model) -> dict[str, object]:
    return {
        "id": model.slug,
        "object": "model",
        "created": int(model.created.timestamp()),
        "owned_by": "organisation",
        "title": model.title,
        "default": model.is_default,
        "context_tokens": model.context_tokens,
    }
