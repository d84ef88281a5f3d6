"""Regions: where somebody's runs may be, who takes over whose runs, and where a conversation stays.

tests/integration/test_two_regions.py has it on real workers.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings
from django.db import transaction
from django.test import Client
from django.utils import timezone
from redis import Redis

from accounts.ids import external_id
from accounts.models import Organisation, User
from conversations.content import text_content
from generation import borrow, fallback, launch, reaper, regions, runs
from generation.catalogue import Choice, candidates, choose, choose_again, offer_for, route
from generation.exceptions import NotInRegion, UnknownModel
from generation.ladder import Admitted, Outlook, Wish, decide
from generation.models import Model, Pool, Replica, Run
from generation.payloads import other_region_notice
from generation.redis_clients import token_log
from generation.regions import Residence, warm_pool
from generation.scheduler import scheduler_sync
from generation.send import ACTIVE_LEAF, SendRequest, send
from generation.stopping import stop_run
from tests.integration.second_step import Second, second_fixture  # noqa: F401  # fixtures
from tests.people import bearer, make_person

pytestmark = pytest.mark.django_db(transaction=True)

LONG_AGO = timedelta(minutes=1)
TRIP_MS = 80
POOLS = ("big-eu", "big-us", "small-us")


@pytest.fixture(autouse=True)
def pools() -> Iterator[None]:
    """A big model in eu and in us, and a small one in us alone."""
    with Redis.from_url(settings.REDIS_URL) as client:
        client.flushdb()
        for slug in ("big", "small"):
            Model.objects.create(slug=slug, title=slug.title(), is_default=slug == "big")
        for slug in POOLS:
            model, region = slug.split("-")
            Pool.objects.create(
                slug=slug, model_id=model, region=region, profile="sim", round_trip_ms=TRIP_MS
            )
            assert scheduler_sync().rebuild(slug, list)
            alive(slug)
        yield
        client.flushdb()


def alive(pool: str, *, age: timedelta = timedelta()) -> None:
    values = {"healthy": True, "heartbeat": timezone.now() - age, "pool_id": pool}
    Replica.objects.update_or_create(name=f"{pool}-1", defaults=values)


def person(residency: str | None = None, *, home_region: str = "") -> User:
    organisation = None
    if residency is not None:
        organisation = Organisation.objects.create(name="Acme", residency=residency)
    return make_person(organisation=organisation, home_region=home_region).user


@pytest.fixture
def owner() -> User:
    return person()


def ask(owner: User, **fields: Any) -> Run:
    values = {"conversation": None, "parent_id": ACTIVE_LEAF, "model": None, "key": None}
    return send(owner, SendRequest(parts=text_content("Hello"), **{**values, **fields}))


def waiting(owner: User, **fields: Any) -> Run:
    """A run that has waited for long in the queue it was sent to."""
    run = ask(owner, **fields)
    Run.objects.filter(id=run.id).update(queued_at=timezone.now() - LONG_AGO)
    run.refresh_from_db()
    return run


def fill(pool: str) -> None:
    """Its one slot is taken, by runs that take ten seconds."""
    queue, keys = scheduler_sync(), f"{{pool:{pool}}}:"
    queue.beat(pool, f"{pool}-1", at_work=1, slots=1, paid_burst=0)
    with Redis.from_url(settings.REDIS_URL) as client:
        client.hset(keys + "tags", mapping={"spent": 100, "took_ms": 10_000})
        client.hset(keys + "busy", f"r:{pool}-1", 1)


def places(run: Run) -> list[int | None]:
    return scheduler_sync().positions([(pool, run.external_id) for pool in POOLS])


def events(run: Run) -> list[tuple[int, str]]:
    page = token_log().read(run.external_id)
    return [(event.seq, event.name) for event in page.events] if page else []


def row_of(run: Run) -> Run:
    return Run.objects.select_related("pool").get(id=run.id)


def pick(user: User, slug: str | None) -> Choice:
    return choose(offer_for(user), slug)


def take(pool: str = "big-us", most: int = 4) -> int:
    by = borrow.borrower(pool)
    return borrow.borrow(by, most) if by is not None else 0


# --- which pools ----------------------------------------------------------------------------------


def test_home_comes_first(owner: User, settings: Any) -> None:
    assert pick(owner, "big").pool.slug == "big-eu", "the first one where nobody is at home"
    settings.HOME_REGION = "us"
    assert pick(owner, "big").pool.slug == "big-us"
    assert pick(person(home_region="eu"), "big").pool.slug == "big-eu"
    Replica.objects.filter(pool="big-eu").delete()
    assert pick(person(home_region="eu"), "big").pool.slug == "big-us"


def test_a_residency_is_home_whatever_the_user_has_chosen() -> None:
    assert pick(person("us", home_region="eu"), "big").pool.slug == "big-us"


def test_the_runs_of_a_pinned_organisation_wait_at_home() -> None:
    pinned = person("eu")
    Replica.objects.filter(pool="big-eu").delete()
    assert pick(pinned, "big").pool.slug == "big-eu"
    assert pick(person(""), "big").pool.slug == "big-us", "no residency is anywhere"


def test_a_model_that_is_not_served_there_is_refused() -> None:
    pinned, person_ = person("eu"), make_person()
    assert [model.slug for model in offer_for(pinned).shown] == ["big"]
    with pytest.raises(NotInRegion, match="must not leave"):
        pick(pinned, "small")
    with pytest.raises(UnknownModel, match="no such model"):
        pick(pinned, "none")
    assert choose_again(offer_for(pinned), "small").model.slug == "big"
    person_.user.organisation = Organisation.objects.create(name="Acme", residency="eu")
    person_.user.save()
    content = {"content": "Hello", "model": "small"}
    reply = Client().post(
        "/v1/conversations/new/messages",
        content,
        content_type="application/json",
        headers=bearer(person_),
    )
    assert reply.status_code == 400
    assert reply.json()["error"]["code"] == "unknown_model"
    assert "organisation" in reply.json()["error"]["message"]
    assert not Run.objects.exists()


def test_nowhere_at_all_is_an_error_too() -> None:
    with pytest.raises(NotInRegion):
        pick(person("mars"), None)
    Model.objects.filter(slug="big").update(is_default=False)
    Pool.objects.filter(slug="small-us").update(region="mars")
    assert pick(person("mars"), None).model.slug == "small"


def test_the_default_is_one_that_is_served_there() -> None:
    Pool.objects.filter(model="big").update(region="eu")
    assert pick(person("us"), None).model.slug == "small"


def test_a_fallback_in_another_region_is_no_way_out() -> None:
    Model.objects.filter(slug="big").update(fallback="small-us")
    Replica.objects.filter(pool__model="big").delete()
    assert pick(person(), "big").pool.slug == "small-us"
    assert pick(person("us"), "big").pool.slug == "small-us"
    assert pick(person("eu"), "big").pool.slug == "big-eu"


def test_candidates_are_all_that_are_served_home_first(
    django_assert_num_queries: Callable[[int], Any],
) -> None:
    wanted = [
        (model, list(Pool.objects.filter(model=model).order_by("slug")))
        for model in Model.objects.order_by("slug")
    ]
    with django_assert_num_queries(1):
        big, small = candidates(wanted, Residence(home="us"))
    assert [pool.slug for pool in big.pools] == ["big-us", "big-eu"]
    assert [pool.slug for pool in small.pools] == ["small-us"]
    big, small = candidates(wanted, Residence("eu", "eu"))
    assert ([pool.slug for pool in big.pools], small.pools) == (["big-eu"], ())
    Replica.objects.filter(pool="big-us").delete()
    (big,) = candidates(wanted[:1])
    assert ([pool.slug for pool in big.pools], big.home) == (["big-eu"], "eu")


def test_they_are_what_the_ladder_asks_for(owner: User) -> None:
    """As admission does: outlooks of the candidates, and the pool that is warm."""
    model = Model.objects.get(slug="big")
    (found,) = candidates([(model, list(Pool.objects.filter(model=model).order_by("slug")))])
    outlooks = [
        Outlook(pool.slug, pool.region, 9_000.0 if pool.region == "eu" else 0.0, TRIP_MS, True)
        for pool in found.pools
    ]
    wish = Wish(is_paid=False, deadline_ms=5_000, answer_tokens=1, context_tokens=1)
    decided = decide(wish, outlooks)
    assert isinstance(decided, Admitted)
    assert (decided.pool, decided.is_away) == ("big-us", True)


# --- a queue that is full -------------------------------------------------------------------------


def test_an_idle_region_takes_over_what_would_wait_longer(owner: User) -> None:
    run = waiting(owner)
    fill("big-eu")
    Run.objects.filter(id=run.id).update(answer_tokens=77)
    assert take() == 1
    row = row_of(run)
    assert (row.pool_id, row.model_used, row.answer_tokens) == ("big-us", "big", 77)
    assert row.notices == [other_region_notice("us")]
    assert events(row) == [(1, "start"), (2, "notice")]
    assert (row.opening_seq, places(row)) == (2, [None, 1, None])
    assert take() == 0
    assert runs.claim(run.id, "r", pool="big-eu") is None
    assert runs.claim(run.id, "r", pool="big-us") is not None


def test_only_as_many_as_there_are_idle_slots(owner: User) -> None:
    sent = [waiting(person()) for _ in range(4)]
    fill("big-eu")
    assert take(most=3) == 3
    assert [row_of(run).pool_id for run in sent] == ["big-us"] * 3 + ["big-eu"]


def test_not_where_the_trip_is_longer(owner: User) -> None:
    waiting(owner)
    fill("big-eu")
    Pool.objects.filter(slug="big-us").update(round_trip_ms=20_000)
    assert take() == 0
    Pool.objects.filter(slug="big-eu").update(round_trip_ms=30_000)  # is not asked
    Pool.objects.filter(slug="big-us").update(round_trip_ms=4_999)
    assert take() == 1


def test_not_what_home_serves_at_once(owner: User) -> None:
    scheduler_sync().beat("big-eu", "big-eu-1", at_work=0, slots=1, paid_burst=0)
    waiting(owner)
    assert take() == 0


def test_a_pinned_run_waits_at_home_for_as_long_as_it_takes() -> None:
    pinned, free = waiting(person("eu")), waiting(person(""))
    fill("big-eu")
    assert take() == 1
    assert [row_of(run).pool_id for run in (pinned, free)] == ["big-eu", "big-us"]
    assert take() == 0
    Replica.objects.filter(pool="big-eu").delete()
    assert fallback.move_stranded_runs() == 0
    assert places(pinned) == [1, None, None]


def test_a_residency_that_came_while_it_waited_counts(owner: User) -> None:
    """The entry does not say so yet; the row's update asks."""
    run = waiting(owner)
    fill("big-eu")
    owner.organisation = Organisation.objects.create(name="Acme", residency="eu")
    owner.save()
    assert take() == 0
    assert (row_of(run).pool_id, places(run)) == ("big-eu", [1, None, None])
    assert not runs.move_queued(run, Model.objects.get(slug="big"), "big-us", None)


