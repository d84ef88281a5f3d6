"""The one small protocol that every engine speaks."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Literal, Protocol

UNIX_SCHEME = "unix://"

Role = Literal["system", "user", "assistant"]
Finish = Literal["stop", "length"]
EngineKind = Literal["llamacpp", "openai", "simulated", "vllm"]


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """One turn of the prompt, as plain text."""

    role: Role
    text: str


class Signs(Protocol):
    """Is told what an engine does that is no piece of text."""

    def heard(self) -> None:
        """It says something: it thinks, or tells a role."""

    def over(self) -> None:
        """The answer is whole; what still comes is no part of it, and may never come."""


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
    # How many tokens that is, where it is known; 0: it is not.
    partial_tokens: int = 0
    cache_salt: str | None = None
    # Lower goes first, as in vLLM. Engines without priorities ignore it.
    priority: int = 0
    signs: Signs | None = None


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
class Load:
    """What an engine does at this moment, as it tells itself.

    `kv_cache_share`: how full the cache of keys and values is, 0 to 1. The two `prefix_…_tokens`
    count prompt tokens since the engine's start: looked up in the prefix cache, and found there.
    """

    running: int
    waiting: int
    kv_cache_share: float
    prefix_queried_tokens: int
    prefix_hit_tokens: int

    @property
    def prefix_hit_share(self) -> float:
        """0 to 1; 0 before the first prompt."""
        return self.prefix_hit_tokens / max(1, self.prefix_queried_tokens)

    def __str__(self) -> str:
        """One short line for an administrator."""
        return (
            f"{self.running} running, {self.waiting} waiting, "
            f"KV cache {self.kv_cache_share:.0%} full, prefix hits {self.prefix_hit_share:.0%}"
        )


@dataclass(frozen=True, slots=True)
class Health:
    """`detail` is one short line for an administrator; `load` where the engine tells it."""

    ok: bool
    detail: str = ""
    load: Load | None = None


@dataclass(frozen=True)
class ServeOptions:
    """How to start `vllm serve` for a profile. A profile without it is attached to.

    `command` and `arguments` are lists of words: no shell ever reads them.
    """

    # A directory, or a name that vLLM fetches from its hub.
    model: str
    command: tuple[str, ...] = ("vllm",)
    dtype: str = "auto"
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    # 0: as many as the profile's slots.
    max_num_seqs: int = 0
    # How far the engine's processes stand back for the CPU, 0 to 19 (nice).
    nice: int = 0
    arguments: tuple[str, ...] = ()
    # Not shown: a key for a model hub may be among them.
    environment: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}), repr=False)


@dataclass(frozen=True)
class EngineProfile:
    """One entry of ENGINE_PROFILES. `context_tokens` and `slots` are per replica."""

    name: str
    kind: EngineKind
    # Base address without "/v1", or unix:///path/to/socket (vllm); empty for `simulated`.
    url: str = ""
    api_key: str = field(default="", repr=False)
    # Name the upstream knows the model by; empty means: as asked in the request.
    model: str = ""
    # What one prompt and its answer may take together.
    context_tokens: int = 4096
    # How many answers the replica writes at once.
    slots: int = 1
    options: Mapping[str, object] = field(default_factory=lambda: MappingProxyType({}))
    serve: ServeOptions | None = None
    # How long it may say nothing, for a pool that is made for it; None: the pools' default.
    silence_s: float | None = None

    @property
    def socket(self) -> Path | None:
        """The unix socket that `url` names, if it names one."""
        name = self.url.removeprefix(UNIX_SCHEME)
        return Path(name) if name != self.url else None


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
