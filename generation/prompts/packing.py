"""Which turns of a path fit a budget. Pure.

Order: system, recent turns, the new message. The oldest turns go first, whole, and the newest
message always stays. Counting is the caller's: an estimate here, the model's own tokenizer there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

Role = Literal["user", "assistant"]

DROPPED_SHARE: Final = 0.25
"""How much of the oldest turns goes at once: dropping one turn at a time would change the start of
every prompt, and the engine's prefix cache would never be hit again."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One message of the path."""

    role: Role
    text: str


def alternating(path: Sequence[Turn]) -> list[Turn]:
    """The path as chat templates want it: user first, roles in turns, no empty text.

    A reply that ended empty goes together with the message that it did not answer: templates
    refuse two user turns in a row. The newest message stays whatever is before it.
    """
    turns: list[Turn] = []
    for turn in path:
        if turn.role == "user" and turns and turns[-1].role == "user":
            turns.pop()
        if turn.role == "assistant" and (not turn.text or not turns or turns[-1].role != "user"):
            continue
        turns.append(turn)
    return turns


def without_oldest(turns: Sequence[Turn]) -> list[Turn]:
    """The turns less a share of the oldest pairs; begins with a user turn, keeps the last one."""
    pairs = (len(turns) - 1) // 2
    dropped = max(1, int(pairs * DROPPED_SHARE)) if pairs else 0
    return list(turns[2 * dropped :])


def estimated_tokens(text: str) -> int:
    """A low estimate, to drop what cannot fit before the tokenizer is asked: 6 bytes a token."""
    return len(text.encode("utf-8", "replace")) // 6
