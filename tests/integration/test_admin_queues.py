"""The admin's queues page: who may see and do what, what is done, and what the audit keeps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth.models import Permission
from django.contrib.messages import get_messages
from django.test import Client
from redis import Redis
from redis.exceptions import ConnectionError as RedisAway

from accounts import audit
from accounts.models import AuditEntry, Organisation
from generation import queue_actions, queue_counts, queue_figures
from generation.models import Pool, Replica, Run
from generation.queue_counts import EndedRun
from generation.queue_pages import confirm
from generation.scheduler import Observer, QueueEntry, observer, scheduler_sync
from generation.scheduler import queue as queue_module
from generation.scheduler.figures import counts_key, history_key, sampled_key
from quotas.models import Plan
from tests.integration.admin_room import PLANTED, make_run
from tests.people import client_of, make_person

pytestmark = [
    pytest.mark.django_db,
    pytest.mark.usefixtures("plain_static", "clean_cache", "no_tickets"),
]
PAGE = "/admin/queues/"
FIGURES = "/admin/queues/figures"


@pytest.fixture
def no_tickets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_module, "publish_ticket", lambda pool, replica=None: True)


@pytest.fixture
def redis() -> Iterator[Redis]:
    client = Redis.from_url(settings.REDIS_URL)
    client.flushdb()
    yield client
    client.flushdb()
    client.close()


@pytest.fixture
def run(redis: Redis) -> Run:
    """A queued run in a built pool with one healthy replica."""
    made = make_run(make_person("owner").user)
    Replica.objects.create(name="one", pool=made.pool, healthy=True, slots=2)
    assert scheduler_sync().rebuild(made.pool_id, lambda: [entry_of(made)])
    return made


@pytest.fixture
def plan() -> Plan:
    return Plan.objects.get(slug="free")


def entry_of(run: Run) -> QueueEntry:
    return QueueEntry(run.external_id, "u_1", 100, plan="free")


def staff(*permissions: str) -> Client:
    person = make_person("staff", is_staff=True)
    wanted = [name.split(".") for name in permissions]
    rights = Permission.objects.filter(codename__in=[code for _, code in wanted])
    person.user.user_permissions.set(rights)
    assert rights.count() == len(permissions)
    return client_of(person)


def boss() -> Client:
    return client_of(make_person("boss", is_staff=True, is_superuser=True))


def said(answer: Any) -> str:
    return " ".join(str(message) for message in get_messages(answer.wsgi_request))


VERBS: dict[str, tuple[str, Callable[[Run], str], dict[str, str]]] = {
    "pause": ("generation.change_pool", lambda run: f"pools/{run.pool_id}/pause/", {}),
    "resume": ("generation.change_pool", lambda run: f"pools/{run.pool_id}/resume/", {}),
    "drain": ("generation.change_replica", lambda run: "replicas/one/drain/", {}),
    "undrain": ("generation.change_replica", lambda run: "replicas/one/undrain/", {}),
    "stop": ("generation.change_run", lambda run: f"runs/{run.external_id}/stop/", {}),
    "move": ("generation.change_run", lambda run: f"runs/{run.external_id}/move/", {"pool": "x"}),
    "weigh": ("quotas.change_plan", lambda run: "plans/free/weigh/", {"weight": "3", "seen": "1"}),
}


# --- who ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [PAGE, FIGURES])
def test_who_may_look(run: Run, path: str) -> None:
    assert Client().get(path).status_code == 302
    assert client_of(make_person("plain")).get(path).status_code == 302
    assert staff().get(path).status_code == 403
    assert staff("generation.view_pool").get(path).status_code == 200
    assert boss().get(path).status_code == 200
    assert boss().post(path).status_code == 405


@pytest.mark.parametrize("verb", VERBS)
def test_who_may_do_it(run: Run, verb: str) -> None:
    permission, path_of, data = VERBS[verb]
    path = PAGE + path_of(run)
    before = [Pool.objects.get().is_paused, Replica.objects.get().is_draining]
    viewer = staff("generation.view_pool")
    for client in (Client(), client_of(make_person("plain")), viewer):
        expected = 403 if client is viewer else 302
        assert (client.get(path).status_code, client.post(path, data).status_code) == (
            expected,
        ) * 2
    assert [Pool.objects.get().is_paused, Replica.objects.get().is_draining] == before
    run.refresh_from_db()
    assert (run.status, run.stop_requested_at) == ("queued", None)
    assert not AuditEntry.objects.filter(action=verb).exists()
    assert AuditEntry.objects.filter(action="refused").exists()
    assert staff(permission).get(path).status_code == 200


@pytest.mark.parametrize("verb", VERBS)
def test_asking_changes_nothing_and_needs_a_token(run: Run, verb: str) -> None:
    _, path_of, data = VERBS[verb]
    person = make_person("boss", is_staff=True, is_superuser=True)
    client = client_of(person, enforce_csrf_checks=True)
    assert client.get(PAGE + path_of(run)).status_code == 200
    assert client.post(PAGE + path_of(run), data).status_code == 403
    assert not AuditEntry.objects.filter(action=verb).exists()


@pytest.mark.parametrize(
    "path",
    [
        *("pools/none/pause/", "replicas/none/drain/", "plans/none/weigh/", "runs/none/stop/"),
        *("runs/g_" + "0" * 32 + "/move/", "runs/g_" + "z" * 32 + "/stop/"),
    ],
)
def test_what_is_not_there_is_not_found(run: Run, path: str) -> None:
    client = boss()
    assert client.get(PAGE + path).status_code == 404
    assert client.post(PAGE + path, {"weight": 1, "seen": 1}).status_code == 404


def test_the_page_is_in_the_navigation_of_who_may_see_it(run: Run) -> None:
    assert b'href="/admin/queues/"' in boss().get("/admin/").content
    assert b'href="/admin/queues/"' not in staff("generation.view_run").get("/admin/").content


# --- what is done ---------------------------------------------------------------------------------


def test_a_pool_is_paused_and_resumed_at_once(run: Run) -> None:
    client, pool = boss(), run.pool_id
    assert "paused." in said(client.post(f"{PAGE}pools/{pool}/pause/"))
    assert Pool.objects.get(slug=pool).is_paused
    assert scheduler_sync().pop(pool, "one", slots=2).entry is None
    (entry,) = AuditEntry.objects.filter(action="pause")
    assert (entry.object_type, entry.object_id) == ("generation.pool", pool)
    assert entry.changes == {"is_paused": [False, True]}
    assert "resumed." in said(client.post(f"{PAGE}pools/{pool}/resume/"))
    assert scheduler_sync().pop(pool, "one", slots=2).entry is not None
    assert AuditEntry.objects.get(action="resume").changes == {"is_paused": [True, False]}


def test_of_two_who_pause_at_once_one_has_done_it(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second has opened her page before the first one's order, and posts after it."""
    first, second, path = boss(), boss(), f"{PAGE}pools/{run.pool_id}/pause/"
    seen = Pool.objects.get(slug=run.pool_id)
    assert "paused." in said(first.post(path))
    monkeypatch.setattr(confirm.PausePool, "find", lambda self, name: seen)
    answer = second.post(path)
    assert "paused already" in said(answer)
    assert AuditEntry.objects.filter(action="pause").count() == 1


