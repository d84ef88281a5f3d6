"""Whatever is done in the admin leaves an entry that nobody can change, and no text in it."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any
from unittest.mock import Mock

import pytest
from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission
from django.core.exceptions import ImproperlyConfigured
from django.core.management import CommandError, call_command
from django.db import DatabaseError, InternalError, ProgrammingError, connection, transaction
from django.test import Client, RequestFactory
from django.utils import timezone

from accounts import audit
from accounts.admin_base import MAX_ROWS_PER_ACTION, AuditedAdmin
from accounts.models import ApiToken, AuditEntry, Organisation, User
from quotas.models import Plan, PlanModel
from tests.integration.admin_room import (
    ACTION_FIELDS,
    ADD,
    BEFORE_ACTION,
    CHANGE,
    PLANTED,
    ROWS,
    let_go,
    list_url,
    make_conversation,
    make_usage,
    url_of,
)
from tests.people import PASSWORD, Person, client_of, make_person

pytestmark = [
    pytest.mark.django_db,
    pytest.mark.usefixtures("plain_static", "clean_cache"),
]
LABELS = sorted(model._meta.label_lower for model in admin.site._registry)


@pytest.fixture
def boss() -> Person:
    return make_person("boss", is_staff=True, is_superuser=True)


@pytest.fixture
def client(boss: Person) -> Client:
    return client_of(boss)


def entries(**conditions: Any) -> list[AuditEntry]:
    return list(AuditEntry.objects.filter(**conditions).order_by("id"))


def admin_of(label: str) -> Any:
    return next(one for m, one in admin.site._registry.items() if m._meta.label_lower == label)


def request_of(person: Person) -> Any:
    request = RequestFactory().get("/admin/")
    request.user = person.user
    return request


# --- every admin, every action --------------------------------------------------------------------


@pytest.mark.parametrize("label", LABELS)
def test_adding_leaves_an_entry(boss: Person, client: Client, label: str) -> None:
    if not admin_of(label).has_add_permission(request_of(boss)):
        assert client.get(f"{list_url(label)}add/").status_code == 403
        return
    answer = client.post(f"{list_url(label)}add/", ADD[label]())
    assert answer.status_code in (200, 302), answer.content
    entry = entries(action="add", object_type=label)[-1]
    assert entry.object_id
    assert (entry.actor_id, entry.actor_email) == (boss.user.pk, boss.user.email)
    assert entry.address == "127.0.0.1"


@pytest.mark.parametrize("label", LABELS)
def test_changing_leaves_an_entry(boss: Person, client: Client, label: str) -> None:
    row = ROWS[label]()
    if not admin_of(label).has_change_permission(request_of(boss), row):
        assert client.post(url_of(row, "change"), {}).status_code == 403
        return
    answer = client.post(url_of(row, "change"), CHANGE[label](row))
    assert answer.status_code == 302, answer.context["errors"]
    (entry,) = entries(action="change", object_type=label)
    assert entry.object_id == audit.name_of(row)
    assert entry.changes


@pytest.mark.parametrize("label", LABELS)
def test_deleting_leaves_an_entry(boss: Person, client: Client, label: str) -> None:
    row = ROWS[label]()
    name = audit.name_of(row)
    let_go(label, row)
    if not admin_of(label).has_delete_permission(request_of(boss), row):
        assert client.post(url_of(row, "delete"), {"post": "yes"}).status_code == 403
        return
    assert client.post(url_of(row, "delete"), {"post": "yes"}).status_code == 302
    assert not type(row)._base_manager.filter(pk=row.pk).exists()
    assert [one.object_id for one in entries(action="delete", object_type=label)] == [name]


@pytest.mark.parametrize("label", LABELS)
def test_every_action_leaves_an_entry_for_every_row(
    boss: Person, client: Client, label: str, django_capture_on_commit_callbacks: Any
) -> None:
    names = admin_of(label).get_actions(request_of(boss))
    for name in names:
        rows = [ROWS[label](), ROWS[label]()]
        for row in rows:
            let_go(label, row)
            BEFORE_ACTION.get((label, name), lambda row: None)(row)
        chosen = [str(row.pk) for row in rows]
        form = {"action": name, "_selected_action": chosen, "post": "yes"}
        form |= ACTION_FIELDS.get((label, name), dict)()
        with django_capture_on_commit_callbacks():
            assert client.post(list_url(label), form).status_code == 302, name
        action = "delete" if name == "delete_selected" else name
        found = {entry.object_id for entry in entries(action=action, object_type=label)}
        assert found == {audit.name_of(row) for row in rows}, name


def test_rows_that_the_product_writes_have_no_verbs_but_two(boss: Person) -> None:
    request = request_of(boss)
    verbs = {label: set(admin_of(label).get_actions(request)) for label in LABELS}
    read_only = [label for label in LABELS if not admin_of(label).has_change_permission(request)]
    assert {label: verbs[label] for label in read_only if verbs[label]} == {
        "generation.replica": {"move"},
        "generation.run": {"stop"},
    }


def test_an_action_without_a_verb_of_its_own_is_noted_too(boss: Person, client: Client) -> None:
    def rename(modeladmin: Any, request: Any, queryset: Any) -> None:
        queryset.update(retention_days=9)

    organisation = Organisation.objects.create(name="Acme", retention_days=1)
    modeladmin = admin_of("accounts.organisation")
    modeladmin.actions = [rename]
    try:
        form = {"action": "rename", "_selected_action": [str(organisation.pk)]}
        client.post(list_url("accounts.organisation"), form)
    finally:
        del modeladmin.actions
    (entry,) = entries(action="rename")
    assert entry.changes == {"retention_days": [1, 9]}


def test_an_admin_without_audit_is_not_taken() -> None:
    class Forgetful(admin.ModelAdmin):
        pass

    class GetVerbs(AuditedAdmin):
        actions_detail = ("now",)

    with pytest.raises(ImproperlyConfigured, match="AuditedAdmin"):
        admin.site.register(PlanModel, Forgetful)
    with pytest.raises(ImproperlyConfigured, match="AuditedAdmin"):
        admin.site.register(PlanModel)
    with pytest.raises(ImproperlyConfigured, match="actions"):
        admin.site.register(PlanModel, GetVerbs)
    assert not admin.site.is_registered(PlanModel)


def test_an_admin_that_a_package_brings_is_left_out() -> None:
    from django.contrib.sessions.models import Session
    from unfold.admin import ModelAdmin

    admin.site.register(Session, ModelAdmin)
    assert not admin.site.is_registered(Session)


# --- what an entry holds --------------------------------------------------------------------------


def test_values_of_free_text_and_secrets_are_named_and_not_shown(client: Client) -> None:
    person = make_person("row")
    form = {"email": "new@example.org", "name": PLANTED, "preferences": f'{{"a": "{PLANTED}"}}'}
    client.post(url_of(person.user, "change"), form)
    (entry,) = entries(action="change")
    assert entry.changes == {
        "email": [person.user.email, "new@example.org"],
        "name": None,
        "preferences": None,
        "is_active": [True, False],
    }


def test_rights_given_are_named(boss: Person, client: Client) -> None:
    person = make_person("row")
    right = Permission.objects.get(codename="view_run")
    form = {**CHANGE["accounts.user"](person.user), "user_permissions": [str(right.pk)]}
    client.post(url_of(person.user, "change"), form)
    (entry,) = entries(action="change")
    assert entry.changes["user_permissions"] == [[], ["generation.view_run"]]


def test_a_password_set_is_told_and_not_shown(client: Client) -> None:
    person = make_person("row")
    form = {"password1": "another long one", "password2": "another long one"}
    assert client.post(url_of(person.user, "password"), form).status_code == 302
    (entry,) = entries(action="password_set")
    assert entry.object_id == person.user.external_id
    assert entry.changes == {"password": None, "preferences": None}
    person.user.refresh_from_db()
    assert person.user.check_password("another long one")
    assert person.user.password not in json.dumps(entry.changes)


def test_what_is_edited_inline_is_noted_row_by_row(client: Client) -> None:
    plan: Any = ROWS["quotas.plan"]()
    old = plan.models.get()
    client.post(url_of(plan, "change"), CHANGE["quotas.plan"](plan))
    added, changed = (
        entries(action="add", object_type="quotas.planmodel"),
        entries(action="change", object_type="quotas.planmodel"),
    )
    assert [one.changes["model"] for one in added] == [[None, "small"]]
    assert [(one.object_id, one.changes) for one in changed] == [
        (str(old.pk), {"messages": [40, 50]})
    ]
    rows = list(plan.models.order_by("pk"))
    form: dict[str, Any] = CHANGE["quotas.plan"](Plan.objects.get(pk=ROWS["quotas.plan"]().pk))
    form |= {"models-TOTAL_FORMS": "2", "models-INITIAL_FORMS": "2", "models-0-DELETE": "on"}
    for number, row in enumerate(rows):
        form |= {f"models-{number}-id": row.pk, f"models-{number}-plan": plan.pk}
        form |= {f"models-{number}-model": row.model, f"models-{number}-messages": ""}
    client.post(url_of(plan, "change"), form)
    (gone,) = entries(action="delete", object_type="quotas.planmodel")
    assert gone.object_id == str(rows[0].pk)
    assert gone.changes["model"] == ["large", None]


def test_tokens_of_a_user_revoked_at_once_are_noted_one_by_one(client: Client) -> None:
    person = make_person("row")
    form = {"action": "revoke_api_tokens", "_selected_action": [str(person.user.pk)]}
    client.post(list_url("accounts.user"), form)
    (entry,) = entries(action="revoke")
    assert entry.object_id == f"t_{person.token.pk.hex}"
    assert ApiToken.objects.get(pk=person.token.pk).revoked is not None


def test_no_text_is_in_any_entry_or_in_djangos_own_log(client: Client) -> None:
    for label in LABELS:
        if label in ADD:
            client.post(f"{list_url(label)}add/", ADD[label]())
        row = ROWS[label]()
        for page in ("change", "history", "delete"):
            assert PLANTED not in client.get(url_of(row, page)).content.decode(), label
        assert PLANTED not in client.get(list_url(label)).content.decode(), label
    told = json.dumps(list(AuditEntry.objects.values()), default=str)
    assert PLANTED not in told
    assert PASSWORD not in told
    assert LogEntry.objects.count() == 0


# --- refusals and sign-ins ------------------------------------------------------------------------


def test_who_is_refused_is_noted_once_a_minute_and_page() -> None:
    person = make_person("curious")
    client = client_of(person)
    for _ in range(3):
        assert client.get(list_url("accounts.user"), follow=True).status_code == 403
    (entry,) = entries(action="refused")
    assert entry.actor_id == person.user.pk


def test_a_refusal_that_could_not_be_written_is_written_the_next_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client = client_of(make_person("curious", is_staff=True))
    client.raise_request_exception = False
    url = f"{list_url('accounts.user')}a%00b/change/"
    with monkeypatch.context() as patched:
        patched.setattr(AuditEntry.objects, "create", Mock(side_effect=DatabaseError))
        assert client.get(url).status_code == 500
    for _ in range(2):
        assert client.get(url).status_code in (302, 403)
    (entry,) = entries(action="refused")
    assert entry.object_id == "a\N{REPLACEMENT CHARACTER}b"


def test_staff_refused_a_page_are_noted_with_what_they_wanted() -> None:
    helper = make_person("helper", is_staff=True)
    wanted = make_person("wanted").user
    assert client_of(helper).get(url_of(wanted, "change")).status_code == 403
    (entry,) = entries(action="refused")
    assert entry.object_type == "admin:accounts_user_change"
    assert entry.object_id == str(wanted.pk)


def test_sign_ins_of_administrators_are_noted_and_no_others(boss: Person) -> None:
    for person in (boss, make_person("nobody")):
        form = {"username": person.user.email, "login": person.user.email, "password": PASSWORD}
        assert Client().post("/accounts/sign-in/", form).status_code == 302
    assert [entry.object_id for entry in entries(action="signed_in")] == [boss.user.external_id]


# --- the table ------------------------------------------------------------------------------------


@pytest.mark.parametrize("statement", ["UPDATE {} SET action = 'x'", "DELETE FROM {}"])
def test_the_database_refuses_to_change_entries(statement: str) -> None:
    audit.record_of(make_person("one").user, "", "signed_in")
    with (
        pytest.raises((InternalError, ProgrammingError), match="never changed"),
        transaction.atomic(),
        connection.cursor() as cursor,
    ):
        cursor.execute(statement.format(AuditEntry._meta.db_table))
    assert AuditEntry.objects.filter(action="signed_in").count() == 1


def test_old_entries_can_be_forgotten_and_young_ones_cannot() -> None:
    user = make_person("one").user
    for days in (1, 89, 91, 400):
        AuditEntry.objects.create(
            at=timezone.now() - timedelta(days=days),
            actor_id=user.pk,
            actor_email=user.email,
            action=f"days-{days}",
        )
    with pytest.raises(CommandError, match="always kept"):
        call_command("forget_audit", "--older-than-days", "30")
    call_command("forget_audit", "--older-than-days", "365")
    assert {entry.action for entry in entries()} == {"days-1", "days-89", "days-91"}
    with pytest.raises((InternalError, ProgrammingError)), transaction.atomic():
        audit.forget(timezone.now())  # the database keeps the last 90 days even then
    assert len(entries()) == 3


def test_where_no_entry_can_be_written_nothing_is_done(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    person, organisation = make_person("row"), Organisation.objects.create(name="Acme")
    client.raise_request_exception = False

    def fail(*args: Any, **kwargs: Any) -> None:
        raise RuntimeError("no room for an entry")

    monkeypatch.setattr(AuditEntry.objects, "create", fail)
    disable = {"action": "disable", "_selected_action": [str(person.user.pk)]}
    gone = {"action": "delete_selected", "_selected_action": [str(organisation.pk)], "post": "yes"}
    password = {"password1": "another long one", "password2": "another long one"}
    for url, form in [
        (list_url("accounts.user"), disable),
        (list_url("accounts.organisation"), gone),
        (url_of(organisation, "delete"), {"post": "yes"}),
        (url_of(organisation, "change"), CHANGE["accounts.organisation"](organisation)),
        (url_of(person.user, "password"), password),
        (f"{list_url('accounts.organisation')}add/", ADD["accounts.organisation"]()),
    ]:
        assert client.post(url, form).status_code == 500, url
    person.user.refresh_from_db()
    assert person.user.is_active
    assert person.user.check_password(PASSWORD)
    assert list(Organisation.objects.values_list("name", "retention_days")) == [("Acme", None)]


# --- verbs and rights -----------------------------------------------------------------------------


def test_nobody_disables_themselves_and_only_superusers_touch_superusers(boss: Person) -> None:
    helper = make_person("helper", is_staff=True)
    helper.user.user_permissions.set(Permission.objects.filter(content_type__app_label="accounts"))
    for person, target in [(boss, boss), (helper, helper), (helper, boss)]:
        for verb in ("disable", "revoke_api_tokens", "enable"):
            if person is target and verb != "disable":
                continue
            form = {"action": verb, "_selected_action": [str(target.user.pk)]}
            assert client_of(person).post(list_url("accounts.user"), form).status_code == 403
    assert User.objects.filter(is_active=True).count() == 2
    assert ApiToken.objects.filter(revoked__isnull=True).count() == 2
    assert not entries(action="disable")


def test_all_rows_of_a_verb_or_none(boss: Person) -> None:
    helper = make_person("helper", is_staff=True)
    helper.user.user_permissions.set(Permission.objects.filter(content_type__app_label="accounts"))
    other = make_person("other")
    form = {"action": "disable", "_selected_action": [str(other.user.pk), str(boss.user.pk)]}
    assert client_of(helper).post(list_url("accounts.user"), form).status_code == 403
    other.user.refresh_from_db()
    assert other.user.is_active
    assert [entry.action for entry in entries(actor_id=helper.user.pk)][-1] == "refused"


def test_staff_who_may_only_look_see_no_verbs() -> None:
    viewer = make_person("viewer", is_staff=True)
    looks = Permission.objects.filter(codename__startswith="view_")
    viewer.user.user_permissions.set(looks)
    request = request_of(viewer)
    assert [label for label in LABELS if admin_of(label).get_actions(request)] == []
    client = client_of(viewer)
    for label in LABELS:
        answer = client.get(list_url(label))
        assert answer.status_code == 200
        assert 'name="_selected_action"' not in answer.content.decode()
        assert client.get(f"{list_url(label)}add/").status_code == 403


def test_too_many_rows_at_once_are_refused_before_anything_is_done(client: Client) -> None:
    Organisation.objects.bulk_create(
        Organisation(name=f"{n}", retention_days=1) for n in range(MAX_ROWS_PER_ACTION + 1)
    )
    form = {
        "action": "delete_selected",
        "_selected_action": [str(Organisation.objects.all()[0].pk)],
        "select_across": "1",
        "post": "yes",
    }
    answer = client.post(list_url("accounts.organisation"), form, follow=True)
    assert "Nothing was done" in answer.content.decode()
    assert Organisation.objects.count() == MAX_ROWS_PER_ACTION + 1


def test_who_has_written_anything_is_kept_and_the_page_says_what_holds_them(
    client: Client,
) -> None:
    person = make_person("row")
    make_conversation(person.user)
    make_usage(person.user)
    page = client.get(url_of(person.user, "delete")).content.decode()
    assert "conversations" in page
    assert "usage entries" in page
    client.post(url_of(person.user, "delete"), {"post": "yes"})
    assert User.objects.filter(pk=person.user.pk).exists()
    assert not entries(action="delete")
