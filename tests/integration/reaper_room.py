"""A pool, somebody, and runs in PostgreSQL as they are left behind, for tests of the reaper."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings
from django.utils import timezone
from redis import Redis

from accounts.models import User
from conversations import services
from conversations.content import text_content
from generation.models import Model, Pool, Run
from generation.run_state import EPOCHS_MAX
from generation.scheduler import scheduler_sync
from tests.people import make_person

POOL = "reaped"


@pytest.fixture(name="pool")
def pool_fixture() -> Iterator[Pool]:
    with Redis.from_url(settings.REDIS_URL) as client:
        client.flushdb()
        model = Model.objects.create(slug="m", title="M", is_default=True)
        made = Pool.objects.create(slug=POOL, model=model, profile="sim")
        assert scheduler_sync().rebuild(POOL, list)
        yield made
        client.flushdb()


@pytest.fixture(name="owner")
def owner_fixture() -> User:
    return make_person().user


def make_run(owner: User, *, status: str = "running", age_s: float = 60, **fields: Any) -> Run:
    """A running one has its last owner, or that of `epoch`."""
    conversation = services.create_conversation(owner)
    message = services.add_user_message(conversation, None, text_content("Hello"))
    services.set_active_leaf(conversation.id, message.id)
    then = timezone.now() - timedelta(seconds=age_s)
    return Run.objects.create(
        owner=owner,
        conversation=conversation,
        parent=message,
        model_asked="m",
        model_used="m",
        pool_id=POOL,
        status=status,
        epoch=fields.pop("epoch", EPOCHS_MAX) if status == "running" else 0,
        claimed_at=then if status == "running" else None,
        queued_at=then,
        **fields,
    )
