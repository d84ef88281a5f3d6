"""The rows of bench/history: one person's long conversation among many short ones.

Written as the product writes them (sealed titles and texts, a run for each reply), but in bulk.
Import it once Django is set up.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final
from uuid import UUID

from django.db import connection

from accounts import tokens
from accounts.ids import external_id, new_id
from accounts.models import User
from conversations.content import text_content
from conversations.list_cursor import Place, write_place
from conversations.models import Conversation, Feedback, Message
from conversations.sealed import seal_parts, seal_title
from generation.models import Model, Pool, Run

BEGAN: Final = datetime(2026, 1, 1, tzinfo=UTC)
WORDS: Final = tuple(
    "the a of and fugue subject answer voice enters after bar while counterpoint holds against it "  # noqa: SIM905
    "which is why every entry must be heard again in another key before the stretto begins".split()
)
QUESTION_WORDS: Final = (5, 60)
ANSWER_WORDS: Final = (40, 400)
REGENERATED: Final = 20
"""Every so many replies, one has another version."""


@dataclass(frozen=True, slots=True)
class ListPlace:
    """A place in the list, and the cursor that names it."""

    at: datetime
    id: UUID
    cursor: str = ""


@dataclass(frozen=True, slots=True)
class Rows:
    """What the bench asks for. `top` is above all conversations."""

    owner: UUID
    secret: str
    conversation: str
    leaf: UUID
    top: ListPlace
    listed: tuple[tuple[datetime, UUID], ...]

    def place(self, dice: random.Random) -> ListPlace:
        """Anywhere in the list, with at least a page below it."""
        at, row_id = self.listed[dice.randrange(max(1, len(self.listed) - 30))]
        cursor = write_place(self.owner, Place(at=at, id=row_id, began=self.listed[0][0]))
        return ListPlace(at, row_id, cursor)


def make_rows(messages: int, conversations: int) -> Rows:
    """One owner with `conversations` conversations, the newest of `messages` messages."""
    user = User.objects.create_user("bench@example.org", None, name="Bench")
    _, secret = tokens.create(user, "bench")
    listed = _make_list(user, conversations - 1)
    thread, leaf = _make_thread(user, messages)
    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE")
    listed.insert(0, (thread.last_activity, thread.pk))
    top = ListPlace(thread.last_activity + timedelta(days=1), thread.pk)
    return Rows(user.pk, secret, external_id("c", thread.pk), leaf, top, tuple(listed))


def _make_list(user: User, count: int) -> list[tuple[datetime, UUID]]:
    """Newest first. By COPY: Django's own bulk insert takes half a minute for them."""
    dice = random.Random(2)
    made = [(BEGAN + timedelta(minutes=number), new_id()) for number in range(count)]
    columns = (
        "id, owner_id, title, title_source, active_leaf_id, last_activity, earlier_activity, "
        "revision, created"
    )
    statement = f"COPY conversations_conversation ({columns}) FROM STDIN"
    with connection.cursor() as cursor, cursor.copy(statement) as copy:
        for at, row_id in made:
            title = seal_title(user.pk, row_id, _words(dice, 3, 8).capitalize())
            copy.write_row((row_id, user.pk, title, "first_message", new_id(), at, [], 1, at))
    return made[::-1]


def _make_thread(user: User, length: int) -> tuple[Conversation, UUID]:
    dice = random.Random(3)
    ids = [new_id() for _ in range(length)]
    at = BEGAN + timedelta(days=300)
    row_id = new_id()
    title = seal_title(user.pk, row_id, "A long conversation")
    thread = Conversation.objects.create(
        id=row_id, owner=user, title=title, active_leaf_id=ids[-1], last_activity=at
    )
    places = [
        (own, parent, "assistant" if number % 2 else "user")
        for number, (own, parent) in enumerate(zip(ids, [None, *ids], strict=False))
    ]
    others = [(new_id(), parent, role) for _, parent, role in places[1 :: 2 * REGENERATED]]
    rows = [*places, *others]
    Message.objects.bulk_create(_message(thread, dice, *place) for place in rows)
    _make_runs(thread, rows)
    rated = [own for own, _, role in places if role == "assistant"][::10]
    Feedback.objects.bulk_create(Feedback(message_id=one, user=user, rating="up") for one in rated)
    return thread, ids[-1]


def _message(
    thread: Conversation, dice: random.Random, own: UUID, parent: UUID | None, role: str
) -> Message:
    text = _words(dice, *(ANSWER_WORDS if role == "assistant" else QUESTION_WORDS))
    return Message(
        id=own,
        owner_id=thread.owner_id,
        conversation=thread,
        parent_id=parent,
        role=role,
        content=seal_parts(thread.owner_id, own, text_content(text)),
    )


def _make_runs(thread: Conversation, places: list[tuple[UUID, UUID | None, str]]) -> None:
    model = Model.objects.create(slug="bench", title="Bench", is_default=True)
    pool = Pool.objects.create(slug="bench", model=model, profile="none")
    Run.objects.bulk_create(
        Run(
            owner_id=thread.owner_id,
            conversation=thread,
            parent_id=parent,
            reply_id=own,
            model_asked=model.slug,
            model_used=model.slug,
            pool=pool,
            status="completed",
            finish="stop",
            epoch=1,
            last_seq=40,
            prompt_tokens=1_000,
            output_tokens=200,
            claimed_at=thread.last_activity,
            finished_at=thread.last_activity,
        )
        for own, parent, role in places
        if role == "assistant" and parent is not None
    )


def _words(dice: random.Random, least: int, most: int) -> str:
    return " ".join(dice.choices(WORDS, k=dice.randint(least, most)))
