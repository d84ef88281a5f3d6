"""The prompt of one run: the path from the root to its user message, fitted to the model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from django.conf import settings

from conversations import selectors
from generation.engines.protocol import ChatMessage, Engine
from generation.prompts.packing import Turn, alternating, estimated_tokens, without_oldest
from generation.runs import Claim

MAX_TURNS: Final = 400
"""How far up the path is read; older turns would not fit any context this product serves."""

MIN_ANSWER_TOKENS: Final = 64


class PromptTooLong(Exception):
    """Not even the newest message alone fits the model."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """What the engine is given, and how many tokens it may answer with.

    `partial`: the beginning of the answer, to go on after; empty where the engine cannot do that.
    """

    messages: tuple[ChatMessage, ...]
    max_tokens: int
    partial: str = ""


async def build_prompt(claim: Claim, engine: Engine, turns: Sequence[Turn]) -> Prompt:
    """The prompt of this run from what `read_turns` gave, counted with the model's own tokenizer.

    Raises PromptTooLong; the engine's errors pass through.
    """
    if claim.context_tokens is None:
        raise LookupError(f"the model {claim.model} is gone")
    context_tokens = claim.context_tokens
    answer_tokens = min(claim.answer_tokens, context_tokens // 2)
    partial = claim.partial if engine.can_continue else ""
    begun = (ChatMessage("assistant", partial),) if partial else ()
    turns = _drop_hopeless(list(turns), context_tokens)
    while True:
        messages = _messages(turns)
        room = context_tokens - await engine.count_tokens(messages + begun)
        if room >= answer_tokens:
            return Prompt(messages, answer_tokens, partial)
        if len(turns) > 1:
            turns = without_oldest(turns)
        elif room >= MIN_ANSWER_TOKENS:
            return Prompt(messages, room, partial)
        else:
            raise PromptTooLong


def read_turns(claim: Claim) -> list[Turn]:
    """The path that ends at the run's user message. One query."""
    path = selectors.path_messages(claim.conversation_id, claim.parent_id, limit=MAX_TURNS)
    turns = [
        Turn("user" if message.role == "user" else "assistant", message.text) for message in path
    ]
    return alternating(turns)


def _drop_hopeless(turns: list[Turn], context_tokens: int) -> list[Turn]:
    """Spare the tokenizer what cannot fit by any count."""
    while len(turns) > 1 and sum(estimated_tokens(t.text) for t in turns) > context_tokens:
        turns = without_oldest(turns)
    return turns


def _messages(turns: Sequence[Turn]) -> tuple[ChatMessage, ...]:
    system = ChatMessage("system", settings.SYSTEM_PROMPT)
    return (system, *(ChatMessage(turn.role, turn.text) for turn in turns))
