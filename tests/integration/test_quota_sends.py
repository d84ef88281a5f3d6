"""Sends under a plan: what may be chosen, what is held, what comes back, and what is settled."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.conf import settings
from django.db import OperationalError, connection, connections
from django.test import Client
from redis import Redis

from accounts.errors import KeyReused, Unavailable
from accounts.ids import new_id
from accounts.models import User
from conversations.content import text_content
from conversations.models import Message
from generation import admission, reserving, runs, settling
from generation import begin as begin_module
from generation.catalogue import choose, offer_for
from generation.exceptions import AtLimit, InvalidParent, NoPlan, UnknownModel
from generation.models import Model, Run
from generation.regenerate import RegenerateRequest, regenerate
from generation.reserving import standing_of
from generation.scheduler import Limits as QueueLimits
from generation.scheduler import scheduler_sync
from generation.stopping import stop_run
from generation.wish import Wish
from quotas.counters import INDEX, counters, keys
from quotas.limits import Standing
from quotas.models import Plan, PlanModel, Subscription
from tests.integration.tree_room import POOL, ask, claim, conversation_id, empty_queues, message_id
from tests.people import bearer, make_person

pytestmark = pytest.mark.django_db(transaction=True)

SYSTEM_BYTES = len(settings.SYSTEM_PROMPT.encode())


@pytest.fixture(autouse=True)
def queues() -> Iterator[None]:
    with empty_queues():
        yield


@pytest.fixture(autouse=True)
def stopped_clock() -> Iterator[None]:
    """Buckets lose nothing while a test runs, but by `later`."""
    counters().clock_ms = int(time.time() * 1_000)
    yield
    counters().clock_ms = None


def later(ms: int) -> None:
    counters().clock_ms = (counters().clock_ms or 0) + ms


@pytest.fixture
def owner() -> User:
    return make_person("owner").user


def put_on(user: User, **fields: Any) -> Plan:
    """A plan of their own, without limits but for these."""
    values = {"title": "Mine", "at_limit": "refuse", "context_tokens": 4_000, "answer_tokens": 500}
    plan = Plan.objects.create(slug=f"p{user.id.hex[-12:]}", **{**values, **fields})
    Subscription.objects.create(user=user, plan=plan)
    return plan


def standing(user: User) -> Standing:
    return standing_of(user, offer_for(user))


def used(user: User) -> tuple[int, int, int]:
    """Messages to the default model, tokens and requests."""
    now = standing(user)
    assert now.tokens is not None
    assert now.requests is not None
    return now.messages[POOL].used, now.tokens.used, now.requests.used


def held_by(user: User) -> list[Any]:
    return counters().open_runs([user.id])[0]


LIMITED: dict[str, Any] = {"messages": 5, "tokens_per_minute": 12_000, "requests_per_minute": 50}


def end(run: Run, **outcome: Any) -> None:
    """As its owner does."""
    values = {"prompt_tokens": 30, "output_tokens": 7, **outcome}
    ended = runs.Outcome("stop", "Answer", 9, **values)
    assert runs.finish(claim(run), ended) is not None
    settling.settle_as(run.owner_id, run.id, ended)


# --- terms ----------------------------------------------------------------------------------------


def test_only_models_of_the_plan_can_be_chosen(owner: User) -> None:
    plan = put_on(owner)
    PlanModel.objects.create(plan=plan, model="other")
    offer = offer_for(owner)
    assert [model.slug for model, _ in offer.models] == ["other"]
    assert choose(offer, None).model.slug == "other", "the first one, where it has no default"
    with pytest.raises(UnknownModel):
        ask(owner, model=POOL)


def test_a_model_that_the_plan_has_lost_is_not_regenerated(owner: User) -> None:
    plan = put_on(owner)
    run = ask(owner)
    end(run)
    PlanModel.objects.create(plan=plan, model="other")
    wanted = RegenerateRequest(conversation_id(run), message_id(run.parent_id), None, None)
    assert regenerate(owner, wanted).model_used == "other"


def test_nobody_without_a_plan_is_answered(owner: User) -> None:
    Plan.objects.all().delete()
    with pytest.raises(NoPlan):
        ask(owner)
    assert not Run.objects.exists()


def test_a_run_keeps_what_its_plan_has_given_it(owner: User) -> None:
    Model.objects.filter(slug=POOL).update(context_tokens=2_000, answer_tokens=900)
    plan = put_on(owner, ttft_deadline_ms=1_234)
    run = ask(owner)
    given = (run.plan, run.context_tokens, run.answer_tokens, run.ttft_deadline_ms)
    assert given == (plan.slug, 2_000, 500, 1_234)
    assert run.reserved_tokens == SYSTEM_BYTES + len("Hello") + 64 + 500
    Plan.objects.filter(slug=plan.slug).update(context_tokens=600, answer_tokens=100)
    assert claim(run).context_tokens == 2_000, "as it was when it was sent"


def test_terms_cost_no_round_trip_of_their_own(owner: User) -> None:
    put_on(owner)
    with connection.execute_wrapper(_count := _Counter()):
        ask(owner, key="a")
    # The look-up is one pipeline of three, as choices alone were one query before.
    assert _count.pipelines <= 2
    assert _count.outside <= 1, "how many live runs there are"


class _Counter:
    """How many statements went alone, and in how many pipelines the others."""

    def __init__(self) -> None:
        self.outside = 0
        self.pipelines = 0
        self._seen: set[int] = set()

    def __call__(self, execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        pipeline = connection.connection._pipeline
        if pipeline is None:
            self.outside += 0 if sql.startswith(("SAVEPOINT", "RELEASE", "BEGIN")) else 1
        elif id(pipeline) not in self._seen:
            self._seen.add(id(pipeline))
            self.pipelines += 1
        return execute(sql, params, many, context)


def test_the_list_of_models_is_the_plans() -> None:
    person = make_person("owner")
    plan = put_on(person.user, context_tokens=900)
    PlanModel.objects.create(plan=plan, model="other")
    (only,) = Client().get("/v1/models", headers=bearer(person)).json()["data"]
    assert (only["id"], only["default"], only["context_tokens"]) == ("other", True, 900)


def test_who_has_no_plan_is_told_whom_to_ask() -> None:
    person = make_person("owner")
    Plan.objects.all().delete()
    url = "/v1/conversations/new/messages"
    answer = Client().post(url, {"content": "x"}, "application/json", headers=bearer(person))
    assert answer.status_code == 403
    assert answer.json()["error"]["code"] == "no_plan"
    assert "administrator" in answer.json()["error"]["message"]
    assert Client().get("/v1/models", headers=bearer(person)).json()["data"] == []
    told = Client().get("/v1/usage", headers=bearer(person)).json()
    assert told["plan"] == {"slug": "", "title": "No plan"}


def test_a_refusal_for_another_reason_tells_the_limits_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    person = make_person("owner")
    put_on(person.user, **LIMITED)
    monkeypatch.setattr(scheduler_sync(), "_limits", QueueLimits(per_pool=9, per_user=0))
    url = "/v1/conversations/new/messages"
    answer = Client().post(url, {"content": "x"}, "application/json", headers=bearer(person))
    assert (answer.status_code, answer.json()["error"]["code"]) == (429, "too_many_live_runs")
    assert answer.headers["x-ratelimit-remaining-requests"] == "5"
    assert held_by(person.user) == []


# --- what is held ---------------------------------------------------------------------------------


def test_a_send_holds_its_largest_cost_and_settles_the_true_one(owner: User) -> None:
    put_on(owner, **LIMITED)
    run = ask(owner)
    assert held_by(owner) == [run.id]
    assert used(owner) == (1, run.reserved_tokens, 1)
    end(run)
    assert held_by(owner) == []
    assert used(owner) == (1, 37, 1)
    settling.settle_as(owner.id, run.id, runs.Outcome("stop", "", 9, 3_000, 0, 1))
    assert used(owner) == (1, 37, 1), "once"


def test_the_next_turn_is_estimated_by_what_the_last_one_cost(owner: User) -> None:
    put_on(owner, **LIMITED)
    run = ask(owner)
    end(run, prompt_tokens=300, output_tokens=40)
    conversation = run.conversation
    answer: dict[str, Any] = {"conversation": conversation, "parent_id": run.reply_id}
    assert ask(owner, **answer).reserved_tokens == 300 + 40 + 5 + 64 + 500
    assert ask(owner, **answer, model="other").reserved_tokens == 4_000, "other tokens"
    wanted = RegenerateRequest(conversation_id(run), message_id(run.reply_id), None, None)
    assert regenerate(owner, wanted).reserved_tokens == 300 + 64 + 500
    Run.objects.filter(id=run.id).update(prompt_tokens=0)
    assert ask(owner, **answer).reserved_tokens == 4_000, "nobody knows"


def test_no_answer_is_not_charged(owner: User) -> None:
    put_on(owner, **LIMITED)
    run = ask(owner)
    stop_run(run)
    assert held_by(owner) == []
    assert used(owner) == (0, 0, 1)


def test_a_send_that_fails_gives_everything_back(owner: User) -> None:
    put_on(owner, **LIMITED)
    with pytest.raises(InvalidParent):
        ask(owner, parent_id=new_id())
    assert held_by(owner) == []
    assert used(owner) == (0, 0, 0)


def test_at_a_limit_nothing_is_written(owner: User) -> None:
    put_on(owner, **{**LIMITED, "messages": 1})
    ask(owner)
    with pytest.raises(AtLimit) as refused:
        ask(owner)
    error = refused.value
    assert error.code == "quota_exceeded"
    assert error.message.startswith("You have used your message to tree for now. Try again in ")
    assert error.retry_after_s == 3 * 3600
    assert Run.objects.count() == 1
    assert Message.objects.count() == 1


@pytest.mark.parametrize(
    ("limit", "code"),
    [
        ({"requests_per_minute": 1}, "rate_limited"),
        ({"tokens_per_minute": 10}, "tokens_per_minute"),
    ],
)
def test_each_limit_has_its_code(owner: User, limit: dict[str, int], code: str) -> None:
    put_on(owner, **limit)
    ask(owner)
    with pytest.raises(AtLimit) as refused:
        ask(owner)
    assert refused.value.code == code
    assert refused.value.retry_after_s == 60
    later(59_999)
    with pytest.raises(AtLimit):
        ask(owner)
    later(1)
    ask(owner)


def test_the_smaller_model_answers_and_says_so(owner: User) -> None:
    plan = put_on(owner, at_limit="smaller_model", smaller_model="other", messages=1)
    first, second = ask(owner), ask(owner)
    assert (first.model_used, first.notices) == (POOL, [])
    assert (second.model_asked, second.model_used, second.pool_id) == (POOL, "other", "other")
    (notice,) = second.notices
    assert notice["code"] == "smaller_model"
    assert (notice["model"], notice["instead_of"]) == ("other", POOL)
    assert notice["text"] == (
        "You have used your message to tree for now; other answers. tree is back in 3 hours."
    )
    assert notice["back_at"] > second.queued_at.isoformat()
    assert second.opening_seq == 2
    with pytest.raises(AtLimit):
        ask(owner)
    PlanModel.objects.create(plan=plan, model=POOL)
    with pytest.raises(AtLimit):
        ask(owner)  # the plan has lost it


# --- twins ----------------------------------------------------------------------------------------


def test_a_retry_is_never_refused(owner: User) -> None:
    put_on(owner, messages=1)
    run = ask(owner, key="a")
    assert ask(owner, key="a").id == run.id
    with pytest.raises(KeyReused):
        ask(owner, key="a", parts=text_content("Other"))


def test_a_twin_that_looked_too_early_is_not_refused(
    owner: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It finds no key; then its twin is saved, ends and is settled, and the limit is used up."""
    put_on(owner, messages=1)
    looked = admission.admit
    first: list[Run] = []

    def saved_meanwhile(user: User, wish: Wish) -> Wish:
        monkeypatch.setattr(begin_module, "admit", looked)
        first.append(ask(owner, key="a"))
        end(first[0])
        return looked(user, wish)

    monkeypatch.setattr(begin_module, "admit", saved_meanwhile)
    assert ask(owner, key="a").id == first[0].id


