"""The HTTP doors of generation: parse, call one verb, answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from redis.exceptions import RedisError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.authentication import credential_of_view
from accounts.errors import RateLimited
from accounts.ids import external_id
from accounts.live import live_credential
from accounts.models import User
from accounts.parsers import accepts_event_stream
from accounts.requests import query_of, signed_in_user
from conversations import access, selectors
from conversations.conditional import etag_of, is_unchanged
from conversations.models import Conversation
from conversations.serializers import (
    ActiveLeafBody,
    FeedbackBody,
    ThreadQuery,
    conversation_item,
    feedback_item,
    message_item,
    versions_item,
)
from conversations.tree import Node, Versions
from conversations.views import rename_view_body
from generation import openapi, payloads, runs
from generation.catalogue import offer_for
from generation.continuation import continue_reply
from generation.deletion import delete, restore
from generation.exceptions import AtLimit, RunStopping
from generation.feedback import give_feedback
from generation.models import Model, Run
from generation.open_connections import OPEN
from generation.regenerate import regenerate
from generation.reserving import rate_headers
from generation.run_response import (
    MAY_WAIT,
    AgainPlan,
    AgainResponse,
    EndPlan,
    GatewayResponse,
    RunEndResponse,
    RunStreamResponse,
    StreamPlan,
)
from generation.runs import LiveReply
from generation.scheduler import Place, scheduler_sync
from generation.send import send
from generation.serializers import continue_request, regenerate_request, send_request
from generation.stop import request_stop
from generation.switching import switch
from generation.usage import usage
from quotas.limits import headers_of
from quotas.plans import Terms


def _body(request: Request) -> dict[str, Any]:
    return cast("dict[str, Any]", request.data)  # BoundedJSONParser lets nothing else pass


def _key(request: Request) -> str | None:
    return request.headers.get("Idempotency-Key")


def _if_match(request: Request) -> str | None:
    return request.headers.get("If-Match")


class RunBeginView(APIView):
    """What answers with a new run: its stream, or 202.

    Where the answer below which it should stand is being stopped, the request waits for its end.
    """

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        if accepts_event_stream(request):
            # Before anything is written: a run that was begun can no longer be refused.
            OPEN.refuse_more_streams(signed_in_user(request).id)

    def handle_exception(  # type: ignore[override]  # Django takes any HttpResponse
        self, exc: Exception
    ) -> Response | GatewayResponse:
        if isinstance(exc, RunStopping) and self._may_wait():
            return AgainResponse(AgainPlan(exc.run, exc.pool))
        response = super().handle_exception(exc)
        if isinstance(exc, RateLimited):
            for name, value in self._limits_of(exc).items():
                response.headers[name] = value
        return response

    def _limits_of(self, refusal: RateLimited) -> dict[str, str]:
        if isinstance(refusal, AtLimit):
            return headers_of(refusal.standing, refusal.model)
        return rate_headers(signed_in_user(self.request), refusal.model)

    def _may_wait(self) -> bool:
        scope = getattr(self.request._request, "scope", {})
        return bool(scope.get(MAY_WAIT))

    def begun(self, request: Request, run: Run) -> Response | GatewayResponse:
        if run.standing is not None:
            limits = headers_of(run.standing, run.model_used)
        else:  # of a known key: it was begun before
            limits = rate_headers(signed_in_user(request), run.model_used)
        if accepts_event_stream(request):
            return RunStreamResponse(
                StreamPlan(
                    run.external_id,
                    0,
                    payloads.start_data(run),
                    run.pool_id,
                    live_credential(credential_of_view(request)),
                    limits,
                )
            )
        return Response(payloads.run_payload(run), status=202, headers=limits)


class SendView(RunBeginView):
    """`POST /v1/conversations/{c}/messages`; `new` for {c} makes the conversation too."""

    @openapi.send_schema
    def post(self, request: Request, conversation: str) -> Response | GatewayResponse:
        wanted = None if conversation == "new" else conversation
        run = send(signed_in_user(request), send_request(wanted, request.data, _key(request)))
        return self.begun(request, run)


class RegenerateView(RunBeginView):
    """`POST /v1/conversations/{c}/messages/{m}:regenerate`: a new version of the reply."""

    @openapi.regenerate_schema
    def post(self, request: Request, conversation: str, message: str) -> Response | GatewayResponse:
        wanted = regenerate_request(conversation, message, request.data, _key(request))
        return self.begun(request, regenerate(signed_in_user(request), wanted))


class ContinueView(RunBeginView):
    """`POST /v1/conversations/{c}/messages/{m}:continue`: a new version that goes on with {m}."""

    @openapi.continue_schema
    def post(self, request: Request, conversation: str, message: str) -> Response | GatewayResponse:
        wanted = continue_request(conversation, message, request.data, _key(request))
        return self.begun(request, continue_reply(signed_in_user(request), wanted))


@openapi.conversation_schema
class ConversationView(APIView):
    """`GET /v1/conversations/{c}`: the active branch from the leaf up; rename; delete."""

    def get(self, request: Request, conversation: str) -> Response:
        query = ThreadQuery(data=query_of(request))
        query.is_valid(raise_exception=True)
        wanted = query.validated_data
        row = access.access_conversation(signed_in_user(request), conversation)
        before = wanted["before"] and access.access_message(
            signed_in_user(request), row, wanted["before"]
        )
        shown = runs.standing(row.id)
        # All that the tag stands for is of the moment of its revision: an older title under a newer
        # tag would be kept until the next change.
        row.title, row.last_activity = shown.title, shown.last_activity
        row.active_leaf_id = shown.active_leaf_id
        tag = {"ETag": etag_of(shown.revision, [(run.run_id, run.status) for run in shown.live])}
        if is_unchanged(request.headers.get("If-None-Match"), tag["ETag"]):
            return Response(status=304, headers=tag)
        page = selectors.messages_page(
            row,
            shown.active_leaf_id,
            before.id if before else None,
            wanted["limit"],
            live=[Node(run.reply_id, run.parent_id, "assistant") for run in shown.live],
        )
        detail = _detail(signed_in_user(request), row, page, shown.live)
        return Response(detail, headers=tag)

    def patch(self, request: Request, conversation: str) -> Response:
        user, body = signed_in_user(request), _body(request)
        return Response(rename_view_body(user, conversation, body, _if_match(request)))

    def delete(self, request: Request, conversation: str) -> Response:
        delete(signed_in_user(request), conversation, _if_match(request))
        return Response(status=204)


class RestoreView(APIView):
    """`POST /v1/conversations/{c}:restore`: undo a delete, until the purge."""

    @openapi.restore_schema
    def post(self, request: Request, conversation: str) -> Response:
        row = restore(signed_in_user(request), conversation)
        return Response(conversation_item(selectors.item_of(row)))


class ActiveLeafView(APIView):
    """`PUT /v1/conversations/{c}/active_leaf`: show the newest leaf below a message."""

    @openapi.active_leaf_schema
    def put(self, request: Request, conversation: str) -> Response:
        body = ActiveLeafBody(data=request.data)
        body.is_valid(raise_exception=True)
        message = body.validated_data["message"]
        row = switch(signed_in_user(request), conversation, message, _if_match(request))
        item = conversation_item(selectors.item_of(row))
        return Response(item, headers={"ETag": etag_of(row.revision)})


class FeedbackView(APIView):
    """`POST /v1/messages/{m}/feedback`: replaces what was said before; null takes it back."""

    @openapi.feedback_schema
    def post(self, request: Request, message: str) -> Response:
        body = FeedbackBody(data=request.data)
        body.is_valid(raise_exception=True)
        rating, reason = body.validated_data["rating"], body.validated_data["reason"]
        give_feedback(signed_in_user(request), message, rating, reason)
        return Response({"rating": rating, "reason": reason})


def _detail(
    user: User, row: Conversation, page: selectors.MessagesPage, live: Sequence[LiveReply]
) -> dict[str, object]:
    """The conversation as its detail shows it; messages oldest first, each reply with its run."""
    replies = [message.id for message in page.messages if message.role == "assistant"]
    ended = runs.ends_of_replies(replies)
    feedback = selectors.feedback_of(user, replies)
    return {
        **conversation_item(selectors.item_of(row)),
        "messages": [
            {
                **message_item(message),
                "run": ended.get(message.id),
                "feedback": feedback_item(feedback.get(message.id)),
            }
            for message in page.messages
        ],
        "has_more_before": page.before is not None,
        "before": external_id("m", page.before) if page.before else None,
        "live_runs": [_live_run(run, page.live.get(run.reply_id)) for run in live],
    }


def _live_run(run: LiveReply, versions: Versions | None) -> dict[str, object]:
    return {
        "id": external_id("g", run.run_id),
        "reply_id": external_id("m", run.reply_id),
        "parent_id": external_id("m", run.parent_id),
        "status": run.status,
        "model": run.model,
        "versions": versions and versions_item(versions),
    }


class RunView(APIView):
    """`GET /v1/runs/{g}`: status, position in the queue, timings."""

    @openapi.run_schema
    def get(self, request: Request, run: str) -> Response:
        row = runs.access_run(signed_in_user(request), run)
        return Response(payloads.run_payload(row, _place(row)))


def _place(row: Run) -> Place | None:
    if row.status != "queued":
        return None
    try:
        return scheduler_sync().places([(row.pool_id, row.external_id)])[0]
    except RedisError:
        return None  # the run is worth telling without it


class StopView(APIView):
    """`POST /v1/runs/{g}:stop`: answers when the run has ended, or 202 after 2 s."""

    @openapi.stop_schema
    def post(self, request: Request, run: str) -> GatewayResponse:
        row = request_stop(signed_in_user(request), run)
        return RunEndResponse(EndPlan(row.external_id, row.pool_id))


class ModelsView(APIView):
    """`GET /v1/models`: what I may choose, in OpenAI's list shape plus our fields."""

    @openapi.models_schema
    def get(self, request: Request) -> Response:
        offer = offer_for(signed_in_user(request))
        default = offer.find(None)
        models = [
            _model(model, offer.terms, is_default=default is not None and default[0] is model)
            for model in offer.shown
        ]
        return Response({"object": "list", "data": models})


class UsageView(APIView):
    """`GET /v1/usage`: what I have used, and when it is back."""

    @openapi.usage_schema
    def get(self, request: Request) -> Response:
        body, headers = usage(signed_in_user(request))
        return Response(body, headers=headers)


def _model(model: Model, terms: Terms, *, is_default: bool) -> dict[str, object]:
    return {
        "id": model.slug,
        "object": "model",
        "created": int(model.created.timestamp()),
        "owned_by": "organisation",
        "title": model.title,
        "default": is_default,
        "context_tokens": min(model.context_tokens, terms.context_tokens),
    }
