"""What a send, a regenerate or a continue wants, as it passes admission and the quotas."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from django.conf import settings

from generation.catalogue import Choice, Offer
from generation.models import Model
from quotas.limits import largest_cost


@dataclass(frozen=True, slots=True)
class History:
    """What the thread before the new text is, in tokens of `model` (None: of any).

    `tokens` None: nobody knows, and the largest prompt is held.
    """

    tokens: int | None = None
    model: str | None = None

    def tokens_of(self, model: str) -> int | None:
        """Another model's tokens are others."""
        return self.tokens if self.model in (None, model) else None


UNKNOWN: Final = History()


def empty_thread() -> History:
    """Nothing is before the text but what the model is told first."""
    return History(len(settings.SYSTEM_PROMPT.encode()))


@dataclass(frozen=True, slots=True)
class Room:
    """Tokens: the context budget, and what of it the answer may take."""

    context_tokens: int
    answer_tokens: int


@dataclass(frozen=True, slots=True)
class Wish:
    """What is wanted of whom: `asked` as the client named it, `choice` who may answer.

    `conversation_id`: where it is asked; None: in a new one. What admission adds: the one pool of
    `choice`, `most` where it has cut the room, `notices` that say what it did, and the ladder's
    `step`.
    """

    asked: str | None
    choice: Choice
    offer: Offer
    history: History = UNKNOWN
    text_bytes: int = 0
    conversation_id: uuid.UUID | None = None
    most: Room | None = None
    notices: tuple[Mapping[str, object], ...] = ()
    step: str = ""

    @property
    def wanted(self) -> Model:
        """The model that was asked for, whoever answers in its place."""
        return self.choice.instead_of or self.choice.model

    def least_context_of(self, model: Model) -> int:
        """What the new text needs of the context, without what was before it: admission cuts no
        deeper. Where the text is not known (an answer is written again), all of it."""
        room = self.room_of(model)
        if not self.text_bytes:
            return room.context_tokens
        return largest_cost(
            context_tokens=room.context_tokens,
            answer_tokens=room.answer_tokens,
            history_tokens=empty_thread().tokens,
            text_bytes=self.text_bytes,
        )

    def room_of(self, model: Model) -> Room:
        """What a run of this model may have: no more than model, plan and admission allow."""
        terms, most = self.offer.terms, self.most
        context_tokens = min(model.context_tokens, terms.context_tokens)
        answer_tokens = min(model.answer_tokens, terms.answer_tokens)
        if most is not None:
            context_tokens = min(context_tokens, most.context_tokens)
            answer_tokens = min(answer_tokens, most.answer_tokens)
        return Room(context_tokens, answer_tokens)
