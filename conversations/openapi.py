"""How `/v1/schema` describes conversations: the shapes that `conversations.serializers` writes.

Nothing here runs when a call is served. Tests hold real answers against these shapes.
"""

from __future__ import annotations

from typing import Any, Final

from drf_spectacular.extensions import OpenApiSerializerFieldExtension
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.utils import (
    Direction,
    OpenApiExample,
    OpenApiParameter,
    extend_schema,
    extend_schema_view,
)
from rest_framework import serializers

from accounts.openapi import ERROR_CODES, IdChars, example_id, id_in_path
from conversations.content import ROLES
from conversations.models import RATINGS
from conversations.serializers import CreateBody, ListQuery

CONVERSATION: Final = id_in_path("conversation", "c")
MESSAGE: Final = id_in_path("message", "m")
ETAG: Final = OpenApiParameter(
    "ETag",
    {"type": "string"},
    OpenApiParameter.HEADER,
    response=[200],
    description="For `If-Match` and `If-None-Match`.",
)


class TextPart(serializers.Serializer[Any]):
    """A part of a message's content."""

    type = serializers.ChoiceField(choices=["text"])
    text = serializers.CharField(allow_blank=True)


class Versions(serializers.Serializer[Any]):
    """Where a message stands among its versions; `index` counts from 1, oldest first."""

    index = serializers.IntegerField(min_value=1)
    count = serializers.IntegerField(min_value=2)
    previous = IdChars("m", allow_null=True)
    next = IdChars("m", allow_null=True)


class Feedback(serializers.Serializer[Any]):
    """What you think of a reply."""

    rating = serializers.ChoiceField(choices=RATINGS)
    reason = serializers.CharField(allow_blank=True)


class FeedbackGiven(serializers.Serializer[Any]):
    """What you think of a reply now; `rating` is null where you took it back."""

    rating = serializers.ChoiceField(choices=RATINGS, allow_null=True)
    reason = serializers.CharField(allow_blank=True)


class Conversation(serializers.Serializer[Any]):
    """A conversation as a list shows it."""

    id = IdChars("c")
    title = serializers.CharField(allow_blank=True, help_text='"" where there is none yet.')
    active_leaf = IdChars("m", allow_null=True, help_text="The thread shown ends here.")
    last_activity = serializers.DateTimeField()
    created = serializers.DateTimeField()


class ConversationList(serializers.Serializer[Any]):
    """One page, newest activity first."""

    items = Conversation(many=True)
    next_cursor = serializers.CharField(allow_null=True, help_text="null on the last page.")


class MessageBase(serializers.Serializer[Any]):
    """A message of the active branch."""

    id = IdChars("m")
    parent_id = IdChars("m", allow_null=True)
    role = serializers.ChoiceField(choices=ROLES)
    content = TextPart(many=True)
    readable = serializers.BooleanField(
        help_text="false, with an empty content, where the text is lost for good."
    )
    created = serializers.DateTimeField()
    versions = Versions(allow_null=True, help_text="null where there is one version only.")


class _Content(OpenApiSerializerFieldExtension):  # type: ignore[no-untyped-call]
    """What a send takes as content."""

    target_class = "generation.serializers.ContentField"

    def map_serializer_field(self, auto_schema: AutoSchema, direction: Direction) -> dict[str, Any]:
        part = auto_schema.resolve_serializer(TextPart, direction).ref
        parts = {"type": "array", "items": part, "minItems": 1, "maxItems": 32}
        return {"oneOf": [{"type": "string", "minLength": 1}, parts]}


CONVERSATION_EXAMPLE: Final = OpenApiExample(
    "conversation",
    {
        "id": example_id("c"),
        "title": "The first rule of composition",
        "active_leaf": example_id("m"),
        "last_activity": "2026-11-29T19:26:34.021400Z",
        "created": "2026-11-29T19:20:11.400000Z",
    },
    response_only=True,
)

conversations_schema = extend_schema_view(
    get=extend_schema(
        operation_id="listConversations",
        tags=["conversations"],
        summary="List your conversations, newest activity first",
        description="A walk through the pages meets each conversation once, also while some move "
        "to the top. Temporary ones are in no list.",
        parameters=[ListQuery],
        responses={200: ConversationList},
    ),
    post=extend_schema(
        operation_id="createConversation",
        tags=["conversations"],
        summary="Make an empty conversation",
        description="A temporary one is in no list and is gone after 24 hours.",
        request=CreateBody,
        responses={201: Conversation},
        examples=[CONVERSATION_EXAMPLE],
        extensions={ERROR_CODES: ["text_destroyed"]},
    ),
)
