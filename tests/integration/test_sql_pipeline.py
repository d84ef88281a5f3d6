"""Statements that do not wait for one another: what they see, and what becomes of an error."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import Group
from django.db import IntegrityError, connection, transaction

from accounts import sql

pytestmark = pytest.mark.django_db(transaction=True)
NAME = "SELECT name FROM auth_group WHERE name = %(name)s"


def test_what_comes_later_sees_what_was_executed_before() -> None:
    with transaction.atomic(), sql.pipeline():
        before = sql.later(NAME, {"name": "a"})
        sql.run("INSERT INTO auth_group (name) VALUES (%(name)s)", {"name": "a"})
        after = sql.later(NAME, {"name": "a"})
        assert (before(), after()) == ([], [("a",)])
    assert Group.objects.filter(name="a").exists()


@transaction.atomic
@sql.pipeline()
def _add(*names: str, then: str = "") -> None:
    for name in names:
        sql.run("INSERT INTO auth_group (name) VALUES (%(name)s)", {"name": name})
    if then:
        sql.rows(NAME, {"name": then})


@pytest.mark.parametrize("then", ["", "there"])
def test_an_error_of_one_that_nobody_waited_for_takes_all_back(then: str) -> None:
    """Heard of by whoever wants rows behind it, at the latest at the end."""
    Group.objects.create(name="there")
    with pytest.raises(IntegrityError):
        _add("new", "there", then=then)
    assert not Group.objects.filter(name="new").exists()
    assert not connection.needs_rollback