def test_a_twin_outlives_the_failure_of_the_first(
    owner: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both hold the same run; the first one fails after the second has joined, and lets go before
    the second commits: the reservation stays."""
    put_on(owner, **{**LIMITED, "messages": 1})
    save = begin_module._save
    second: list[Run] = []

    def failing(*args: Any) -> Run:
        def joined(*more: Any) -> Run:
            monkeypatch.setattr(begin_module, "_save", save)
            holder = args[2]
            reserving.let_go(owner, holder, RuntimeError())
            assert held_by(owner) == [holder.run_id]
            return save(*more)

        monkeypatch.setattr(begin_module, "_save", joined)
        second.append(ask(owner, key="a"))
        raise RuntimeError("the first one fails")

    monkeypatch.setattr(begin_module, "_save", failing)
    with pytest.raises(RuntimeError):
        ask(owner, key="a")
    assert held_by(owner) == [second[0].id]
    with pytest.raises(AtLimit):
        ask(owner)


def test_a_failure_that_nobody_can_judge_is_left_to_the_sweep(
    owner: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection breaks at the commit: the row may be there a moment later."""
    put_on(owner, **LIMITED)

    def broken(*_: Any) -> Run:
        raise OperationalError("the connection is lost")

    monkeypatch.setattr(begin_module, "_save", broken)
    with pytest.raises(OperationalError):
        ask(owner)
    (run_id,) = held_by(owner)
    later(29_000)
    assert settling.sweep() == 0
    later(1_000 + settling.LOOK_AFTER_MS)
    assert settling.sweep() == 1
    assert used(owner) == (0, 0, 0)
    assert run_id not in held_by(owner)


def test_a_send_that_stood_still_is_not_saved_without_a_reservation(
    owner: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_on(owner, **LIMITED)
    monkeypatch.setattr(reserving, "HELD_S", -1.0)
    with pytest.raises(Unavailable):
        ask(owner)
    assert not Run.objects.exists()
    assert held_by(owner) == []


def test_twenty_at_once_for_one_answer(owner: User) -> None:
    put_on(owner, messages=1)
    gate = threading.Barrier(20)

    def one(_: int) -> object:
        try:
            gate.wait()
            return ask(owner)
        except AtLimit as refused:
            return refused
        finally:
            connections.close_all()

    with ThreadPoolExecutor(20) as threads:
        answers = list(threads.map(one, range(20)))
    assert sum(isinstance(answer, Run) for answer in answers) == 1
    assert sum(isinstance(answer, AtLimit) for answer in answers) == 19
    assert Run.objects.count() == 1


# --- losses ---------------------------------------------------------------------------------------


def test_the_sweep_settles_what_its_owner_had_no_time_for(owner: User) -> None:
    put_on(owner, **LIMITED)
    ended, live, empty = ask(owner), ask(owner), ask(owner)
    assert runs.finish(claim(ended), runs.Outcome("stop", "Answer", 9, 30, 0, 7)) is not None
    assert runs.finish(claim(empty), runs.Outcome("user_stopped", "", 9)) is not None
    later(settling.LOOK_AFTER_MS + 10)
    assert settling.sweep() == 2
    assert held_by(owner) == [live.id]
    later(60_000)
    assert used(owner) == (2, 0, 0), "the buckets are empty by now"
    assert settling.sweep() == 0
    assert held_by(owner) == [live.id], "live runs stay"
    end(live)
    later(60_000)
    settling.sweep()
    with Redis.from_url(settings.REDIS_URL) as client:
        assert client.zscore(INDEX, owner.id.hex) is None, "nobody need look again"


@pytest.mark.parametrize("how", ["all", "marker", "plan"])
def test_lost_counters_are_built_from_the_ledger(owner: User, how: str) -> None:
    plan = put_on(owner, **{**LIMITED, "tokens_per_minute": 6_000, "requests_per_minute": 3})
    ended, live, empty = ask(owner), ask(owner), ask(owner)
    end(ended, prompt_tokens=900)
    end(empty, output_tokens=0)
    before = used(owner)
    with Redis.from_url(settings.REDIS_URL) as client:
        if how == "all":
            client.flushdb()
        elif how == "marker":
            client.delete(keys(owner.id, "built")[0])
        else:
            Plan.objects.filter(slug=plan.slug).update(window_s=plan.window_s // 2)
    after = used(owner)
    assert (after[0], after[2]) == (before[0], before[2]) == (2, 3)
    # The ages of runs are by the real clock.
    assert before[1] - 2_000 <= after[1] <= before[1]
    assert held_by(owner) == [live.id]
    end(live)
    assert held_by(owner) == []
    assert used(owner)[0] == 2


def test_without_limits_redis_is_not_asked(owner: User) -> None:
    put_on(owner)
    ask(owner)
    with Redis.from_url(settings.REDIS_URL) as client:
        assert client.keys(f"*{owner.id.hex}*") == [], "but for the queue"
        assert client.zscore(INDEX, owner.id.hex) is None


def test_limits_that_come_later_know_what_was_used_before(owner: User) -> None:
    plan = put_on(owner)
    ended, live = ask(owner), ask(owner)
    end(ended)
    Plan.objects.filter(slug=plan.slug).update(messages=2)
    with pytest.raises(AtLimit):
        ask(owner)
    assert held_by(owner) == [live.id]
