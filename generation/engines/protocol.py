"""The one small protocol that every engine speaks."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal, Protocol

Role = Literal["system", "user", "assistant"]
Finish = Literal["stop", "length"]
EngineKind = Literal["llamacpp", "openai", "simulated"]


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """One turn of the prompt, as plain text."""

    role: Role
    text: str


@dataclass(frozen=True, slots=True)
class GenerateRequest:
    """One answer to write. `run` only names the request for `abort` and in the engine's logs."""

    run: str
    model: str
    messages: tuple[ChatMessage, ...]
    max_tokens: int
    temperature: float | None = None
    # Text of the answer so far. The engine goes on after it and does not repeat it; only for
    # engines whose `can_continue` is true.
    partial: str = ""
    cache_salt: str | None = None
    # Lower goes first, as in vLLM. Engines without priorities ignore it.
    priority: int = 0


@dataclass(frozen=True, slots=True)
class Usage:
    """`cached_tokens` is the part of `prompt_tokens` that the engine had in its prefix cache."""

    prompt_tokens: int
    cached_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True)
class Piece:
    """A bit of the answer. Only the last piece of a stream has `finish` and `usage`.

    `text` is whole Unicode (no lone surrogate, no NUL) and empty at most in the last piece.
    `tokens` counts output tokens of this piece, as well as the engine tells.
    """

    text: str
    tokens: int
    finish: Finish | None = None
    usage: Usage | None = None


@dataclass(frozen=True, slots=True)
class Health:
    """`detail` is one short line for an administrator."""

    ok: bool
    detail: str = ""


@dataclass(frozen=True)
class EngineProfile:
    """One entry of ENGINE_PROFILES. `context_tokens` and `slots` are per replica."""

    name: str
    kind: EngineKind
    # Base address without "/v1"; empty for `simulated`.
    url: str = ""
    api_key: str = field(default="", repr=False)
    # Name the upstream knows the model by; empty means: as asked in the request.
    model: str = ""
    # What one prompt and its answer may take together.
    context_tokens: int = 4096
    # How many answers the replica writes at once.
    slots: int = 1
    options: Mapping[str, object] = field(default_factory=lambda: MappingProxyType({}))


class Engine(Protocol):
    """An adapter to one replica. One instance serves many requests of one event loop at once."""

    @property
    def can_continue(self) -> bool:
        """Whether `GenerateRequest.partial` is honoured."""
        ...

    def generate(self, request: GenerateRequest) -> AsyncGenerator[Piece, None]:
        """Yield the answer; the last piece, and only it, carries `finish` and `usage`.

        Closing the iterator, or cancelling the task that waits for it, aborts the upstream request
        at once, also before its first byte. Raises `EngineError` and its kinds, never ends early.
        """
        ...

    async def abort(self, run: str) -> None:
        """End the request of `run` if there is one; its iterator raises `EngineCutOff`."""
        ...

    async def health(self) -> Health:
        """Ask the engine how it is; never raises for a sick engine."""
        ...

    async def count_tokens(self, messages: Sequence[ChatMessage]) -> int:
        """Prompt tokens of these messages, chat template included; exact or an upper estimate."""
        ...

    async def aclose(self) -> None:
        """Give back connections; running requests end as if aborted."""
        ...
