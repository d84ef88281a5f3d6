"""llama.cpp's own server: what it can do beyond OpenAI's interface."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from generation.engines.errors import EngineError
from generation.engines.openai import OpenAIEngine
from generation.engines.protocol import ChatMessage, GenerateRequest, Health
from generation.engines.text import clean_text


class LlamaCppEngine(OpenAIEngine):
    """See `Engine`, and `OpenAIEngine` for the options.

    The server goes on after a trailing assistant message without repeating it
    (`tests/integration/test_engine_llamacpp.py` tries it on the real one).
    """

    _can_continue_default: ClassVar[bool] = True

    def _body(self, request: GenerateRequest) -> dict[str, object]:
        # The default, said aloud: the next turn of a conversation re-uses the slot's cache.
        return {"cache_prompt": True} | super()._body(request)

    async def health(self) -> Health:
        """Whether the model is loaded; `/health` needs no key and no free slot."""
        return await self._health_at("/health")

    async def count_tokens(self, messages: Sequence[ChatMessage]) -> int:
        """Exact: the server renders its own chat template and tokenises it.

        Raises `EngineUnavailable` or `EngineError` where it cannot say.
        """
        turns = [{"role": m.role, "content": clean_text(m.text)} for m in messages]
        rendered = await self._ask("/apply-template", {"messages": turns})
        prompt = rendered.get("prompt")
        question = {"content": prompt, "add_special": True, "parse_special": True}
        tokens = (await self._ask("/tokenize", question)).get("tokens")
        if not isinstance(tokens, list):
            raise EngineError("The engine did not tell the tokens it was asked for.")
        return len(tokens)
