"""Conversations and messages as the API writes and reads them."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from rest_framework import serializers

from accounts.ids import external_id
from accounts.serializers import StrictBooleanField, StrictCharField, StrictSerializer, iso_time
from conversations.list_cursor import CURSOR_CHARS
from conversations.models import RATINGS
from conversations.selectors import ConversationItem, FeedbackView, MessageView
from conversations.titles import MAX_TITLE_CHARS
from conversations.tree import Versions

MAX_PAGE = 100
MAX_REASON_CHARS = 2_000
DEFAULT_LIST_PAGE = 30
DEFAULT_THREAD_PAGE = 50


class ListQuery(StrictSerializer):
    """`GET /v1/conversations?limit=…&cursor=…`."""

    limit = serializers.IntegerField(default=DEFAULT_LIST_PAGE, min_value=1, max_value=MAX_PAGE)
    cursor = StrictCharField(default=None, max_length=CURSOR_CHARS)


class ThreadQuery(StrictSerializer):
    """`GET /v1/conversations/{c}?limit=…&before=…`.

    `before` is left to the door: any id that is not in the conversation is the same 404.
    """

    limit = serializers.IntegerField(default=DEFAULT_THREAD_PAGE, min_value=1, max_value=MAX_PAGE)
    before = StrictCharField(default=None, max_length=64)


class CreateBody(StrictSerializer):
    """`POST /v1/conversations`."""

    title = StrictCharField(default="", allow_blank=True, max_length=MAX_TITLE_CHARS)
    temporary = StrictBooleanField(default=False)


class RenameBody(StrictSerializer):
    """`PATCH /v1/conversations/{c}`."""

    title = StrictCharField(max_length=MAX_TITLE_CHARS)


class ActiveLeafBody(StrictSerializer):
    """`PUT /v1/conversations/{c}/active_leaf`. `message` is left to the door, like `before`."""

    message = StrictCharField(max_length=64)


class FeedbackBody(StrictSerializer):
    """`POST /v1/messages/{m}/feedback`; null takes the feedback back, and then has no reason."""

    rating = serializers.ChoiceField(choices=RATINGS, allow_null=True)
    reason = StrictCharField(default="", allow_blank=True, max_length=MAX_REASON_CHARS)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if attrs["rating"] is None and attrs["reason"]:
            raise serializers.ValidationError({"reason": ["There is no rating it could explain."]})
        return attrs


def feedback_item(feedback: FeedbackView | None) -> dict[str, str] | None:
    """`{"rating", "reason"}`; None where there is no feedback."""
    if feedback is None:
        return None
    return {"rating": feedback.rating, "reason": feedback.reason}


def conversation_item(item: ConversationItem) -> dict[str, object]:
    """`{"id", "title", "active_leaf", "last_activity", "created"}`."""
    return {
        "id": external_id("c", item.id),
        "title": item.title,
        "active_leaf": _message_id(item.active_leaf_id),
        "last_activity": iso_time(item.last_activity),
        "created": iso_time(item.created),
    }


def message_item(message: MessageView) -> dict[str, object]:
    """`{"id", "parent_id", "role", "content", "readable", "created", "versions"}`."""
    return {
        "id": external_id("m", message.id),
        "parent_id": _message_id(message.parent_id),
        "role": message.role,
        "content": list(message.content),
        "readable": message.readable,
        "created": iso_time(message.created),
        "versions": versions_item(message.versions),
    }


def versions_item(versions: Versions) -> dict[str, object] | None:
    """`{"index", "count", "previous", "next"}`, index from 1; None where there is one version."""
    if versions.count == 1:
        return None
    return {
        "index": versions.index,
        "count": versions.count,
        "previous": _message_id(versions.previous),
        "next": _message_id(versions.next),
    }


def _message_id(row_id: UUID | None) -> str | None:
    return external_id("m", row_id) if row_id else None