def test_what_waits_where_it_may_not_be_comes_home(owner: User) -> None:
    run, other = waiting(owner), waiting(person())
    fill("big-eu")
    assert take() == 2
    owner.organisation = Organisation.objects.create(name="Acme", residency="eu")
    owner.save()
    Replica.objects.filter(pool="big-eu").delete()
    assert fallback.move_stranded_runs() == 1
    assert places(run) == [1, None, None]
    assert row_of(run).notices == [
        other_region_notice("us"),
        other_region_notice("eu", is_home=True),
    ]
    assert places(other) == [None, 1, None]


def test_only_pools_of_the_same_model_in_other_regions_lend(owner: User) -> None:
    Pool.objects.create(slug="big-us-2", model_id="big", region="us", profile="sim")
    alive("big-us-2")
    assert scheduler_sync().rebuild("big-us-2", list)
    fill("big-us-2")
    run = waiting(owner)
    assert runs.move_queued(run, Model.objects.get(slug="big"), "big-us-2", None)
    reaper.sweep()
    assert borrow.borrower("small-us") is None
    assert take("big-us") == 0
    assert take("big-eu") == 1
    Pool.objects.filter(slug="big-eu").update(is_paused=True)
    assert borrow.borrower("big-eu") is None


def test_who_is_at_their_cap_there_waits_at_home(owner: User) -> None:
    first, _ = waiting(owner), waiting(owner)
    fill("big-eu")
    entry = launch.queue_entry(first)
    with Redis.from_url(settings.REDIS_URL) as client:
        client.hset("{pool:big-us}:busy", f"u:{entry.user}", entry.cap - 1)
    assert take() == 1
    assert places(first) == [None, 1, None]


