"""llama.cpp's own server: what it can do beyond OpenAI's interface."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import ClassVar, cast

import httpx

from generation.engines.answer import error_for
from generation.engines.errors import EngineError, EngineUnavailable
from generation.engines.openai import QUESTION_TIMEOUT_S, OpenAIEngine
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

    async def _ask(self, path: str, question: Mapping[str, object]) -> Mapping[str, object]:
        try:
            async with asyncio.timeout(QUESTION_TIMEOUT_S):
                request = self._client.build_request("POST", path, json=question)
                status, body = await self._question(request)
            payload = json.loads(body)
        except (TimeoutError, httpx.HTTPError) as error:
            raise EngineUnavailable(
                f"The engine cannot be asked: {type(error).__name__}."
            ) from None
        except (ValueError, RecursionError):
            raise EngineError("The engine's answer is not readable.") from None
        if status != httpx.codes.OK or not isinstance(payload, dict):
            raise error_for(status, payload)
        return cast("Mapping[str, object]", payload)
