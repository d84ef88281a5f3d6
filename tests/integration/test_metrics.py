"""`/metrics`: who may read it, what it holds, and that it answers whatever is away."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from django.conf import settings as live_settings
from django.db import OperationalError, connections
from django.test import Client
from prometheus_client.parser import text_string_to_metric_families
from redis import Redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from chatproject import metrics
from chatproject.metrics import Reader, Reading
from generation import queue_counts, queue_figures
from generation.models import Replica, Run
from generation.queue_counts import EndedRun
from generation.scheduler import Observer, scheduler_sync
from generation.scheduler.figures import counts_key
from tests.integration.admin_room import make_run
from tests.people import bearer, client_of, make_person

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("clean_cache", "plain_static"),
]
TOKEN = "a-long-token-for-prometheus-0123456789"
WITH_TOKEN = {"Authorization": f"Bearer {TOKEN}"}


@pytest.fixture(autouse=True)
def token(settings: Any) -> None:
    settings.METRICS_TOKEN = TOKEN


@pytest.fixture
def redis() -> Iterator[Redis]:
    client = Redis.from_url(live_settings.REDIS_URL)
    client.flushdb()
    yield client
    client.flushdb()
    client.close()


@pytest.fixture
def run(redis: Redis) -> Run:
    made = make_run(make_person("owner").user)
    Replica.objects.create(name="one", pool=made.pool, healthy=True, slots=2)
    assert scheduler_sync().rebuild(made.pool_id, list)
    return made


def scrape() -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    answer = Client().get("/metrics", headers=WITH_TOKEN)
    assert answer.status_code == 200
    assert answer["Content-Type"].startswith("text/plain")
    found: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
    for family in text_string_to_metric_families(answer.content.decode()):
        for sample in family.samples:
            key = (sample.name, frozenset(sample.labels.items()))
            assert key not in found, "two series of the same name and labels"
            found[key] = sample.value
    return found


def of(name: str, **labels: str) -> tuple[str, frozenset[tuple[str, str]]]:
    return name, frozenset(labels.items())


# --- who ------------------------------------------------------------------------------------------


def test_who_may_read() -> None:
    person = make_person("plain")
    assert Client().get("/metrics").status_code == 401
    assert client_of(person).get("/metrics").status_code == 401
    assert Client().get("/metrics", headers=bearer(person)).status_code == 401
    assert Client().get("/metrics", headers=WITH_TOKEN).status_code == 200
    staff = make_person("staff", is_staff=True)
    assert client_of(staff).get("/metrics").status_code == 200
    staff.user.is_active = False
    staff.user.save()
    assert client_of(staff).get("/metrics").status_code == 401


@pytest.mark.parametrize(
    "sent", ["", "Bearer", "Bearer ", f"Basic {TOKEN}", f"Bearer {TOKEN}x", "Bearer \xe9", TOKEN]
)
def test_a_wrong_token_is_none(sent: str) -> None:
    answer = Client().get("/metrics", headers={"Authorization": sent})
    assert answer.status_code == 401
    assert answer["WWW-Authenticate"].startswith("Bearer")
    assert b"hearth_" not in answer.content


@pytest.mark.parametrize("sent", ["Bearer ", "Bearer", "", f"Bearer {TOKEN}"])
def test_without_a_token_in_the_environment_there_is_nothing_there(
    settings: Any, sent: str
) -> None:
    settings.METRICS_TOKEN = ""
    assert Client().get("/metrics", headers={"Authorization": sent}).status_code == 404
    assert Client().get("/metrics").status_code == 404
    staff = make_person("staff", is_staff=True)
    assert client_of(staff).get("/metrics").status_code == 200


def test_a_scraper_asks_by_address_and_gets_no_cookie() -> None:
    answer = Client().get("/metrics", headers={**WITH_TOKEN, "Host": "10.0.0.7:8000"})
    assert answer.status_code == 200
    assert answer.cookies == {}
    assert "no-store" in answer["Cache-Control"]
    assert Client().post("/metrics", headers=WITH_TOKEN).status_code == 405


# --- what -----------------------------------------------------------------------------------------


def test_the_figures_of_a_pool(run: Run) -> None:
    pool = run.pool_id
    scheduler_sync().beat(pool, "one", at_work=0, slots=2, paid_burst=1)
    queue_counts.admitted(pool, "free", "smaller")
    queue_counts.refused(pool, "free", "busy")
    queue_counts.ended(EndedRun(pool, "free", "m", "stop", 600, 200, 100, None))
    found = scrape()
    assert found[of("hearth_redis_up")] == found[of("hearth_database_up")] == 1
    assert found[of("hearth_pool_slots", pool=pool)] == 2
    assert found[of("hearth_pool_paid_burst", pool=pool)] == 1
    assert found[of("hearth_pool_built", pool=pool)] == 1
    assert found[of("hearth_queue_waiting_runs", pool=pool, plan="free")] == 0
    assert found[of("hearth_queue_predicted_wait_seconds", pool=pool, plan="free")] == 0
    assert found[of("hearth_admissions_total", pool=pool, plan="free", step="smaller")] == 1
    assert found[of("hearth_refusals_total", pool=pool, plan="free", reason="busy")] == 1
    assert found[of("hearth_output_tokens_total", pool=pool, plan="free", model="m")] == 100
    assert found[of("hearth_replica_healthy", pool=pool, replica="one")] == 1
    assert found[of("hearth_replica_draining", pool=pool, replica="one")] == 0


def test_the_cost_is_told_in_the_currency(run: Run, redis: Redis) -> None:
    redis.hset(counts_key(run.pool_id), "cost_nano.free.m", "1500000000")
    labels = {"pool": run.pool_id, "plan": "free", "model": "m", "currency": "USD"}
    assert scrape()[of("hearth_cost_total", **labels)] == 1.5


def test_counts_of_another_shape_do_not_spoil_the_scrape(run: Run, redis: Redis) -> None:
    odd = {"admitted.free.home.x": "1", "admitted.free.home": "2", "ended.free.m": "3"}
    redis.hset(counts_key(run.pool_id), mapping=odd)
    labels = {"pool": run.pool_id, "plan": "free", "step": "home"}
    assert scrape()[of("hearth_admissions_total", **labels)] == 2


def test_requests_are_counted_by_view_and_scrapes_are_not() -> None:
    before = scrape()
    Client().get("/accounts/sign-in/")
    after = scrape()

    def answered(view: str) -> list[float]:
        name = "django_http_responses_total_by_status_view_method_total"
        labels = of(name, status="200", view=view, method="GET")
        return [found.get(labels, 0) for found in (before, after)]

    old, new = answered("accounts:sign_in")
    assert new == old + 1
    old, new = answered("metrics")  # those of staff are, who ask with a session
    assert new == old
    assert not [name for name, _ in after if name.endswith("_created")]


# --- what is away ---------------------------------------------------------------------------------


def test_it_answers_while_redis_is_away(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    nowhere = Observer(Redis(host="127.0.0.1", port=1, retry=Retry(NoBackoff(), 0)))
    monkeypatch.setattr(queue_figures, "observer", lambda: nowhere)
    found = scrape()
    assert found[of("hearth_redis_up")] == 0
    assert found[of("hearth_database_up")] == 1
    assert found[of("hearth_replica_slots", pool=run.pool_id, replica="one")] == 2
    assert of("hearth_pool_slots", pool=run.pool_id) not in found


def test_it_answers_while_postgresql_is_away(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def away() -> None:
        raise OperationalError

    monkeypatch.setattr(queue_figures, "read_rows", away)
    found = scrape()
    assert found[of("hearth_database_up")] == 0
    assert found[of("hearth_redis_up")] == 1


def test_it_answers_in_time_whatever_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    """And many scrapes wait for one reading: they pile up no threads."""
    let_go, begun = threading.Event(), []

    def hang() -> Reading:
        begun.append(1)
        let_go.wait(60)
        return Reading(None, has_redis=True)

    reader = Reader(hang)
    monkeypatch.setattr(metrics, "_reader", reader)
    monkeypatch.setattr(metrics, "SCRAPE_S", 0.05)
    for _ in range(3):
        assert scrape()[of("hearth_database_up")] == 0
    assert begun == [1]
    let_go.set()
    assert reader.read(60).has_redis


def test_it_keeps_no_connection(run: Run) -> None:
    kept: list[object] = []

    def read() -> Reading:
        found = metrics.read()
        kept.extend(one.connection for one in connections.all(initialized_only=True))
        return found

    assert Reader(read).read(60).stand is not None
    assert kept
    assert set(kept) == {None}