# --- two at once, and deaths ----------------------------------------------------------------------


def test_two_borrowers_race_for_one_run_and_one_wins(owner: User, second: Second) -> None:
    """The other one has moved the row, and has not committed when this one comes to it."""
    Pool.objects.create(slug="big-za", model_id="big", region="za", profile="sim")
    alive("big-za")
    assert scheduler_sync().rebuild("big-za", list)
    run = waiting(owner)
    fill("big-eu")
    with transaction.atomic():
        notice = other_region_notice("za")
        assert runs.move_queued(row_of(run), Model.objects.get(slug="big"), "big-za", notice)
        losing = second.start(take)
        second.wait_blocked()
    assert losing.result(30) == 0
    assert row_of(run).pool_id == "big-za"
    assert row_of(run).notices == [notice]
    reaper.sweep()
    assert places(run) == [None, None, None]
    assert scheduler_sync().position(run.external_id, "big-za") == 1


def test_a_claim_at_home_that_is_faster_keeps_the_run(owner: User, second: Second) -> None:
    run = waiting(owner)
    fill("big-eu")
    with transaction.atomic():
        assert runs.claim(run.id, "big-eu-1", pool="big-eu") is not None
        losing = second.start(take)
        second.wait_blocked()
    assert losing.result(30) == 0
    assert (row_of(run).status, row_of(run).pool_id) == ("running", "big-eu")


