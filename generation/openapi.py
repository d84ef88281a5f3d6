"""How `/v1/schema` describes runs, streams and the tree: the shapes that views and payloads write.

Nothing here runs when a call is served. Tests hold real answers against these shapes.
"""

from __future__ import annotations

from typing import Any, Final

from drf_spectacular.utils import (
    OpenApiExample,
    OpenApiParameter,
    extend_schema,
    extend_schema_view,
)
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.openapi import (
    ERROR_CODES,
    IDEMPOTENCY_KEY,
    IF_MATCH,
    IdChars,
    example_id,
    header,
    id_in_path,
    id_schema,
)
from conversations import openapi as conversations
from conversations.serializers import ActiveLeafBody, FeedbackBody, RenameBody, ThreadQuery
from generation.payloads import ERRORS
from generation.run_state import LIVE, STATUS_OF_FINISH, STATUSES
from generation.serializers import RegenerateSerializer, SendSerializer

RUN: Final = id_in_path("run", "g")
CONVERSATION_OR_NEW: Final = OpenApiParameter(
    "conversation",
    {"type": "string", "pattern": "^(new|c_[0-9a-f]{32})$"},
    OpenApiParameter.PATH,
    description="`new` makes a conversation with this message.",
    examples=[OpenApiExample("a new one", "new")],
)
LAST_EVENT_ID_PATTERN: Final = "^g_[0-9a-f]{32}:(0|[1-9][0-9]{0,14})$"
LAST_EVENT_ID: Final = header(
    "Last-Event-ID",
    "The last id you saw, `<run>:<seq>`: the stream goes on exactly there. Left out: from the "
    "start.",
    pattern=f"^$|{LAST_EVENT_ID_PATTERN}",
)
IF_NONE_MATCH: Final = header(
    "If-None-Match", "An `ETag` that you were given: 304 where nothing has changed since."
)

BEGINS: Final = [
    "text_destroyed",
    "run_live",
    "idempotency_key_reused",
    "no_plan",
    "rate_limited",
    "quota_exceeded",
    "tokens_per_minute",
    "busy",
    "queue_full",
    "too_many_live_runs",
    "too_many_streams",
]
"""What send, regenerate and continue have in common."""


class Usage(serializers.Serializer[Any]):
    """Tokens of a run."""

    prompt_tokens = serializers.IntegerField(min_value=0)
    cached_tokens = serializers.IntegerField(min_value=0)
    output_tokens = serializers.IntegerField(min_value=0)


class RunError(serializers.Serializer[Any]):
    """Why an answer broke off; what was written is kept."""

    code = serializers.ChoiceField(choices=sorted(ERRORS))
    message = serializers.CharField()
    retryable = serializers.BooleanField()


class Run(serializers.Serializer[Any]):
    """One attempt at an answer."""

    id = IdChars("g")
    conversation = IdChars("c")
    user_msg = IdChars("m")
    reply_msg = IdChars("m")
    status = serializers.ChoiceField(choices=STATUSES)
    finish = serializers.ChoiceField(choices=sorted(STATUS_OF_FINISH), allow_null=True)
    error = RunError(allow_null=True)
    model = serializers.CharField()
    position = serializers.IntegerField(
        min_value=1, allow_null=True, help_text="In the queue, from 1; null once it is not queued."
    )
    eta_s = serializers.IntegerField(
        min_value=0,
        allow_null=True,
        help_text="Predicted seconds until it begins, while it is queued; null where nobody knows.",
    )
    usage = Usage()
    queued_at = serializers.DateTimeField()
    claimed_at = serializers.DateTimeField(allow_null=True)
    first_text_at = serializers.DateTimeField(allow_null=True)
    finished_at = serializers.DateTimeField(allow_null=True)


class RunOfReply(serializers.Serializer[Any]):
    """The run that wrote a reply."""

    id = IdChars("g")
    status = serializers.ChoiceField(choices=STATUSES)
    finish = serializers.ChoiceField(choices=sorted(STATUS_OF_FINISH), allow_null=True)
    model = serializers.CharField()
    usage = Usage()


