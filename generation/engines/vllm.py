"""vLLM's server: what only it has. Over a unix socket, or over HTTP for one that others start."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar, Final

import httpx

from generation.engines.errors import EngineError
from generation.engines.metrics import read_load
from generation.engines.openai import OpenAIEngine
from generation.engines.protocol import (
    ChatMessage,
    EngineProfile,
    GenerateRequest,
    Health,
    Load,
)
from generation.engines.serve import PRIORITY_OPTION, has_priorities
from generation.engines.text import clean_text

LOAD_TIMEOUT_S: Final = 3.0
"""Less than a health check may take."""

COUNT_TIMEOUT_S: Final = 15.0
"""The server counts in the process that also writes all answers: on a CPU it may have to wait."""


class VllmEngine(OpenAIEngine):
    """See `Engine`, and `OpenAIEngine` for the options. One more:

    - `priority_scheduling` (false): the server was started with `--scheduling-policy priority`
      (one that we start is). Others refuse a request that has a priority.

    Closing the connection aborts the request: `tests/vllm` sees the running ones go back to 0.
    """

    _options: ClassVar[frozenset[str]] = OpenAIEngine._options | {PRIORITY_OPTION}
    _can_continue_default: ClassVar[bool] = True

    def __init__(self, profile: EngineProfile) -> None:
        super().__init__(profile)
        self._has_priorities = has_priorities(profile)

    def _body(self, request: GenerateRequest) -> dict[str, object]:
        body = super()._body(request)
        if self._include_usage:
            # A stopped answer has no last word about its tokens, and a piece may hold several.
            body["stream_options"] = {"include_usage": True, "continuous_usage_stats": True}
        if request.partial:
            body |= _CONTINUE
        if request.cache_salt:
            body["cache_salt"] = request.cache_salt
        if self._has_priorities and request.priority:
            body["priority"] = request.priority
        return body

    async def health(self) -> Health:
        """Whether the engine behind the server is alive, and its load."""
        # At once, and the load in less time: slow figures must not make it a sick engine.
        health, load = await asyncio.gather(self._health_at("/health"), self.load())
        return replace(health, load=load) if health.ok else health

    async def load(self) -> Load | None:
        """What the server's metrics tell; None where they cannot be had."""
        try:
            async with asyncio.timeout(LOAD_TIMEOUT_S):
                request = self._client.build_request("GET", "/metrics")
                status, body = await self._question(request)
        except (TimeoutError, httpx.HTTPError, ValueError):
            return None
        return read_load(body.decode("utf-8", "replace")) if status == httpx.codes.OK else None

    async def count_tokens(self, messages: Sequence[ChatMessage]) -> int:
        """Exact: the server renders its chat template and tokenises it.

        A last message of the assistant counts as one that is to be continued. Raises
        `EngineUnavailable` or `EngineError` where the server cannot say.
        """
        question: dict[str, object] = {
            "messages": [{"role": m.role, "content": clean_text(m.text)} for m in messages]
        }
        if self._profile.model:
            question["model"] = self._profile.model
        if messages and messages[-1].role == "assistant":
            question |= _CONTINUE
        count = (await self._ask("/tokenize", question, COUNT_TIMEOUT_S)).get("count")
        if not isinstance(count, int) or isinstance(count, bool) or count < 0:
            raise EngineError("The engine did not tell the count it was asked for.")
        return count


_CONTINUE: Final[dict[str, object]] = {
    # The last message stays open. vLLM refuses the one without the other.
    "continue_final_message": True,
    "add_generation_prompt": False,
}