def test_a_pause_that_is_told_late_tells_what_holds_by_then(run: Run) -> None:
    """Paused by one, resumed by another before the first could tell Redis."""
    pool = Pool.objects.get(slug=run.pool_id)
    pause = queue_actions.pause(pool, is_paused=True)
    resume = queue_actions.pause(pool, is_paused=False)
    assert pause is not None
    assert resume is not None
    resume()
    pause()
    assert scheduler_sync().pop(pool.slug, "one", slots=2).entry is not None


def test_a_replica_drains_and_comes_back(run: Run) -> None:
    client = boss()
    assert "drain" in said(client.post(f"{PAGE}replicas/one/drain/"))
    assert Replica.objects.get(name="one").is_draining
    assert AuditEntry.objects.get(action="drain").changes == {"is_draining": [False, True]}
    assert "already" in said(client.post(f"{PAGE}replicas/one/drain/"))
    assert "take runs again" in said(client.post(f"{PAGE}replicas/one/undrain/"))
    assert not Replica.objects.get(name="one").is_draining
    assert AuditEntry.objects.filter(action__in=["drain", "undrain"]).count() == 2


def test_a_queued_run_is_stopped(run: Run) -> None:
    client, path = boss(), f"{PAGE}runs/{run.external_id}/stop/"
    assert "asked to stop" in said(client.post(path))
    run.refresh_from_db()
    assert (run.status, run.finish) == ("stopped", "user_stopped")
    assert scheduler_sync().depth(run.pool_id) == 0
    entry = AuditEntry.objects.get(action="stop")
    assert entry.object_id == run.external_id
    assert entry.changes["stop_requested_at"][0] is None
    assert "has ended" in said(client.post(path))
    assert b"It has ended" in client.get(path).content
    assert AuditEntry.objects.filter(action="stop").count() == 1


