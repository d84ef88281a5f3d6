"""The prompt of one run: the path from the root to its user message, fitted to the model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from django.conf import settings

from conversations import selectors
from generation.engines.protocol import ChatMessage, Engine
from generation.prompts.packing import Turn, alternating, estimated_tokens, without_oldest
from generation.prompts.seam import split_tail
from generation.runs import Claim

MAX_TURNS: Final = 400
"""How far up the path is read; older turns would not fit any context this product serves."""

MIN_ANSWER_TOKENS: Final = 64


class PromptTooLong(Exception):
    """Not even the newest message alone fits the model."""


class AnswerFull(Exception):
    """Earlier owners of the run have used its room for the answer: it ends as `length`."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """What the engine is given, and how many tokens it may answer with.

    `partial`: the beginning of the answer, to go on after; empty where the engine cannot do that.
    `tail`: the white space behind it, which the engine does not get (see seam.py).
    `spent_tokens`: what earlier owners of this run have written of it; counted as the answer's, not
    the prompt's. `prompt_tokens`: all the rest that the engine is given, as it was counted.
    """

    messages: tuple[ChatMessage, ...]
    max_tokens: int
    partial: str = ""
    tail: str = ""
    spent_tokens: int = 0
    prompt_tokens: int = 0


async def build_prompt(
    claim: Claim, engine: Engine, turns: Sequence[Turn], *, anew: bool = False
) -> Prompt:
    """The prompt of this run from what `read_turns` gave, counted with the model's own tokenizer.

    `anew`: without what is written already, though the engine could go on after it.
    Raises PromptTooLong, AnswerFull; the engine's errors pass through.
    """
    if claim.context_tokens is None:
        raise LookupError(f"the model {claim.model} is gone")
    context_tokens = claim.context_tokens
    goes_on = engine.can_continue and not anew
    partial, tail = split_tail(claim.partial) if goes_on else ("", "")
    spent_tokens = claim.spent_tokens if partial else 0
    answer_tokens = min(claim.answer_tokens, context_tokens // 2) - spent_tokens
    if answer_tokens <= 0:
        raise AnswerFull
    turns = _drop_hopeless(list(turns), context_tokens)
    while True:
        messages = _messages(turns)
        counted = await _count(claim, engine, messages, partial)
        room, own = context_tokens - counted, max(0, counted - spent_tokens)
        if room >= answer_tokens:
            return Prompt(messages, answer_tokens, partial, tail, spent_tokens, own)
        if len(turns) > 1:
            turns = without_oldest(turns)
        elif room >= min(MIN_ANSWER_TOKENS, answer_tokens):
            return Prompt(messages, room, partial, tail, spent_tokens, own)
        elif partial:
            raise AnswerFull  # it has filled the context
        else:
            raise PromptTooLong


async def _count(
    claim: Claim, engine: Engine, messages: tuple[ChatMessage, ...], partial: str
) -> int:
    """The tokens of all that the engine is given. Those of an own answer are known: to count its
    text again would be an estimate for some engines, and a bad one."""
    if partial and not claim.continues:
        return await engine.count_tokens(messages) + claim.spent_tokens
    return await engine.count_tokens(messages + _begun(partial))


def _begun(partial: str) -> tuple[ChatMessage, ...]:
    return (ChatMessage("assistant", partial),) if partial else ()


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