class LiveRun(serializers.Serializer[Any]):
    """An answer that is being written."""

    id = IdChars("g")
    reply_id = IdChars("m")
    parent_id = IdChars("m")
    status = serializers.ChoiceField(choices=sorted(LIVE))
    model = serializers.CharField()
    versions = conversations.Versions(allow_null=True)


class Message(conversations.MessageBase):
    """A message of the active branch; `run` and `feedback` are those of a reply."""

    run = RunOfReply(allow_null=True)
    feedback = conversations.Feedback(allow_null=True)


class ConversationDetail(conversations.Conversation):
    """A conversation with a page of its active branch, oldest message first."""

    messages = Message(many=True)
    has_more_before = serializers.BooleanField()
    before = IdChars("m", allow_null=True, help_text="For the page above; null at the root.")
    live_runs = LiveRun(many=True)


class Model(serializers.Serializer[Any]):
    """A model that you may choose."""

    id = serializers.CharField()
    object = serializers.ChoiceField(choices=["model"])
    created = serializers.IntegerField()
    owned_by = serializers.CharField()
    title = serializers.CharField()
    default = serializers.BooleanField()
    context_tokens = serializers.IntegerField(min_value=1)


class ModelList(serializers.Serializer[Any]):
    """OpenAI's list shape."""

    object = serializers.ChoiceField(choices=["list"])
    data = Model(many=True)  # type: ignore[assignment]  # a field, as OpenAI names it


class Limit(serializers.Serializer[Any]):
    """One limit as it stands; all of it is there again at `resets_at`, if nothing more comes."""

    limit = serializers.IntegerField(min_value=1)
    used = serializers.IntegerField(min_value=0)
    remaining = serializers.IntegerField(min_value=0)
    resets_at = serializers.DateTimeField()
    reset_s = serializers.IntegerField(min_value=0)


class MessagesOfModel(serializers.Serializer[Any]):
    """The messages to a model in the plan's rolling window; null where there is no limit."""

    model = serializers.CharField()
    limit = serializers.IntegerField(min_value=1, allow_null=True)
    used = serializers.IntegerField(min_value=0)
    remaining = serializers.IntegerField(min_value=0, allow_null=True)
    resets_at = serializers.DateTimeField(allow_null=True)
    reset_s = serializers.IntegerField(min_value=0, allow_null=True)


class PlanOfUser(serializers.Serializer[Any]):
    """Your plan."""

    slug = serializers.CharField(allow_blank=True)
    title = serializers.CharField()


class LimitsOfPlan(serializers.Serializer[Any]):
    """Its limits, in the rolling window and per minute; null: there is none."""

    window_s = serializers.IntegerField(min_value=1)
    messages = MessagesOfModel(many=True)
    tokens_per_minute = Limit(allow_null=True)
    requests_per_minute = Limit(allow_null=True)


class UsedFigures(serializers.Serializer[Any]):
    """Messages that were answered, their tokens and their cost (null: no price was known)."""

    messages = serializers.IntegerField(min_value=0)
    prompt_tokens = serializers.IntegerField(min_value=0)
    cached_tokens = serializers.IntegerField(min_value=0)
    output_tokens = serializers.IntegerField(min_value=0)
    cost = serializers.CharField(allow_null=True)


class UsedOfModel(UsedFigures):
    """The same of one model."""

    model = serializers.CharField()


class UsedIn(serializers.Serializer[Any]):
    """What was used in some time before now."""

    total = UsedFigures()
    models = UsedOfModel(many=True)


class UsedTimes(serializers.Serializer[Any]):
    """What was used in the plan's window, and in thirty days."""

    window = UsedIn()
    last_30_days = UsedIn()


class UsageOfUser(serializers.Serializer[Any]):
    """What you may use, have used, and when it is back."""

    plan = PlanOfUser()
    limits = LimitsOfPlan()
    used = UsedTimes()
    currency = serializers.CharField()


# --- the events of a stream -----------------------------------------------------------------------

