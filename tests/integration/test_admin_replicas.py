"""Moving a replica from the admin: what the row is told, by whom, and the entry of it."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib import admin
from django.contrib.auth.models import Permission
from django.contrib.messages import get_messages
from django.test import Client, RequestFactory

from accounts.models import AuditEntry
from generation.admin import HOME, ReplicaAdmin
from generation.models import Pool, Replica
from tests.integration.admin_room import make_pool
from tests.people import client_of, make_person

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("plain_static", "clean_cache")]
LIST = "/admin/generation/replica/"


@pytest.fixture
def pool() -> Pool:
    return make_pool()


@pytest.fixture
def replica() -> Replica:
    return Replica.objects.create(name="one", pool=make_pool())


def staff(*permissions: str) -> Client:
    person = make_person("mover", is_staff=True)
    person.user.user_permissions.set(
        Permission.objects.filter(codename__in=[f"{name}_replica" for name in permissions])
    )
    return client_of(person)


def move(client: Client, replica: Replica, to: str) -> Any:
    form = {"action": "move", "_selected_action": [replica.pk], "pool": to}
    return client.post(LIST, form)


def said(answer: Any) -> list[str]:
    return [str(message) for message in get_messages(answer.wsgi_request)]


def test_a_replica_is_wanted_elsewhere_and_back(replica: Replica, pool: Pool) -> None:
    client = staff("view", "change")
    assert said(move(client, replica, pool.slug)) == ["Asked to move: 1."]
    replica.refresh_from_db()
    assert (replica.pool_id != pool.slug, replica.wanted_pool_id) == (True, pool.slug)
    (entry,) = AuditEntry.objects.filter(action="move")
    assert (entry.object_type, entry.object_id) == ("generation.replica", "one")
    assert entry.changes == {"wanted_pool": [None, pool.slug]}
    assert said(move(client, replica, pool.slug))[-1] == "Asked to move: 0."
    assert said(move(client, replica, HOME))[-1] == "Asked to move: 1."
    replica.refresh_from_db()
    assert replica.wanted_pool_id is None
    assert AuditEntry.objects.filter(action="move").count() == 2


@pytest.mark.parametrize("to", ["", "nowhere"])
def test_a_pool_must_be_chosen(replica: Replica, to: str) -> None:
    told = "No action selected." if to else "Choose the pool to move to."
    assert told in said(move(staff("view", "change"), replica, to))
    replica.refresh_from_db()
    assert replica.wanted_pool_id is None
    assert not AuditEntry.objects.filter(action="move").exists()


def test_one_that_is_on_its_way_home_is_told_to_stay(replica: Replica, pool: Pool) -> None:
    """Its row names the pool that it has not left yet; nothing says where its home is."""
    client = staff("view", "change")
    move(client, replica, pool.slug)
    Replica.objects.filter(pk=replica.pk).update(pool=pool)
    assert said(move(client, replica, HOME))[-1] == "Asked to move: 1."
    assert said(move(client, replica, pool.slug))[-1] == "Asked to move: 1."
    replica.refresh_from_db()
    assert (replica.pool_id, replica.wanted_pool_id) == (pool.slug, pool.slug)
    assert said(move(client, replica, pool.slug))[-1] == "Asked to move: 0."


def test_who_may_only_look_sees_no_verb(replica: Replica, pool: Pool) -> None:
    client = staff("view")
    assert b'value="move"' not in client.get(LIST).content
    move(client, replica, pool.slug)
    replica.refresh_from_db()
    assert replica.wanted_pool_id is None


def test_of_two_administrators_one_moves_it(replica: Replica, pool: Pool) -> None:
    """The second has read the row before the first one's order: hers does not take its place."""
    seen = Replica.objects.get(pk=replica.pk)
    assert said(move(staff("view", "change"), replica, pool.slug)) == ["Asked to move: 1."]
    one_row = ReplicaAdmin.move.__wrapped__
    request = RequestFactory().post(LIST, {"pool": make_pool().slug})
    assert one_row(admin.site._registry[Replica], request, seen) is False
    replica.refresh_from_db()
    assert replica.wanted_pool_id == pool.slug
