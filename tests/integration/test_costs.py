"""What a run costs is worked out at its end, kept, and not changed by later prices."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction

from generation import runs
from generation.models import Model, Pool, Run
from quotas.models import Plan, PlanModel, Subscription, UsageEntry
from tests.integration.tree_room import POOL, ask, claim, empty_queues
from tests.people import make_person

pytestmark = pytest.mark.django_db
PRICES = {
    "price_input": Decimal("0.15"),
    "price_cached": Decimal("0.05"),
    "price_cache_write": Decimal("0.2"),
    "price_output": Decimal("0.6"),
}


@pytest.fixture(autouse=True)
def queues() -> Iterator[None]:
    with empty_queues():
        Model.objects.filter(slug=POOL).update(**PRICES)
        yield


def ended(**used: Any) -> Run:
    run = ask(make_person("owner").user)
    tokens = {"prompt_tokens": 100, "cached_tokens": 60, "output_tokens": 7, **used}
    assert runs.finish(claim(run), runs.Outcome("stop", "Answer", 9, **tokens)) is not None
    run.refresh_from_db()
    return run


def test_a_run_and_its_usage_entry_keep_the_cost_of_their_end() -> None:
    run = ended()
    # 40 · 0.15 + 60 · 0.05 + 7 · 0.6 = 13.2 millionths
    assert run.cost == Decimal("0.0000132")
    assert UsageEntry.objects.get(run_id=run.id).cost == run.cost
    Model.objects.filter(slug=POOL).update(price_input=Decimal(99))
    run.refresh_from_db()
    assert run.cost == Decimal("0.0000132")
    assert ended().cost == Decimal("0.0039672")


def test_no_answer_no_cost() -> None:
    assert ended(output_tokens=0).cost == 0


def test_a_run_stopped_in_the_queue_costs_nothing() -> None:
    run = ask(make_person("owner").user)
    assert runs.end_queued(run.id, runs.Outcome("user_stopped", "", 2)) is not None
    run.refresh_from_db()
    assert run.cost == 0


def test_a_model_that_is_gone_has_no_price() -> None:
    run = ask(make_person("owner").user)
    Run.objects.filter(id=run.id).update(model_used="gone")
    assert runs.finish(claim(run), runs.Outcome("stop", "Answer", 9, 5, 0, 5)) is not None
    run.refresh_from_db()
    assert run.cost is None
    assert UsageEntry.objects.get(run_id=run.id).cost is None


def test_prices_are_never_negative() -> None:
    with pytest.raises(IntegrityError), transaction.atomic():
        Model.objects.filter(slug=POOL).update(price_output=Decimal(-1))
    model = Pool.objects.get(slug=POOL).model
    model.price_output = Decimal(-1)
    with pytest.raises(ValidationError):
        model.full_clean()


# --- plans ----------------------------------------------------------------------------------------


def plan(**fields: Any) -> Plan:
    return Plan(**{"slug": "mine", "title": "Mine", "smaller_model": "small", **fields})


@pytest.mark.parametrize(
    ("fields", "wrong"),
    [
        ({"weight": 0}, "weight"),
        ({"window_s": 1}, "window_s"),
        ({"concurrent_runs": 0}, "concurrent_runs"),
        ({"tokens_per_minute": 0}, "tokens_per_minute"),
        ({"ttft_deadline_ms": 1}, "ttft_deadline_ms"),
        ({"context_tokens": 512, "answer_tokens": 512}, "__all__"),
        ({"smaller_model": ""}, "smaller_model"),
        ({"at_limit": "shrug"}, "at_limit"),
        ({"smaller_model": "no slug"}, "smaller_model"),
    ],
)
def test_a_plan_that_cannot_be_is_refused(fields: dict[str, Any], wrong: str) -> None:
    with pytest.raises(ValidationError) as refused:
        plan(**fields).full_clean()
    assert set(refused.value.message_dict) == {wrong}


def test_a_plan_that_refuses_needs_no_smaller_model() -> None:
    plan(at_limit="refuse", smaller_model="").full_clean()


def test_one_plan_is_the_default_and_names_a_model_once() -> None:
    first = plan()
    first.save()
    with pytest.raises(ValidationError, match="default"):
        plan(slug="plus", is_default=True).full_clean()
    PlanModel.objects.create(plan=first, model="large", messages=10)
    with pytest.raises(IntegrityError), transaction.atomic():
        PlanModel.objects.create(plan=first, model="large")
    with pytest.raises(IntegrityError), transaction.atomic():
        PlanModel.objects.create(plan=first, model="small", messages=0)


def test_a_user_has_one_plan() -> None:
    first, user = plan(), make_person("owner").user
    first.save()
    Subscription.objects.create(user=user, plan=first)
    with pytest.raises(IntegrityError), transaction.atomic():
        Subscription.objects.create(user=user, plan=first)