_TEXT: Final = {"text": {"type": "string"}}
EVENTS: Final[dict[str, tuple[str, dict[str, Any], list[str]]]] = {
    "start": (
        "Always first; its id ends in 1.",
        {
            "run": id_schema("g"),
            "user_msg": id_schema("m"),
            "reply_msg": id_schema("m"),
            "conversation": id_schema("c"),
            "model": {"type": "string"},
        },
        [],
    ),
    "notice": (
        "`queued`: a place in the queue, without id. `other_model`, `smaller_model`: who answers.",
        {
            "code": {"type": "string"},
            **_TEXT,
            "model": {"type": "string"},
            "instead_of": {"type": "string"},
            "position": {"type": "integer", "minimum": 1},
            "eta_s": {"type": ["number", "null"]},
            "back_at": {"type": ["string", "null"], "format": "date-time"},
            "answer_tokens": {"type": "integer"},
            "region": {"type": "string"},
        },
        ["model", "instead_of", "position", "eta_s", "back_at", "answer_tokens", "region"],
    ),
    "delta": ("Append this text.", _TEXT, []),
    "snapshot": ("The whole answer so far: replace what you have.", _TEXT, []),
    "retract": ("A message in place of the answer: replace what you have.", _TEXT, []),
    "error": (
        "The answer broke off; what was written is kept, and `done` follows.",
        {
            "code": {"type": "string", "enum": sorted(ERRORS)},
            "message": {"type": "string"},
            "retryable": {"type": "boolean"},
        },
        [],
    ),
    "done": (
        "Always last.",
        {
            "finish": {"type": "string", "enum": sorted(STATUS_OF_FINISH)},
            "usage": {"$ref": "#/components/schemas/Usage"},
            "active_leaf": {"oneOf": [id_schema("m"), {"type": "null"}]},
        },
        [],
    ),
}
"""name → (what it means, the properties of its data, those that may be missing)."""


def event_components() -> dict[str, dict[str, Any]]:
    """`StartEvent` … `DoneEvent`, the data of each event; `StreamEvent`, any of them."""
    components = {
        f"{name.title()}Event": {
            "type": "object",
            "description": meaning,
            "properties": properties,
            "required": [key for key in properties if key not in optional],
        }
        for name, (meaning, properties, optional) in EVENTS.items()
    }
    return {**components, "StreamEvent": _event_schema()}


def _event_schema() -> dict[str, Any]:
    """One server-sent event. OpenAPI 3.1 has no word for a stream of them; this is what tools that
    know such streams look for, and what 3.2 calls `itemSchema`."""
    lines = [f"- `{name}` (`{name.title()}Event`): {EVENTS[name][0]}" for name in EVENTS]
    text = (
        "Server-sent events, each with `id: <run>:<seq>`, a name, and JSON data on one line. The "
        "stream begins with `retry:`, and a comment line breaks ten seconds of silence. Notices of "
        "the queue have no id, nor has the text of a run that ended long ago.\n\n"
    )
    return {
        "description": text + "\n".join(lines),
        "oneOf": [_one_event(name) for name in EVENTS],
    }


def _one_event(name: str) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {
            "id": {"type": "string", "pattern": LAST_EVENT_ID_PATTERN},
            "event": {"const": name},
            "data": {
                "type": "string",
                "contentMediaType": "application/json",
                "contentSchema": {"$ref": f"#/components/schemas/{name.title()}Event"},
            },
            "retry": {"type": "integer", "minimum": 0},
        },
        "required": ["event", "data"],
    }


