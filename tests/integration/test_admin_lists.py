"""The admin's lists stay cheap however many rows there are, and find things by their ids."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode

import pytest
from django.contrib import admin
from django.contrib.auth.models import Permission
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from accounts.admin_base import COUNTED_ROWS
from accounts.admin_filters import first_id_at
from accounts.ids import new_id
from accounts.models import AuditEntry
from conversations.models import Conversation, Message
from generation.models import Pool, Run
from tests.integration.admin_room import (
    ROWS,
    list_url,
    make_conversation,
    make_feedback,
    make_pool,
    make_run,
    make_usage,
    url_of,
)
from tests.integration.tree_room import ask, claim, empty_queues
from tests.people import Person, client_of, make_person

pytestmark = [
    pytest.mark.django_db,
    pytest.mark.usefixtures("plain_static", "clean_cache"),
]
RUNS = list_url("generation.run")
LABELS = sorted(model._meta.label_lower for model in admin.site._registry)


@pytest.fixture
def boss() -> Person:
    return make_person("boss", is_staff=True, is_superuser=True)


@pytest.fixture
def client(boss: Person) -> Client:
    return client_of(boss)


def found(client: Client, label: str, **query: str) -> set[Any]:
    """The keys of the rows that a list shows."""
    page = client.get(f"{list_url(label)}?{urlencode(query)}")
    assert page.status_code == 200
    return {row.pk for row in page.context["cl"].result_list}


# --- search and filters ---------------------------------------------------------------------------


def test_runs_are_found_by_every_id_and_the_owners_address(client: Client) -> None:
    owner = make_person("owner").user
    run, other = make_run(owner), make_run(make_person("other").user)
    for term in (
        run.external_id,
        f" {run.external_id} ",
        str(run.pk),
        f"c_{run.conversation_id.hex}",
        owner.external_id,
        owner.email.upper(),
    ):
        assert found(client, "generation.run", q=term) == {run.pk}, term
    for term in ("g_nothing", f"g_{new_id().hex}", "nobody@example.org", "row", f"m_{run.pk.hex}"):
        assert found(client, "generation.run", q=term) == set(), term
    assert found(client, "generation.run") == {run.pk, other.pk}


def test_other_lists_are_searched_by_ids_too(client: Client) -> None:
    owner = make_person("owner").user
    conversation, feedback, usage = (
        make_conversation(owner),
        make_feedback(owner),
        make_usage(owner),
    )
    cases = {
        "conversations.conversation": (f"c_{conversation.pk.hex}", conversation.pk),
        "conversations.feedback": (f"m_{feedback.message_id.hex}", feedback.pk),
        "quotas.usageentry": (f"g_{usage.run_id.hex}", usage.pk),
        "accounts.user": (owner.external_id, owner.pk),
    }
    for label, (term, pk) in cases.items():
        ROWS[label]()  # somebody else's
        assert found(client, label, q=term) == {pk}, label
        if label != "accounts.user":
            assert pk in found(client, label, q=owner.email)


def test_the_audit_is_searched_by_actor_and_object(boss: Person, client: Client) -> None:
    person = make_person("row")
    form = {"action": "disable", "_selected_action": [str(person.user.pk)]}
    client.post(list_url("accounts.user"), form)
    entry = AuditEntry.objects.get(action="disable")
    assert found(client, "accounts.auditentry", q=person.user.external_id) == {entry.pk}
    assert entry.pk in found(client, "accounts.auditentry", q=boss.user.email)
    assert found(client, "accounts.auditentry", action="disable") == {entry.pk}
    assert found(client, "accounts.auditentry", q="somebody") == set()


def test_filters_of_runs(client: Client) -> None:
    run = make_run(make_person("owner").user)
    ended = make_run(make_person("other").user)
    Run.objects.filter(pk=ended.pk).update(
        status="completed", finish="stop", last_seq=3, finished_at=ended.queued_at
    )
    assert found(client, "generation.run", status="queued") == {run.pk}
    assert found(client, "generation.run", finish="stop") == {ended.pk}
    assert found(client, "generation.run", model=run.model_used) == {run.pk}
    assert found(client, "generation.run", pool=run.pool_id) == {run.pk}
    assert found(client, "generation.run", since="hour") == {run.pk, ended.pk}
    assert found(client, "generation.run", since="nonsense") == {run.pk, ended.pk}
    assert found(client, "generation.run", status="\0") == set()


def test_made_since_is_read_off_the_id() -> None:
    now = timezone.now()
    before, after = first_id_at(now), first_id_at(now + timedelta(seconds=60))
    assert before <= new_id() < after
    assert before.version == 7


def test_filters_of_conversations(client: Client) -> None:
    owner = make_person("owner").user
    rows = {name: make_conversation(owner) for name in ("plain", "temporary", "deleted", "purged")}
    now = rows["plain"].created
    Conversation.objects.filter(pk=rows["temporary"].pk).update(temporary_until=now)
    Conversation.objects.filter(pk=rows["deleted"].pk).update(deleted_at=now)
    Conversation.objects.filter(pk=rows["purged"].pk).update(deleted_at=now, purged_at=now)
    for state in ("temporary", "deleted", "purged"):
        assert found(client, "conversations.conversation", state=state) == {rows[state].pk}


# --- cost -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("label", LABELS)
def test_a_list_takes_as_many_queries_for_one_row_as_for_many(client: Client, label: str) -> None:
    def more() -> None:
        if label == "generation.replica":
            make_pool().replicas.create(name=f"replica-{new_id()}")
        else:
            ROWS[label]()

    more()
    client.get(list_url(label))  # content types, permissions
    with CaptureQueriesContext(
        connection,
    ) as few:
        client.get(list_url(label))
    for _ in range(3):
        more()
    with CaptureQueriesContext(connection) as many:
        client.get(list_url(label))
    assert len(many) == len(few) <= 14, [query["sql"][:120] for query in many]
    assert not any("OFFSET" in query["sql"] for query in many)


@pytest.fixture
def many_runs() -> tuple[Person, Pool]:
    """100,000 ended runs of one owner, and their statistics."""
    owner = make_person("busy")
    message, pool = Message.objects.get(conversation=make_conversation(owner.user)), make_pool()
    with connection.cursor() as cursor:
        # No foreign key is asked 100,000 times; all the rows name the same others.
        cursor.execute("SET LOCAL session_replication_role = 'replica'")
        cursor.execute(
            """
            INSERT INTO generation_run (id, owner_id, conversation_id, parent_id, reply_id,
                model_asked, model_used, pool_id, replica, status, finish, error_code, epoch,
                opening_seq, notices, last_seq, answer_tokens, prompt_tokens, cached_tokens,
                output_tokens, queued_at, finished_at)
            SELECT uuidv7(make_interval(secs => n - 100000)), %s, %s, %s, gen_random_uuid(),
                %s, %s, %s, 'r',
                CASE n %% 50 WHEN 0 THEN 'failed' ELSE 'completed' END,
                CASE n %% 50 WHEN 0 THEN 'error' ELSE 'stop' END,
                '', 1, 1, '[]', 9, 1024, 10, 0, 5, now(), now()
            FROM generate_series(1, 100000) n
            """,
            [
                owner.user.pk,
                message.conversation_id,
                message.pk,
                pool.model_id,
                pool.model_id,
                pool.pk,
            ],
        )
        cursor.execute("ANALYZE generation_run")
        cursor.execute("SET LOCAL session_replication_role = 'origin'")
    return owner, pool


def test_the_list_of_100_000_runs_reads_no_table_from_end_to_end(
    client: Client, many_runs: tuple[Person, Pool]
) -> None:
    owner, pool = many_runs
    rare = make_run(make_person("quiet").user)
    for query in (
        "",
        "p=3",
        "status=failed",
        "status=blocked",
        "finish=moderation",
        f"model={rare.model_used}",
        f"pool={pool.pk}",
        "since=hour",
        f"q={owner.user.email}",
        f"q={rare.external_id}",
        f"q=c_{rare.conversation_id.hex}",
        f"q={rare.owner.external_id}",
    ):
        with CaptureQueriesContext(connection) as queries:
            page = client.get(f"{RUNS}?{query}")
        assert page.status_code == 200
        assert len(page.context["cl"].result_list) <= 50
        assert page.context["cl"].result_count <= COUNTED_ROWS
        ours = [one["sql"] for one in queries if 'FROM "generation_run"' in one["sql"]]
        assert ours, query
        for statement in ours:
            plan = explain(statement)
            assert rows_read(plan) <= COUNTED_ROWS * 2, (query, statement, plan)


def explain(statement: str) -> dict[str, Any]:
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}")
        (answer,) = cursor.fetchone()
    plan = answer if isinstance(answer, list) else json.loads(answer)
    found: dict[str, Any] = plan[0]["Plan"]
    return found


def rows_read(plan: dict[str, Any]) -> float:
    """What the scans of runs gave and threw away: a scan that a LIMIT ends early counts as such."""
    own = 0.0
    if plan.get("Relation Name") == "generation_run":
        own = (plan["Actual Rows"] + plan.get("Rows Removed by Filter", 0)) * plan["Actual Loops"]
    return own + sum(rows_read(part) for part in plan.get("Plans", ()))


# --- runs -----------------------------------------------------------------------------------------


def test_a_live_run_is_stopped_by_the_products_own_door(
    client: Client, django_capture_on_commit_callbacks: Any
) -> None:
    with empty_queues():
        owner = make_person("owner").user
        queued, running = ask(owner), ask(owner)
        claim(running)
        ended = make_run(owner)
        Run.objects.filter(pk=ended.pk).update(
            status="completed", finish="stop", last_seq=3, finished_at=ended.queued_at
        )
        chosen = [str(run.pk) for run in (queued, running, ended)]
        with django_capture_on_commit_callbacks(execute=True):
            client.post(RUNS, {"action": "stop", "_selected_action": chosen})
        for run in (queued, running, ended):
            run.refresh_from_db()
        assert (queued.status, queued.finish) == ("stopped", "user_stopped")
        assert running.status == "running"
        assert running.stop_requested_at is not None
        assert ended.stop_requested_at is None
        stopped = AuditEntry.objects.filter(action="stop").values_list("object_id", flat=True)
        assert set(stopped) == {queued.external_id, running.external_id}


def test_stopping_needs_the_right_to_change_runs() -> None:
    viewer = make_person("viewer", is_staff=True)
    viewer.user.user_permissions.set(Permission.objects.filter(codename="view_run"))
    run = make_run(make_person("owner").user)
    client_of(viewer).post(RUNS, {"action": "stop", "_selected_action": [str(run.pk)]})
    run.refresh_from_db()
    assert run.stop_requested_at is None
    viewer.user.user_permissions.add(Permission.objects.get(codename="change_run"))
    assert 'value="stop"' in client_of(viewer).get(RUNS).content.decode()


def test_a_run_shows_its_times_tokens_and_cost(client: Client, settings: Any) -> None:
    settings.CURRENCY = "EUR"
    run = make_run(make_person("owner").user)
    Run.objects.filter(pk=run.pk).update(
        status="completed",
        finish="stop",
        last_seq=3,
        prompt_tokens=120,
        output_tokens=34,
        cost="0.0000384",
        queued_at="2026-11-29T10:00:00Z",
        claimed_at="2026-11-29T10:00:00.250Z",
        first_text_at="2026-11-29T10:00:01.5Z",
        finished_at="2026-11-29T10:00:12.4Z",
    )
    for page in (RUNS, url_of(run, "change")):
        html = client.get(page).content.decode()
        for shown in ("250 ms", "1.5 s", "12.4 s", "120", "34", "0.000038 EUR", run.external_id):
            assert shown in html, (page, shown)


# --- engine profiles ------------------------------------------------------------------------------


def test_engine_profiles_show_no_key_and_no_path(client: Client, settings: Any) -> None:
    profile = {
        "kind": "openai",
        "url": "http://gpu-1.internal:8000/very/secret/path",
        "api_key": "sk-do-not-show",
        "model": "large",
        "context_tokens": 8192,
        "slots": 6,
        "options": {"temperature_cap": "option-value"},
    }
    local = {"kind": "vllm", "url": "unix:///run/where/it.sock", "serve": {"model": "/weights"}}
    settings.ENGINE_PROFILES = json.dumps({"good": profile, "local": local})
    used, lost = make_pool(), make_pool()
    Pool.objects.filter(pk=used.pk).update(profile="good")
    html = client.get("/admin/generation/pool/engine-profiles/").content.decode()
    for shown in ("good", "openai", "large", "8192", "gpu-1.internal:8000", "temperature_cap"):
        assert shown in html, shown
    assert "a unix socket" in html
    for hidden in ("sk-do-not-show", "secret/path", "option-value", "it.sock", "/weights"):
        assert hidden not in html, hidden
    assert used.pk in html
    missing = html[html.index("missing-profiles") :]
    assert lost.pk in missing[: missing.index("</div>")]
    assert used.pk not in missing[: missing.index("</div>")]


def test_engine_profiles_need_the_right_to_see_pools() -> None:
    staff = make_person("staff", is_staff=True)
    page = "/admin/generation/pool/engine-profiles/"
    assert client_of(staff).get(page).status_code == 403
    assert AuditEntry.objects.filter(action="refused", actor_id=staff.user.pk).count() == 1
    staff.user.user_permissions.add(Permission.objects.get(codename="view_pool"))
    assert client_of(staff).get(page).status_code == 200
    assert Client().get(page).status_code == 302
