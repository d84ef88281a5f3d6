"""A long conversation for bench/page and the page's tests: Markdown of every kind, written in bulk.

Import it once Django is set up.
"""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Final
from uuid import UUID

from django.utils import timezone

from accounts.ids import external_id, new_id
from accounts.models import User
from conversations.content import text_content
from conversations.models import Conversation, Message
from conversations.sealed import seal_parts, seal_title
from generation.models import Pool, Run

WORDS: Final = tuple(
    "the a of and fugue subject answer voice enters after bar while counterpoint holds against it "  # noqa: SIM905
    "which is why every entry must be heard again in another key before the stretto begins".split()
)
CODE_EVERY: Final = 5
TABLE_EVERY: Final = 7
"""Every so many replies, one has a block of code, or a table."""


def make_long_thread(user: User, length: int) -> str:
    """A conversation of `length` messages, questions and answers in turn; its external id.

    Message n begins with "Message n.".
    """
    dice = random.Random(7)
    ids = [new_id() for _ in range(length)]
    row_id = new_id()
    thread = Conversation.objects.create(
        id=row_id,
        owner=user,
        title=seal_title(user.pk, row_id, "A long conversation"),
        active_leaf_id=ids[-1],
        last_activity=timezone.now() - timedelta(hours=1),
    )
    places = list(zip(range(length), ids, [None, *ids], strict=False))
    Message.objects.bulk_create(
        Message(
            id=own,
            owner=user,
            conversation=thread,
            parent_id=parent,
            role="assistant" if number % 2 else "user",
            content=seal_parts(user.pk, own, text_content(_text(dice, number))),
        )
        for number, own, parent in places
    )
    _make_runs(thread, [(own, parent) for number, own, parent in places if number % 2 and parent])
    return external_id("c", row_id)


def _make_runs(thread: Conversation, replies: list[tuple[UUID, UUID]]) -> None:
    pool = Pool.objects.order_by("slug")[0]
    queued = thread.last_activity
    Run.objects.bulk_create(
        Run(
            owner_id=thread.owner_id,
            conversation=thread,
            parent_id=parent,
            reply_id=own,
            model_asked=pool.model_id,
            model_used=pool.model_id,
            pool=pool,
            status="completed",
            finish="stop",
            epoch=1,
            last_seq=40,
            prompt_tokens=1_000,
            cached_tokens=640,
            output_tokens=200,
            queued_at=queued,
            claimed_at=queued,
            first_text_at=queued + timedelta(seconds=1.2),
            finished_at=queued + timedelta(seconds=13),
        )
        for own, parent in replies
    )


def _text(dice: random.Random, number: int) -> str:
    if number % 2 == 0:
        return f"Message {number}. {_words(dice, 4, 60)}?"
    reply = number // 2
    parts = [f"Message {number}. {_words(dice, 20, 120)}."]
    parts += [
        f"**{_words(dice, 2, 5)}**: {_words(dice, 20, 90)}." for _ in range(dice.randint(0, 3))
    ]
    parts.append("\n".join(f"- {_words(dice, 3, 14)}" for _ in range(dice.randint(2, 6))))
    if reply % CODE_EVERY == 0:
        lines = (
            f"    voice_{at} = enter({at}, key={at % 12})" for at in range(dice.randint(4, 24))
        )
        parts.append("```python\ndef fugue():\n" + "\n".join(lines) + "\n```")
    if reply % TABLE_EVERY == 0:
        rows = "\n".join(f"| {at} | {_words(dice, 1, 3)} |" for at in range(4))
        parts.append(f"| bar | what |\n| --- | --- |\n{rows}")
    return "\n\n".join(parts)


def _words(dice: random.Random, least: int, most: int) -> str:
    return " ".join(dice.choices(WORDS, k=dice.randint(least, most)))
