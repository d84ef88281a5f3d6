"""The chores and `ensure_demo`, on a real PostgreSQL."""

from __future__ import annotations

import json
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from conversations.models import Conversation, Message
from generation import tasks
from generation.models import IdempotencyKey, Model, Pool, Run
from tests.people import make_person

pytestmark = pytest.mark.django_db


def ensure_demo(settings: Any, **profiles: dict[str, object]) -> str:
    settings.ENGINE_PROFILES = json.dumps(profiles)
    out = StringIO()
    call_command("ensure_demo", stdout=out)
    return out.getvalue()


SIM: dict[str, object] = {"kind": "simulated"}


def test_every_profile_gets_a_model_and_a_pool(settings: Any) -> None:
    out = ensure_demo(
        settings,
        demo={**SIM, "model": "Qwen/Qwen2.5-0.5B", "context_tokens": 2048},
        second={**SIM, "model": "other", "context_tokens": 32_768},
    )
    assert "Created pool demo for model qwen-qwen2-5-0-5b" in out
    first, second = Model.objects.get(slug="qwen-qwen2-5-0-5b"), Model.objects.get(slug="other")
    assert (first.title, first.context_tokens, first.answer_tokens) == (
        "Qwen/Qwen2.5-0.5B",
        2048,
        512,
    )
    assert (first.is_default, second.is_default) == (True, False)
    assert second.answer_tokens == 1024
    assert Pool.objects.get(slug="demo").model == first
    assert Pool.objects.get(slug="second").profile == "second"


def test_a_second_time_changes_nothing(settings: Any) -> None:
    ensure_demo(settings, demo={**SIM, "model": "m"})
    Model.objects.filter(slug="m").update(title="Ours", enabled=False, is_default=False)
    Pool.objects.filter(slug="demo").update(region="eu", silence_s=7)
    assert ensure_demo(settings, demo={**SIM, "model": "another", "context_tokens": 999}) == ""
    model = Model.objects.get()
    assert (model.slug, model.title, model.enabled, model.is_default) == ("m", "Ours", False, False)
    pool = Pool.objects.get()
    assert (pool.region, pool.silence_s) == ("eu", 7)


def test_two_profiles_may_serve_one_model(settings: Any) -> None:
    ensure_demo(settings, one={**SIM, "model": "m"}, two={**SIM, "model": "m"})
    assert Model.objects.get().pools.count() == 2


@pytest.mark.parametrize(
    "profiles", ["{", '{"a.b": {"kind": "simulated"}}', '{"a": {"kind": "x"}}']
)
def test_a_profile_that_cannot_be_served_is_named(settings: Any, profiles: str) -> None:
    settings.ENGINE_PROFILES = profiles
    with pytest.raises(CommandError):
        call_command("ensure_demo", stdout=StringIO())
    assert not Pool.objects.exists()


@pytest.fixture
def run(settings: Any) -> Run:
    ensure_demo(settings, demo={**SIM, "model": "m"})
    user = make_person().user
    conversation = Conversation.objects.create(owner=user)
    parent = Message.objects.create(
        owner=user, conversation=conversation, role="user", content=b"sealed"
    )
    return Run.objects.create(
        owner=user,
        conversation=conversation,
        parent=parent,
        model_asked="m",
        model_used="m",
        pool_id="demo",
    )


def test_old_idempotency_keys_are_forgotten_in_batches(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "KEYS_BATCH", 3)
    now = timezone.now()
    for number in range(10):
        age = timedelta(hours=25) if number < 7 else timedelta(hours=23)
        IdempotencyKey.objects.create(
            user=run.owner, key=f"k{number}", body_digest=b"", run=run, created=now - age
        )
    assert tasks.forget_idempotency_keys() == 7
    assert set(IdempotencyKey.objects.values_list("key", flat=True)) == {"k7", "k8", "k9"}
    assert tasks.forget_idempotency_keys() == 0


def test_one_round_has_an_end(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "KEYS_BATCH", 1)
    monkeypatch.setattr(tasks, "KEYS_BATCHES", 2)
    old = timezone.now() - timedelta(days=3)
    for number in range(5):
        IdempotencyKey.objects.create(
            user=run.owner, key=f"k{number}", body_digest=b"", run=run, created=old
        )
    assert tasks.forget_idempotency_keys() == 2
    assert IdempotencyKey.objects.count() == 3


def test_the_sweep_is_the_reapers(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[str] = []
    monkeypatch.setattr("generation.reaper.sweep", lambda: called.append("sweep"))
    tasks.sweep()
    assert called == ["sweep"]
