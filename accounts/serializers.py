"""Serializers that refuse what they do not know, instead of ignoring or converting it."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from rest_framework import serializers

from accounts.ids import InvalidId, Prefix, external_id, parse_id
from accounts.parsers import has_lone_surrogate


def iso_time(moment: datetime) -> str:
    """ISO 8601 in UTC, always with six digits of microseconds: sorts as text."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


class StrictSerializer(serializers.Serializer[Any]):
    """Refuses unknown fields: a typing mistake must not silently do something else."""

    def to_internal_value(self, data: Any) -> Any:
        if isinstance(data, Mapping):
            self._refuse_unknown(data)
        return super().to_internal_value(data)

    def _refuse_unknown(self, data: Mapping[str, Any]) -> None:
        known = {name for name, field in self.fields.items() if not field.read_only}
        for name in data:
            if name not in known:
                raise serializers.ValidationError({name: ["There is no such field."]})


class StrictCharField(serializers.CharField):
    """Text exactly as sent: no other type, no trimming, no NUL, no lone surrogate."""

    default_error_messages = {
        "not_text": "This must be text.",
        "nul": "This must not contain the character NUL (U+0000).",
        "surrogate": "This contains half of a character (a lone surrogate).",
    }

    def __init__(self, **kwargs: Any) -> None:
        kwargs.setdefault("trim_whitespace", False)
        super().__init__(**kwargs)

    def to_internal_value(self, data: Any) -> str:
        if not isinstance(data, str):
            self.fail("not_text")
        if "\x00" in data:
            self.fail("nul")
        if has_lone_surrogate(data):
            self.fail("surrogate")
        return super().to_internal_value(data)


class StrictIntegerField(serializers.IntegerField):
    """A JSON integer; not "5", not 5.0, not true."""

    def to_internal_value(self, data: Any) -> int:
        if isinstance(data, bool) or not isinstance(data, int):
            self.fail("invalid")
        return super().to_internal_value(data)


class StrictBooleanField(serializers.BooleanField):
    """true or false; not "yes", not 1."""

    default_error_messages = {"invalid": "This must be true or false."}

    def to_internal_value(self, data: Any) -> bool:
        if not isinstance(data, bool):
            self.fail("invalid")
        return data


class IdField(serializers.Field[uuid.UUID, str, str, Any]):
    """An external id of one kind (`IdField("c")`); a UUID inside."""

    default_error_messages = {"wrong_kind": "This must be an id that begins with {prefix}_."}

    def __init__(self, prefix: Prefix, **kwargs: Any) -> None:
        self.prefix = prefix
        super().__init__(**kwargs)

    def to_internal_value(self, data: Any) -> uuid.UUID:
        try:
            return parse_id(self.prefix, data)
        except InvalidId:
            self.fail("wrong_kind", prefix=self.prefix)

    def to_representation(self, value: uuid.UUID) -> str:
        return external_id(self.prefix, value)
