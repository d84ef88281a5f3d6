"""The rows of bench/gateway: many people, each with a few answers that are being written.

Import it once Django is set up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from django.db.models.functions import Now

from accounts import tokens
from accounts.ids import new_id
from accounts.models import User
from conversations.content import text_content
from conversations.models import Conversation, Message
from conversations.sealed import seal_parts, seal_title
from generation.models import Model, Pool, Run

RUNS_OF_ONE: Final = 10
"""Of one person: far below MAX_STREAMS_PER_USER, and as many credentials as many people have."""


@dataclass(frozen=True, slots=True)
class LiveRun:
    """A run and the API token of its owner."""

    run: str
    secret: str


def make_runs(count: int) -> list[LiveRun]:
    """So many running runs, as a worker's claim leaves them."""
    model = Model.objects.create(slug="bench", title="Bench", is_default=True)
    pool = Pool.objects.create(slug="bench", model=model, profile="none")
    made: list[LiveRun] = []
    while len(made) < count:
        user = User.objects.create_user(f"bench-{len(made)}@example.org", None, name="Bench")
        _, secret = tokens.create(user, "bench")
        wanted = min(RUNS_OF_ONE, count - len(made))
        made += [LiveRun(run.external_id, secret) for run in _runs_of(user, pool, wanted)]
    return made


def _runs_of(user: User, pool: Pool, count: int) -> list[Run]:
    threads = [
        Conversation(id=row_id, owner=user, title=seal_title(user.pk, row_id, "Live"))
        for row_id in (new_id() for _ in range(count))
    ]
    messages = [
        Message(
            id=row_id,
            owner=user,
            conversation=thread,
            role="user",
            content=seal_parts(user.pk, row_id, text_content("Go on.")),
        )
        for thread, row_id in ((thread, new_id()) for thread in threads)
    ]
    Conversation.objects.bulk_create(threads)
    Message.objects.bulk_create(messages)
    return Run.objects.bulk_create(
        Run(
            owner=user,
            conversation=message.conversation,
            parent=message,
            model_asked=pool.model_id,
            model_used=pool.model_id,
            pool=pool,
            status="running",
            epoch=1,
            claimed_at=Now(),
        )
        for message in messages
    )
