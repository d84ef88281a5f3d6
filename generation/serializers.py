"""What send, regenerate and continue accept."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from rest_framework import serializers

from accounts.errors import InvalidRequest
from accounts.serializers import IdField, StrictCharField, StrictSerializer
from conversations.content import InvalidContent, TextPart, checked_content
from generation.continuation import ContinueRequest
from generation.regenerate import RegenerateRequest
from generation.send import ACTIVE_LEAF, SendRequest

KEY_CHARACTERS = 200


class ContentField(serializers.Field[list[TextPart], Any, list[TextPart], Any]):
    """A text, or a list of text parts; checked by `conversations.content`."""

    def to_internal_value(self, data: Any) -> list[TextPart]:
        try:
            return checked_content(data, max_bytes=settings.MAX_MESSAGE_BYTES)
        except InvalidContent as refusal:
            raise serializers.ValidationError(str(refusal)) from None


class SendSerializer(StrictSerializer):
    """The body of a send. No `parent_id`: after the active leaf; null: a new first message."""

    content = ContentField()
    parent_id = IdField("m", required=False, allow_null=True)
    model = StrictCharField(required=False, allow_null=True, max_length=64)


def send_request(conversation: str | None, data: Any, key: str | None) -> SendRequest:
    """The request as `send` takes it. Raises ValidationError, or InvalidRequest for the key."""
    body = SendSerializer(data=data)
    body.is_valid(raise_exception=True)
    values = body.validated_data
    return SendRequest(
        conversation=conversation,
        parent_id=values.get("parent_id", ACTIVE_LEAF),
        parts=values["content"],
        model=values.get("model"),
        key=_checked_key(key),
    )


class RegenerateSerializer(StrictSerializer):
    """The body of a regenerate. No `model`: the one that answered before."""

    model = StrictCharField(required=False, allow_null=True, max_length=64)


def regenerate_request(
    conversation: str, message: str, data: Any, key: str | None
) -> RegenerateRequest:
    """The request as `regenerate` takes it. Raises ValidationError, InvalidRequest for the key."""
    body = RegenerateSerializer(data=data)
    body.is_valid(raise_exception=True)
    model = body.validated_data.get("model")
    return RegenerateRequest(conversation, message, model, _checked_key(key))


def continue_request(
    conversation: str, message: str, data: Any, key: str | None
) -> ContinueRequest:
    """The request as `continue_reply` takes it: it has no fields. Raises the same."""
    StrictSerializer(data=data).is_valid(raise_exception=True)
    return ContinueRequest(conversation, message, _checked_key(key))


def _checked_key(key: str | None) -> str | None:
    if key is None:
        return None
    if not 1 <= len(key) <= KEY_CHARACTERS or not (key.isascii() and key.isprintable()):
        raise InvalidRequest(
            f"Idempotency-Key must be 1 to {KEY_CHARACTERS} printable ASCII characters.",
            param="Idempotency-Key",
        )
    return key
