"""The simulated engine behind OpenAI's protocol, in a process that can be killed.

    python -m uvicorn bench.support.engine_server:application --port P

`/v1/models` says that it is well; `/v1/chat/completions` streams, goes on after a last message of
the assistant, and is steered by directives in the user's message (generation/engines/simulated.py).
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

from generation.engines import EngineProfile
from generation.engines.protocol import ChatMessage, GenerateRequest, Piece
from generation.engines.simulated import SimulatedEngine

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

PROFILE: Final = EngineProfile(
    "sim", "simulated", context_tokens=32_768, options={"directives": True}
)
_JSON: Final = [(b"content-type", b"application/json")]
_STREAM: Final = [(b"content-type", b"text/event-stream")]
_engine: Final = SimulatedEngine(PROFILE)


async def application(scope: Message, receive: Receive, send: Send) -> None:
    """The ASGI application."""
    if scope["type"] != "http":
        return
    if scope["path"] == "/v1/models":
        await _start(send, _JSON)
        await _write(send, b'{"data": []}', more=False)
    else:
        await _answer(await _read(receive), send)


async def _read(receive: Receive) -> dict[str, Any]:
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            return dict(json.loads(body))


async def _answer(asked: dict[str, Any], send: Send) -> None:
    turns = [ChatMessage(turn["role"], turn["content"]) for turn in asked["messages"]]
    partial = turns.pop().text if turns[-1].role == "assistant" else ""
    # Every request has a run of its own here: what a script says of a first time is then said each
    # time, but for continuations.
    request = GenerateRequest(
        f"request-{id(asked)}", "sim", tuple(turns), asked["max_tokens"], partial=partial
    )
    await _start(send, _STREAM)
    async for piece in _engine.generate(request):
        await _write(send, _chunks(piece))
    await _write(send, b"data: [DONE]\n\n", more=False)


def _chunks(piece: Piece) -> bytes:
    choice = {"index": 0, "delta": {"content": piece.text}, "finish_reason": piece.finish}
    chunks: list[dict[str, object]] = [{"choices": [choice]}]
    if piece.usage is not None:
        usage = {
            "prompt_tokens": piece.usage.prompt_tokens,
            "completion_tokens": piece.usage.output_tokens,
        }
        chunks.append({"choices": [], "usage": usage})
    return b"".join(b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in chunks)


async def _start(send: Send, headers: list[tuple[bytes, bytes]]) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": headers})


async def _write(send: Send, body: bytes, *, more: bool = True) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": more})