STREAM: Final = {"$ref": "#/components/schemas/StreamEvent"}
_G: Final = example_id("g")
STREAM_EXAMPLE: Final = OpenApiExample(
    "events",
    f"retry: 2000\n\nid: {_G}:1\nevent: start\n"
    f'data: {{"run":"{_G}","user_msg":"{example_id("m")}","reply_msg":"{example_id("m")}",'
    f'"conversation":"{example_id("c")}","model":"demo"}}\n\n'
    f'id: {_G}:2\nevent: delta\ndata: {{"text":"Hel"}}\n\n',
    media_type="text/event-stream",
    response_only=True,
)
RUN_EXAMPLE: Final = OpenApiExample(
    "queued",
    {
        "id": _G,
        "conversation": example_id("c"),
        "user_msg": example_id("m"),
        "reply_msg": example_id("m"),
        "status": "queued",
        "finish": None,
        "error": None,
        "model": "demo",
        "position": None,
        "eta_s": None,
        "usage": {"prompt_tokens": 0, "cached_tokens": 0, "output_tokens": 0},
        "queued_at": "2026-11-29T19:26:34.021400Z",
        "claimed_at": None,
        "first_text_at": None,
        "finished_at": None,
    },
    response_only=True,
    status_codes=["202"],
    media_type="application/json",
)
_BEGUN: Final[Any] = {(200, "text/event-stream"): STREAM, (202, "application/json"): Run}
_BEGIN_TEXT: Final = (
    "With `Accept: text/event-stream` the answer streams; else 202 with the run, whose stream is "
    "at `/v1/runs/{run}/stream`."
)


# --- the calls ------------------------------------------------------------------------------------

send_schema = extend_schema(
    operation_id="send",
    tags=["messages"],
    summary="Send a message and have it answered",
    description=_BEGIN_TEXT
    + " An edit is a send whose `parent_id` is the edited message's parent.",
    parameters=[CONVERSATION_OR_NEW, IDEMPOTENCY_KEY],
    request=SendSerializer,
    responses=_BEGUN,
    examples=[
        OpenApiExample("a first message", {"content": "What is a fugue?"}, request_only=True),
        RUN_EXAMPLE,
        STREAM_EXAMPLE,
    ],
    extensions={ERROR_CODES: ["unknown_model", "invalid_parent", *BEGINS]},
)
regenerate_schema = extend_schema(
    operation_id="regenerate",
    tags=["messages"],
    summary="Have a message answered once more",
    description=_BEGIN_TEXT,
    parameters=[conversations.CONVERSATION, conversations.MESSAGE, IDEMPOTENCY_KEY],
    request=RegenerateSerializer,
    responses=_BEGUN,
    examples=[RUN_EXAMPLE, STREAM_EXAMPLE],
    extensions={ERROR_CODES: ["unknown_model", "invalid_parent", *BEGINS]},
)
continue_schema = extend_schema(
    operation_id="continueReply",
    tags=["messages"],
    summary="Go on with a reply that was cut, stopped or interrupted",
    description=_BEGIN_TEXT,
    parameters=[conversations.CONVERSATION, conversations.MESSAGE, IDEMPOTENCY_KEY],
    request=None,
    responses=_BEGUN,
    examples=[RUN_EXAMPLE, STREAM_EXAMPLE],
    extensions={ERROR_CODES: ["unknown_model", "not_continuable", *BEGINS]},
)
conversation_schema = extend_schema_view(
    get=extend_schema(
        operation_id="getConversation",
        tags=["conversations"],
        summary="A page of the active branch, from the leaf up",
        parameters=[
            conversations.CONVERSATION,
            ThreadQuery,
            IF_NONE_MATCH,
            conversations.ETAG,
        ],
        responses={200: ConversationDetail, 304: None},
    ),
    patch=extend_schema(
        operation_id="renameConversation",
        tags=["conversations"],
        summary="Rename",
        parameters=[conversations.CONVERSATION, IF_MATCH],
        request=RenameBody,
        responses={200: conversations.Conversation},
        examples=[conversations.CONVERSATION_EXAMPLE],
        extensions={ERROR_CODES: ["text_destroyed"]},
    ),
    delete=extend_schema(
        operation_id="deleteConversation",
        tags=["conversations"],
        summary="Delete: gone everywhere at once, purged later",
        parameters=[conversations.CONVERSATION, IF_MATCH],
        responses={204: None},
    ),
)
restore_schema = extend_schema(
    operation_id="restoreConversation",
    tags=["conversations"],
    summary="Undo a delete, until the purge",
    parameters=[conversations.CONVERSATION],
    request=None,
    responses={200: conversations.Conversation},
    examples=[conversations.CONVERSATION_EXAMPLE],
)
active_leaf_schema = extend_schema(
    operation_id="switchVersion",
    tags=["conversations"],
    summary="Show the newest leaf below a message",
    parameters=[conversations.CONVERSATION, IF_MATCH, conversations.ETAG],
    request=ActiveLeafBody,
    responses={200: conversations.Conversation},
    examples=[
        OpenApiExample("a version", {"message": example_id("m")}, request_only=True),
        conversations.CONVERSATION_EXAMPLE,
    ],
    extensions={ERROR_CODES: ["run_live"]},
)
feedback_schema = extend_schema(
    operation_id="giveFeedback",
    tags=["messages"],
    summary="Say what you think of a reply",
    description="In place of what you said before; a rating of null takes it back.",
    parameters=[conversations.MESSAGE],
    request=FeedbackBody,
    responses={200: conversations.FeedbackGiven},
    examples=[OpenApiExample("good", {"rating": "up", "reason": "Clear"}, request_only=True)],
    extensions={ERROR_CODES: ["run_live", "text_destroyed"]},
)
run_schema = extend_schema(
    operation_id="getRun",
    tags=["runs"],
    summary="Status, place in the queue, timings",
    parameters=[RUN],
    responses={200: Run},
)
stop_schema = extend_schema(
    operation_id="stopRun",
    tags=["runs"],
    summary="Stop an answer and keep what was written",
    description="200 once it has ended, 202 where that takes over two seconds. Stopping twice, or "
    "an ended run, changes nothing.",
    parameters=[RUN],
    request=None,
    responses={200: Run, 202: Run},
)
models_schema = extend_schema(
    operation_id="listModels",
    tags=["models"],
    summary="The models you may choose",
    responses={200: ModelList},
)


