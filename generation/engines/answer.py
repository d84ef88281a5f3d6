"""From the bytes of a streamed chat completion to pieces. Pure: no network, no clock."""

from __future__ import annotations

import json
from collections.abc import Mapping

from generation.engines.errors import (
    EngineCutOff,
    EngineError,
    EngineRejected,
    EngineUnavailable,
)
from generation.engines.protocol import Finish, Piece, Usage
from generation.engines.sse import LineTooLong, SseEvent, SseParser
from generation.engines.text import PieceCleaner

DONE = "[DONE]"
REASON_CHARS_MAX = 64
# No count an engine may tell us is larger; more would not fit the columns it ends in.
COUNT_MAX = 2**31 - 1

_UNAVAILABLE = frozenset({408, 425, 429, 502, 503, 504})
_CONTEXT_WORDS = ("context_length", "context length", "context size", "context_size")


class AnswerReader:
    """Reads one answer. `feed` what comes, then `end` once for the last piece."""

    def __init__(self) -> None:
        self._parser = SseParser()
        self._cleaner = PieceCleaner()
        self._finish: Finish | None = None
        self._usage: Usage | None = None
        self._tokens = 0
        self.done = False
        self.events = 0
        """How many came; comments, which some servers send while they read, are none."""

    @property
    def finished(self) -> bool:
        """The answer is whole; only usage and [DONE] may still come."""
        return self._finish is not None

    def feed(self, chunk: bytes) -> list[Piece]:
        """Pieces that are complete now, none empty. Raises `EngineError` and its kinds."""
        try:
            return self._pieces(list(self._parser.feed(chunk)))
        except LineTooLong as error:
            raise EngineError(f"The engine sent a line that is too long: {error}.", True) from None

    def end(self, prompt_tokens: int) -> Piece:
        """The last piece. `prompt_tokens` stands in where the server told no usage.

        Raises `EngineCutOff` where the stream ended without a finish: an answer that was cut off
        must never look like one that stopped by itself.
        """
        text = "".join(piece.text for piece in self._pieces(list(self._parser.end())))
        if self._finish is None:
            raise EngineCutOff("The engine's stream ended before the answer did.")
        usage = self._usage or Usage(prompt_tokens, 0, self._tokens)
        rest = max(0, usage.output_tokens - self._tokens)
        return Piece(text + self._cleaner.end(), rest, self._finish, usage)

    def _pieces(self, events: list[SseEvent]) -> list[Piece]:
        pieces = []
        self.events += len(events)
        for event in events:
            if event.data.strip() == DONE:
                self.done = True
            elif not self.done and (piece := self._chunk(_payload(event))):
                pieces.append(piece)
        return pieces

    def _chunk(self, payload: Mapping[str, object]) -> Piece | None:
        usage = payload.get("usage")
        if isinstance(usage, dict):
            self._usage = read_usage(usage)
        choices = payload.get("choices")
        for choice in choices if isinstance(choices, list) else ():
            # Only one answer was asked for; a second one's text must not mix with it.
            if isinstance(choice, dict) and choice.get("index", 0) == 0:
                return self._choice(choice)
        return None

    def _choice(self, choice: Mapping[str, object]) -> Piece | None:
        delta = choice.get("delta")
        content = delta.get("content") if isinstance(delta, dict) else choice.get("text")
        tokens = 0
        if isinstance(content, str) and content and not self.finished:
            tokens = self._count()
            text = self._cleaner.feed(content)
        else:
            text = ""
        if (reason := choice.get("finish_reason")) is not None:
            self._finish = read_finish(reason)
        return Piece(text, tokens) if text else None

    def _count(self) -> int:
        """Tokens of this piece: from running usage where the server tells it, else one."""
        tokens = 1
        if self._usage is not None and self._usage.output_tokens > self._tokens:
            tokens = self._usage.output_tokens - self._tokens
        self._tokens += tokens
        return tokens


def _payload(event: SseEvent) -> Mapping[str, object]:
    try:
        payload = json.loads(event.data)
    except (ValueError, RecursionError):
        raise EngineError("The engine sent a chunk that is not JSON.", retryable=True) from None
    if not isinstance(payload, dict):
        raise EngineError("The engine sent a chunk that is no object.", retryable=True)
    if event.name == "error" or payload.get("error") or payload.get("object") == "error":
        raise error_for(0, payload)
    return payload


def read_usage(usage: Mapping[str, object]) -> Usage:
    """OpenAI's usage object; counts that are missing or nonsense become 0."""
    details = usage.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else 0
    prompt_tokens = _count_of(usage.get("prompt_tokens"))
    return Usage(
        prompt_tokens=prompt_tokens,
        cached_tokens=min(_count_of(cached), prompt_tokens),
        output_tokens=_count_of(usage.get("completion_tokens")),
    )


def _count_of(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return min(max(value, 0), COUNT_MAX)
    return 0


def read_finish(reason: object) -> Finish:
    """The server's finish_reason in our two words; raises where it says that it gave up."""
    if reason in ("length", "max_tokens"):
        return "length"
    # vLLM says "abort" for a request it dropped, and "error" for one it could not finish.
    if reason in ("abort", "cancelled"):
        raise EngineCutOff("The engine aborted the answer.")
    if reason == "error":
        raise EngineError("The engine could not finish the answer.", retryable=True)
    return "stop"


def error_for(status: int, payload: object) -> EngineError:
    """What an error answer means. `status` 0: an error frame inside a stream.

    Of what the upstream wrote only its type or code is kept, and only if it looks like a word: its
    sentences may quote the prompt or a key.
    """
    error = payload.get("error", payload) if isinstance(payload, dict) else {}
    fields = error if isinstance(error, dict) else {"message": error}
    status = status or _status_in(fields)
    word = next((w for key in ("code", "type") if (w := _word(fields.get(key)))), "")
    said = f" ({word})" if word else ""
    if _is_about_context(fields):
        return EngineRejected("The prompt is longer than the engine's context.")
    if status in _UNAVAILABLE:
        return EngineUnavailable(f"The engine is not available: HTTP {status}{said}.")
    if status in (401, 403):
        return EngineRejected(f"The engine refuses our key: HTTP {status}{said}.")
    if 300 <= status < 500:
        return EngineRejected(f"The engine refuses the request: HTTP {status}{said}.")
    told = f"HTTP {status}{said}" if status else f"an error in the stream{said}"
    return EngineError(f"The engine failed: {told}.", retryable=True)


def _status_in(fields: Mapping[str, object]) -> int:
    for key in ("code", "status"):
        value = fields.get(key)
        if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) == 3:
            value = int(value)
        if isinstance(value, int) and 400 <= value < 600:
            return value
    return 0


def _word(value: object) -> str:
    """`value` if it is an identifier such as `exceed_context_size_error`, else nothing."""
    if not isinstance(value, str) or not 0 < len(value) <= REASON_CHARS_MAX:
        return ""
    plain = value.isascii() and value.replace("_", "").isalnum()
    # A key also looks like a word; no error code has a long run of digits in it.
    return value if plain and sum(map(str.isdigit, value)) <= 3 else ""


def _is_about_context(fields: Mapping[str, object]) -> bool:
    told = " ".join(str(fields.get(key, ""))[:2000] for key in ("code", "type", "message")).lower()
    return any(words in told for words in _CONTEXT_WORDS)
