"""Fields that refuse instead of converting."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from rest_framework import serializers

from accounts.ids import external_id, new_id
from accounts.serializers import (
    IdField,
    StrictBooleanField,
    StrictCharField,
    StrictIntegerField,
    StrictSerializer,
)


class Form(StrictSerializer):
    text = StrictCharField(required=False)
    number = StrictIntegerField(required=False, min_value=1)
    flag = StrictBooleanField(required=False)
    id = IdField("m", required=False)
    made = serializers.CharField(read_only=True)


def problems(**data: Any) -> Any:
    form = Form(data=data)
    form.is_valid()
    return form.errors


def test_right_values_pass_unchanged() -> None:
    message = new_id()
    data = {"text": " a\r\n\u200d ", "number": 5, "flag": False, "id": external_id("m", message)}
    form = Form(data=data)
    assert form.is_valid(), form.errors
    assert form.validated_data == {**data, "id": message}
    assert form.data == data


@pytest.mark.parametrize("value", [5, 5.0, True, ["a"], {"a": 1}, "a\x00", "\ud83d", "", None])
def test_text_is_text(value: object) -> None:
    assert set(problems(text=value)) == {"text"}


@pytest.mark.parametrize("value", ["5", 5.0, True, None, 0, [5]])
def test_a_number_is_a_number(value: object) -> None:
    assert set(problems(number=value)) == {"number"}


@pytest.mark.parametrize("value", ["true", 1, 0, "", None, []])
def test_a_flag_is_a_flag(value: object) -> None:
    assert set(problems(flag=value)) == {"flag"}


ID = uuid.UUID("0193a0c0-0000-7000-8000-000000000001")


@pytest.mark.parametrize(
    "value",
    [external_id("c", ID), str(ID), ID.hex, f"m_{ID.hex.upper()}", f"m_{ID.hex}\n", "m_", 5, None],
)
def test_an_id_of_another_kind_is_none(value: object) -> None:
    assert set(problems(id=value)) == {"id"}


@pytest.mark.parametrize("name", ["txet", "made", "", "__class__"])
def test_unknown_and_read_only_fields_are_refused_by_name(name: str) -> None:
    assert set(problems(**{"text": "a", name: "b"})) == {name}