usage_schema = extend_schema(
    operation_id="getUsage",
    tags=["usage"],
    summary="What you have used, what is left, and when it is back",
    description="What was used stands in the ledger: deleting conversations changes nothing, and "
    "temporary ones and API calls count as all others.",
    responses={200: UsageOfUser},
)


class StreamView(APIView):
    """Stands for `GET /v1/runs/{run}/stream`, which `gateway.resume` serves without Django."""

    @extend_schema(
        operation_id="streamRun",
        tags=["runs"],
        summary="The events of a run, from the start or after a cursor",
        description="Whatever dropped, on any web process. A run that ended long ago gives its "
        "whole text as one `snapshot` without id, then `done`.",
        parameters=[RUN, LAST_EVENT_ID],
        responses={(200, "text/event-stream"): STREAM, 204: None},
        examples=[STREAM_EXAMPLE],
        extensions={ERROR_CODES: ["too_many_streams"]},
    )
    def get(self, request: Request, run: str) -> Response:
        raise NotImplementedError


_OF_RUN: Final = {"run": "$response.body#/id"}
_OF_CONVERSATION: Final = {"conversation": "$response.body#/conversation"}
_OF_REPLY: Final = {**_OF_CONVERSATION, "message": "$response.body#/reply_msg"}
LINKS_OF_RUN: Final[dict[str, dict[str, Any]]] = {
    "stream": {"operationId": "streamRun", "parameters": _OF_RUN},
    "look": {"operationId": "getRun", "parameters": _OF_RUN},
    "stop": {"operationId": "stopRun", "parameters": _OF_RUN},
    "read": {"operationId": "getConversation", "parameters": _OF_CONVERSATION},
    "again": {"operationId": "regenerate", "parameters": _OF_REPLY},
    "goOn": {"operationId": "continueReply", "parameters": _OF_REPLY},
    "judge": {
        "operationId": "giveFeedback",
        "parameters": {"message": "$response.body#/reply_msg"},
    },
    "show": {
        "operationId": "switchVersion",
        "parameters": _OF_CONVERSATION,
        "requestBody": {"message": "$response.body#/user_msg"},
    },
}
"""What a client can do next with a run that has just begun."""

STREAM_PATH: Final = "/v1/runs/{run}/stream"