def test_a_queued_run_is_moved_to_another_pool_of_its_model(run: Run) -> None:
    other = Pool.objects.create(slug="other", model=run.pool.model, profile="nowhere")
    scheduler_sync().rebuild("other", list)
    client, path = boss(), f"{PAGE}runs/{run.external_id}/move/"
    assert b"other (local, no healthy replica)" in client.get(path).content
    left = run.pool_id
    assert "moved." in said(client.post(path, {"pool": "other"}))
    run.refresh_from_db()
    assert run.pool_id == other.slug
    assert (scheduler_sync().depth(left), scheduler_sync().depth("other")) == (0, 1)
    assert AuditEntry.objects.get(action="move").changes == {"pool": [left, "other"]}


def test_a_run_goes_to_no_pool_of_another_model(run: Run) -> None:
    elsewhere = make_run(make_person("second").user).pool_id
    client, path = boss(), f"{PAGE}runs/{run.external_id}/move/"
    assert b"no other pool" in client.get(path).content
    assert client.post(path, {"pool": elsewhere}).status_code == 400
    Run.objects.filter(id=run.id).update(status="running", epoch=1)
    assert b"does not wait any more" in client.get(path).content


def test_a_run_does_not_leave_the_region_of_its_organisation(run: Run) -> None:
    model = run.pool.model
    for slug, region in (("near", "eu"), ("far", "us")):
        Pool.objects.create(slug=slug, region=region, model=model, profile="nowhere")
    run.owner.organisation = Organisation.objects.create(name="Acme", residency="eu")
    run.owner.save()
    client, path = boss(), f"{PAGE}runs/{run.external_id}/move/"
    assert [pool.slug for pool in queue_actions.pools_for(run)] == ["near"]
    assert client.post(path, {"pool": "far"}).status_code == 400
    run.refresh_from_db()
    assert run.pool_id not in ("near", "far")


