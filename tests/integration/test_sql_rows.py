"""Rows read and written by hand are the objects that the ORM gives."""

from __future__ import annotations

import pytest
from django.db import models

from accounts import sql, tokens
from accounts.models import ApiToken, User
from conversations.models import Conversation, Message
from generation.models import Model, Pool, Run
from tests.integration.tree_room import ask, empty_queues
from tests.people import make_person

pytestmark = pytest.mark.django_db


def read(model: type[models.Model], row: models.Model) -> models.Model:
    table, key = model._meta.db_table, model._meta.pk.column
    found = sql.rows(
        f"SELECT {sql.columns(model, 'own')} FROM {table} own WHERE own.{key} = %(id)s",  # noqa: S608
        {"id": row.pk},
    )
    return sql.instance(model, found[0])


def assert_same(model: type[models.Model], row: models.Model) -> None:
    stored, by_hand = model._default_manager.get(pk=row.pk), read(model, row)
    for field in model._meta.concrete_fields:
        one, other = (getattr(each, field.attname) for each in (stored, by_hand))
        assert (bytes(one) if isinstance(one, memoryview) else one) == other, field.name
        assert isinstance(other, type(one)) or isinstance(one, memoryview), field.name


def test_every_column_comes_as_the_orm_gives_it() -> None:
    user = make_person().user
    user.preferences = {"theme": "dark", "list": [1, None]}
    user.save()
    token, _ = tokens.create(user, "laptop", scopes=["read"])
    with empty_queues():
        run = ask(user)
    Run.objects.filter(pk=run.pk).update(notices=[{"code": "smaller_model"}], cost="0.25")
    rows: list[tuple[type[models.Model], models.Model]] = [
        (User, user),
        (ApiToken, token),
        (Run, run),
        (Conversation, run.conversation),
        (Message, run.parent),
        (Pool, run.pool),
        (Model, run.pool.model),
    ]
    for model, row in rows:
        assert_same(model, row)


def test_what_was_inserted_by_hand_is_saved_as_it_is() -> None:
    """`ask` inserts its message and its run so: with no column left to a default."""
    user = make_person().user
    with empty_queues():
        run = ask(user)
    stored = Run.objects.get(pk=run.pk)
    for field in Run._meta.concrete_fields:
        assert getattr(stored, field.attname) == getattr(run, field.attname), field.name
    assert not run._state.adding


def test_a_column_that_is_not_loaded_is_read_when_it_is_asked_for() -> None:
    with empty_queues():
        run = ask(make_person().user)
    columns = sql.columns(Message, "own", but="content")
    found = sql.rows(
        f"SELECT {columns} FROM conversations_message own WHERE own.id = %(id)s",  # noqa: S608
        {"id": run.parent_id},
    )
    message = sql.instance(Message, found[0], but="content")
    assert message.get_deferred_fields() == {"content"}
    assert bytes(message.content) == bytes(Message.objects.get(pk=run.parent_id).content)