class Died(BaseException):
    """As kill -9: nothing after it is done, nothing catches it."""


@pytest.mark.parametrize("at", ["launch", "enqueued", "removed"])
def test_a_borrower_that_dies_between_the_moves_loses_nothing(
    owner: User, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    run = waiting(owner)
    fill("big-eu")

    def die(*_: object) -> None:
        if at == "enqueued":
            launch.launch(row_of(run))
        raise Died

    with monkeypatch.context() as patch:
        if at == "removed":
            patch.setattr(type(scheduler_sync()), "remove", die)
        else:
            patch.setattr(fallback, "launch", die)
        with pytest.raises(Died):
            take()
    assert row_of(run).pool_id == "big-us"
    assert places(run)[0] == 1, "it is in the old queue still"
    reaper.sweep()
    assert places(run) == [None, 1, None]
    assert events(run) == [(1, "start"), (2, "notice")]


def test_a_stop_between_the_moves_ends_it_behind_the_notice(
    owner: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = waiting(owner)
    fill("big-eu")
    real = runs.move_queued

    def move_and_stop(row: Run, *rest: Any) -> bool:
        moved = real(row, *rest)
        stop_run(row_of(row))
        return moved

    monkeypatch.setattr(runs, "move_queued", move_and_stop)
    assert take() == 1
    assert (row_of(run).status, row_of(run).last_seq) == ("stopped", 3)
    assert events(run) == [(1, "start"), (2, "notice"), (3, "done")]
    assert places(run) == [None, None, None]


def test_one_that_makes_trouble_does_not_stop_the_others(
    owner: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, other = waiting(owner), waiting(person())
    fill("big-eu")
    real = launch.launch

    def failing(run: Run) -> None:
        if run.id == first.id:
            raise ValueError(run)
        real(run)

    monkeypatch.setattr(fallback, "launch", failing)
    assert take(most=1) == 1
    assert places(other) == [None, 1, None]


def test_what_waits_by_its_row_is_never_dropped(owner: User) -> None:
    run = waiting(owner)
    assert fallback.drop_strays("big-eu") == 0
    claimed = runs.claim(run.id, "r", pool="big-eu")
    assert claimed is not None
    assert fallback.drop_strays("big-eu") == 0, "it may have been put back"
    Run.objects.filter(id=run.id).update(pool="big-us")
    assert fallback.drop_strays("big-eu") == 1
    assert places(run) == [None, None, None]


# --- where it is warm -----------------------------------------------------------------------------


def answered(owner: User, pool: str, conversation: uuid.UUID | None = None, **age: float) -> Run:
    """A run that was answered in this pool so long ago; in a new conversation, or this one."""
    named = external_id("c", conversation) if conversation else None
    run = ask(owner, conversation=named)
    Run.objects.filter(id=run.id).update(pool=pool)
    claimed = runs.claim(run.id, f"{pool}-1", pool=pool)
    assert claimed is not None
    assert runs.finish(claimed, runs.Outcome("stop", "text", 2)) is not None
    Run.objects.filter(id=run.id).update(finished_at=timezone.now() - timedelta(**age))
    return run


def test_a_conversation_stays_where_it_is_warm(owner: User) -> None:
    run = answered(owner, "big-us", seconds=regions.WARM_S - 60)
    assert warm_pool(owner.id, run.conversation_id, "eu") == "big-us"
    assert warm_pool(owner.id, run.conversation_id, "us") is None, "it is at home there"
    assert warm_pool(person().id, run.conversation_id, "eu") is None
    Run.objects.filter(id=run.id).update(
        finished_at=timezone.now() - timedelta(seconds=regions.WARM_S + 60)
    )
    assert warm_pool(owner.id, run.conversation_id, "eu") is None


def test_the_last_one_that_an_engine_has_seen_says_where(owner: User) -> None:
    first = answered(owner, "big-us", seconds=10)
    second_ = answered(owner, "big-eu", first.conversation_id, seconds=5)
    assert warm_pool(owner.id, first.conversation_id, "eu") is None
    assert warm_pool(owner.id, second_.conversation_id, "us") == "big-eu"
    stopped = ask(owner, conversation=external_id("c", first.conversation_id))
    Run.objects.filter(id=stopped.id).update(pool="big-us")
    stop_run(row_of(stopped))
    assert warm_pool(owner.id, first.conversation_id, "us") == "big-eu", "nobody has begun it"


def test_one_that_is_being_written_keeps_it_warm(owner: User) -> None:
    run = ask(owner)
    Run.objects.filter(id=run.id).update(pool="big-us")
    assert runs.claim(run.id, "r", pool="big-us") is not None
    assert warm_pool(owner.id, run.conversation_id, "eu") == "big-us"


def test_it_is_one_cheap_query(
    owner: User, django_assert_num_queries: Callable[[int], Any]
) -> None:
    with django_assert_num_queries(1):
        assert warm_pool(owner.id, uuid.uuid4(), "eu") is None


def test_a_route_without_a_pool_is_unknown() -> None:
    Model.objects.create(slug="bare", title="Bare")
    with pytest.raises(UnknownModel):
        route(Model.objects.get(slug="bare"))


# --- a residency that comes late ------------------------------------------------------------------


def pin(owner: User, region: str) -> None:
    owner.organisation = Organisation.objects.create(name="Acme", residency=region)
    owner.save()


def test_nobody_begins_a_run_where_it_may_not_be(owner: User) -> None:
    """Whatever queue it stands in, and also one that another has begun: the claim asks."""
    queued, begun = waiting(owner), waiting(owner)
    assert runs.claim(begun.id, "big-eu-1", pool="big-eu") is not None
    pin(owner, "us")
    assert runs.claim(queued.id, "big-eu-1", pool="big-eu") is None
    assert runs.take_over(begun.id, 1, "big-eu-2", pool="big-eu") is None
    assert runs.take_over(begun.id, 1, "reaper") is not None, "to end it"
    assert fallback.move_stranded_runs() == 1
    assert runs.claim(queued.id, "big-us-1", pool="big-us") is not None


def test_what_no_allowed_region_serves_ends_and_says_why(owner: User) -> None:
    run = waiting(owner)
    pin(owner, "nowhere")
    assert fallback.move_stranded_runs() == 1
    ended = row_of(run)
    assert (ended.status, ended.finish, ended.error_code) == ("failed", "error", "not_in_region")
    assert events(run) == [(1, "start"), (2, "error"), (3, "done")]
    assert places(run) == [None, None, None]
    assert fallback.move_stranded_runs() == 0


def test_a_conversation_that_is_warm_away_is_not_lent_on(owner: User) -> None:
    first = answered(owner, "big-us", seconds=10)
    Pool.objects.create(slug="big-asia", model_id="big", region="asia", profile="sim")
    assert scheduler_sync().rebuild("big-asia", list)
    alive("big-asia")
    run = ask(owner, conversation=external_id("c", first.conversation_id))
    choice = Choice(Model.objects.get(slug="big"), (Pool.objects.get(slug="big-us"),))
    assert fallback.move(row_of(run), choice) or row_of(run).pool_id == "big-us"
    Run.objects.filter(id=run.id).update(queued_at=timezone.now() - LONG_AGO)
    fill("big-us")
    assert take("big-asia") == 0
    assert row_of(run).pool_id == "big-us"