def test_a_run_that_was_claimed_meanwhile_stays(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    Pool.objects.create(slug="other", model=run.pool.model, profile="nowhere")
    monkeypatch.setattr(confirm.MoveRun, "find", lambda self, name: run)
    Run.objects.filter(id=run.id).update(status="running", epoch=1)
    answer = boss().post(f"{PAGE}runs/{run.external_id}/move/", {"pool": "other"})
    assert "waits no more" in said(answer)
    assert not AuditEntry.objects.filter(action="move").exists()


def test_a_weight_holds_for_those_that_wait(run: Run, plan: Plan) -> None:
    client, path = boss(), f"{PAGE}plans/free/weigh/"
    answer = client.post(path, {"weight": "7", "seen": str(plan.weight)})
    assert "new weight" in said(answer)
    plan.refresh_from_db()
    assert plan.weight == 7
    (pool,) = queue_figures.read().pools
    assert pool.figures is not None
    assert [one.weight for one in pool.figures.plans if one.plan == "free"] == [7]
    assert AuditEntry.objects.get(action="weigh").changes == {"weight": [1, 7]}
    # Who has seen the old weight changes nothing.
    assert "somebody else" in said(client.post(path, {"weight": "9", "seen": "1"}))
    plan.refresh_from_db()
    assert plan.weight == 7


@pytest.mark.parametrize("weight", ["", "0", "-1", "1001", "x", "1e3", "9" * 400])
def test_a_weight_that_is_none_is_asked_for_again(run: Run, plan: Plan, weight: str) -> None:
    answer = boss().post(f"{PAGE}plans/free/weigh/", {"weight": weight, "seen": "1"})
    assert answer.status_code == 400
    assert Plan.objects.get(slug="free").weight == plan.weight


def test_what_is_done_while_redis_is_away_is_kept(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*args: Any, **kwargs: Any) -> None:
        raise RedisAway

    monkeypatch.setattr(scheduler_sync(), "configure", away)
    answer = boss().post(f"{PAGE}pools/{run.pool_id}/pause/")
    assert "when Redis is back" in said(answer)
    assert Pool.objects.get(slug=run.pool_id).is_paused
    assert AuditEntry.objects.filter(action="pause").exists()


def test_what_cannot_be_audited_is_not_done(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: Any, **kwargs: Any) -> None:
        raise RuntimeError("no audit")

    monkeypatch.setattr(audit, "record", fail)
    with pytest.raises(RuntimeError, match="no audit"):
        boss().post(f"{PAGE}pools/{run.pool_id}/pause/")
    assert not Pool.objects.get(slug=run.pool_id).is_paused


# --- what is shown --------------------------------------------------------------------------------


def figures(**query: Any) -> dict[str, Any]:
    answer = boss().get(FIGURES, query)
    assert answer.status_code == 200
    assert PLANTED not in answer.content.decode()
    told: dict[str, Any] = answer.json()
    return told


def test_the_figures_of_a_pool(run: Run) -> None:
    pool = run.pool_id
    scheduler_sync().beat(pool, "one", at_work=0, slots=2, paid_burst=1)
    queue_counts.admitted(pool, "free", "smaller")
    queue_counts.refused(pool, "free", "busy")
    (told,) = figures()["pools"]
    assert (told["queue"]["waiting"], told["queue"]["slots"], told["queue"]["paid_burst"]) == (
        1,
        2,
        1,
    )
    (free,) = (plan for plan in told["plans"] if plan["plan"] == "free")
    assert (free["waiting"], free["wait_ms"], free["last"]) == (1, 0, "refused")
    assert (free["admitted"], free["refused"]) == ({"smaller": 1}, {"busy": 1})
    assert told["totals"]["refused"] == 1
    (replica,) = told["replicas"]
    assert (replica["healthy"], replica["is_fresh"], replica["at_work"]) == (True, True, 0)
    assert (told["runs"], told["history"]) == (None, None)


def test_the_runs_of_a_pool_by_id_alone(run: Run) -> None:
    at_work = make_run(make_person("second").user)
    Run.objects.filter(id=at_work.id).update(
        pool=run.pool_id, status="running", epoch=1, replica="one"
    )
    told = {pool["slug"]: pool for pool in figures(runs=[run.pool_id, "none"])["pools"]}
    runs = told[run.pool_id]["runs"]
    (waiting,), (running,) = runs["waiting"], runs["running"]
    assert set(waiting) == {"id", "plan", "age_s", "position", "wait_ms"}
    assert (waiting["id"], waiting["position"]) == (run.external_id, 1)
    assert set(running) == {"id", "plan", "age_s", "replica"}
    assert (running["id"], running["replica"]) == (at_work.external_id, "one")
    assert told[at_work.pool_id]["runs"] is None


def test_no_pools_no_figures(redis: Redis) -> None:
    told = figures(history=1, runs="x")
    assert (told["pools"], told["redis"]) == ([], True)


def test_what_postgresql_knows_is_shown_while_redis_is_away(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    nowhere = Redis(host="127.0.0.1", port=1)
    monkeypatch.setattr(queue_figures, "observer", lambda: Observer(nowhere))
    monkeypatch.setattr(scheduler_sync(), "_redis", nowhere)
    told = figures(history=1, runs=run.pool_id)
    (pool,) = told["pools"]
    assert (told["redis"], pool["queue"], pool["history"]) == (False, None, None)
    assert pool["replicas"][0]["name"] == "one"
    assert pool["runs"]["waiting"][0]["position"] is None


# --- samples and counts ---------------------------------------------------------------------------


def test_one_sample_is_kept_whoever_sweeps(run: Run, redis: Redis) -> None:
    assert queue_figures.sample() == 1
    redis.set(sampled_key(run.pool_id), 1)  # whoever comes now is not the first
    assert queue_figures.sample() == 0
    assert redis.llen(history_key(run.pool_id)) == 1
    redis.delete(sampled_key(run.pool_id))
    assert queue_figures.sample() == 1
    (told,) = figures(history=1)["pools"]
    assert [value for _, value in told["history"]["waiting"]] == [1, 1]
    assert "free" in told["history"]["wait_s"]


def test_a_pool_that_makes_trouble_does_not_stop_the_others(run: Run, redis: Redis) -> None:
    odd = make_run(make_person("second").user).pool_id
    redis.set(counts_key(odd), b"no hash")
    assert queue_figures.sample() == 1
    assert redis.llen(history_key(run.pool_id)) == 1
    told = {pool["slug"]: pool["queue"] for pool in figures()["pools"]}
    assert told[odd] is None
    assert told[run.pool_id] is not None


def test_samples_that_cannot_be_read_are_left_out(run: Run, redis: Redis) -> None:
    redis.lpush(history_key(run.pool_id), b"{", b"[]", b'{"at_s": 1}')
    queue_figures.sample()
    (told,) = figures(history=1)["pools"]
    assert len(told["history"]["waiting"]) == 1


def test_the_speed_is_that_of_the_last_minute(run: Run, redis: Redis) -> None:
    queue_figures.sample()
    (first,) = observer().samples([run.pool_id])[0]
    redis.delete(history_key(run.pool_id))
    assert b'"served":0' in first
    at_s = float(first.split(b":")[1].split(b",")[0])
    redis.lpush(history_key(run.pool_id), first.replace(b"%.1f" % at_s, b"%.1f" % (at_s - 50)))
    queue_counts.ended(EndedRun(run.pool_id, "free", "m", "stop", 600, 200, 100, None))
    (told,) = figures()["pools"]
    assert 8 < told["queue"]["tokens_per_s"] <= 10.1
    redis.delete(counts_key(run.pool_id))  # Redis was lost: the counts began again
    redis.hset(counts_key(run.pool_id), "output.free.m", "5")
    redis.lset(history_key(run.pool_id), 0, first.decode().replace('"served":0', '"served":900'))
    (told,) = figures()["pools"]
    assert told["queue"]["tokens_per_s"] is None


@pytest.mark.django_db(transaction=True)
def test_an_end_is_counted_once_with_its_cost(run: Run) -> None:
    model = run.pool.model
    Run.objects.filter(id=run.id).update(plan="free")
    for _ in range(2):
        boss().post(f"{PAGE}runs/{run.external_id}/stop/")
    queue_counts.ended(
        EndedRun(run.pool_id, "free", model.slug, "stop", 1, 0, 3, Decimal("0.000006"))
    )
    (pool,) = queue_figures.read().pools
    labels = ("free", model.slug)
    assert pool.counts.of("ended") == {(*labels, "user_stopped"): 1, (*labels, "stop"): 1}
    assert pool.counts.of("cost_nano") == {labels: 6_000}
    assert pool.counts.of("output") == {labels: 3}


def test_nothing_fails_where_nothing_can_be_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def away(*args: Any) -> None:
        calls.append(args)
        raise RedisAway

    monkeypatch.setattr(scheduler_sync(), "count", away)
    monkeypatch.setattr(queue_counts._Pause, "until_s", 0.0)
    queue_counts.admitted("p", "free", "home")
    queue_counts.refused("p", "free", "busy")
    assert len(calls) == 1  # then nobody counts for a moment
    monkeypatch.setattr(queue_counts._Pause, "until_s", 0.0)
