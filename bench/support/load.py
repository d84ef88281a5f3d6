"""The load: many streams read over raw sockets, in a process of its own.

It looks for the few bytes that it counts and parses nothing else, so that it costs a small share of
what it measures (`cpu_s` in its answers says how much).

    open   streams that are read until `close`
    mark   events, open streams and the longest gap since the last mark
    chat   users who send, read the answer to its end, and send again, until `hush`
    arrive sends at random moments, whatever became of earlier ones, until `hush`
    seen   how many words they have read
    hush   ends that, where it stands, and gives what was seen of each answer
    once   one answer for each user, all sent at the same moment, until the last has ended
    storm  the same request by many clients at the same moment; how many were refused
"""

from __future__ import annotations

import asyncio
import itertools
import random
import re
import time
from dataclasses import asdict, dataclass
from typing import Any, Final

import uvloop

from bench.support.peer import serve
from bench.support.requests import post

DELTA: Final = b"\nevent: delta\n"
"""One piece of the product's text; the line before it always ends in a line break."""
WORD: Final = b" w"
"""The simulated engine writes w1 w2 w3 …: each word but the first, in whatever pieces they come."""
LAST_BYTES: Final = 1_024
"""Kept of each stream: the usage stands in its last event."""
OPENERS: Final = 16
"""Streams that are opened at the same time, so that no listen queue overflows."""
PATIENCE_S: Final = 120.0
HUNG_S: Final = 5.0
"""An answer that brings nothing for so long has failed."""

_CONVERSATION: Final = re.compile(rb'"conversation":"(c_[0-9a-f]{32})"')
_RUN: Final = re.compile(rb'"run":"(g_[0-9a-f]{32})"')
_TOKENS: Final = re.compile(rb'"(?:output|completion)_tokens":\s?(\d+)')


@dataclass(slots=True)
class Answer:
    """One answer, in seconds of the machine's monotonic clock."""

    user: int
    sent_s: float
    first_s: float = 0.0
    last_s: float = 0.0
    longest_gap_s: float = 0.0
    events: int = 0
    words: int = 0
    tokens: int = 0
    run: str = ""
    problem: str = ""
    open: bool = False

    def note(self, stream: Stream) -> None:
        """What the stream has brought so far; the usage once it has ended."""
        self.first_s, self.last_s = stream.first_s, stream.last_s
        self.longest_gap_s, self.events = stream.longest_gap_s, stream.events
        self.words = stream.words
        run = _RUN.search(stream.head)
        self.run = run.group(1).decode() if run else ""
        if stream.ended.done():
            found = _TOKENS.findall(stream.last)
            self.tokens = int(found[-1]) if found else 0
            if stream.refused or not found:
                self.problem = stream.refused[-300:] or "it ended without a usage"
        else:
            self._note_silence(time.monotonic() - (stream.last_s or self.sent_s))

    def _note_silence(self, silent_s: float) -> None:
        """It is under way; a silence that still lasts counts, too."""
        self.open = True
        self.longest_gap_s = max(self.longest_gap_s, silent_s) if self.first_s else 0.0
        if silent_s >= HUNG_S:
            self.problem = f"silent for {silent_s:.0f} s, and not at its end"


class Stream(asyncio.Protocol):
    """One response, counted as it comes."""

    def __init__(self, request: bytes, mark: bytes) -> None:
        self.events = self.words = 0
        self.first_s = self.last_s = 0.0
        self.longest_gap_s = 0.0
        self.head = b""
        self.last = b""
        loop = asyncio.get_running_loop()
        self.begun = loop.create_future()
        self.ended = loop.create_future()
        self._request = request
        self._mark = mark
        self._edge = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # of a TCP connection
        transport.write(self._request)  # type: ignore[attr-defined]  # the same

    def data_received(self, data: bytes) -> None:
        if len(self.head) < LAST_BYTES:
            self.head += data
            if not self.begun.done():
                self.begun.set_result(None)
        self.last = (self.last + data)[-LAST_BYTES:]
        self.words += data.count(WORD)
        whole = self._edge + data
        found = whole.count(self._mark)
        # What could be the beginning of a mark, and never a whole one.
        self._edge = whole[-(len(self._mark) - 1) :]
        if found:
            self._saw(found, time.monotonic())

    def _saw(self, found: int, now_s: float) -> None:
        if not self.events:
            self.first_s = now_s
        if self.last_s:
            self.longest_gap_s = max(self.longest_gap_s, now_s - self.last_s)
        self.last_s = now_s
        self.events += found

    def connection_lost(self, exc: Exception | None) -> None:
        for future in (self.begun, self.ended):
            if not future.done():
                future.set_result(None)

    @property
    def refused(self) -> str:
        """The response where it is no 200."""
        line = self.head.partition(b"\r\n")[0]
        return "" if b" 200" in line else self.head.decode("utf-8", "replace") or "no answer"

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()


async def connect(place: int | str, request: bytes, mark: bytes = DELTA) -> Stream:
    """Send the request to a port of 127.0.0.1, or to a unix socket."""
    loop = asyncio.get_running_loop()
    if isinstance(place, str):
        _, stream = await loop.create_unix_connection(lambda: Stream(request, mark), place)
        return stream
    _, stream = await loop.create_connection(lambda: Stream(request, mark), "127.0.0.1", place)
    return stream


class Load:
    """All that this process reads."""

    def __init__(self) -> None:
        self._streams: list[Stream] = []
        self._chats: list[asyncio.Task[None]] = []
        self._answers: list[tuple[Answer, Stream]] = []

    # --- streams that stay open -------------------------------------------------------------------

    async def open(self, streams: list[dict[str, Any]]) -> dict[str, Any]:
        at_once = asyncio.Semaphore(OPENERS)

        async def one(port: int, request: str) -> Stream:
            async with at_once:
                stream = await connect(port, request.encode())
                await asyncio.wait_for(asyncio.shield(stream.begun), PATIENCE_S)
                return stream

        opened = await asyncio.gather(*(one(**stream) for stream in streams))
        refused = [stream.refused for stream in opened if stream.refused]
        self._streams += opened
        return {"opened": len(opened) - len(refused), "refused": refused[:3]}

    async def mark(self) -> dict[str, Any]:
        now_s = time.monotonic()
        # A silence that still lasts counts too.
        gaps = [max(one.longest_gap_s, now_s - one.last_s) for one in self._streams if one.last_s]
        for stream in self._streams:
            stream.longest_gap_s, stream.last_s = 0.0, now_s
        return {
            "events": sum(stream.events for stream in self._streams),
            "open": sum(not stream.ended.done() for stream in self._streams),
            "longest_gap_ms": max(gaps, default=0.0) * 1000,
            "cpu_s": time.process_time(),
            "at_s": now_s,
        }

    async def close(self) -> dict[str, Any]:
        for stream in self._streams:
            stream.close()
        await asyncio.gather(*(stream.ended for stream in self._streams))
        self._streams.clear()
        return {}

    # --- people who talk --------------------------------------------------------------------------

    async def chat(
        self,
        port: int,
        tokens: list[str],
        content: str,
        over_s: float,
        first: list[str] | None = None,
    ) -> dict[str, Any]:
        """One user for each API token; their first sends are spread over `over_s`.

        `first`: what each of them says first, instead of `content`.
        """
        self._answers = []
        self._chats = [
            asyncio.create_task(
                self._talk(port, user, token, [one, content], over_s * user / len(tokens))
            )
            for user, (token, one) in enumerate(
                zip(tokens, first or [content] * len(tokens), strict=True)
            )
        ]
        return {}

    async def _talk(self, port: int, user: int, token: str, says: list[str], wait_s: float) -> None:
        await asyncio.sleep(wait_s)
        conversation = "new"
        for content in itertools.chain(says, itertools.repeat(says[-1])):
            path = f"/v1/conversations/{conversation}/messages"
            answer = Answer(user, time.monotonic())
            stream = await connect(port, post(path, token, {"content": content}).encode())
            self._answers.append((answer, stream))
            await asyncio.shield(stream.ended)
            if found := _CONVERSATION.search(stream.head):
                conversation = found.group(1).decode()
            if stream.refused:
                await asyncio.sleep(0.5)

    async def arrive(
        self, port: int, tokens: list[str], content: str, rate: float, seed: int
    ) -> dict[str, Any]:
        """`rate` sends a second on average, each a new conversation of the next user: those who
        come do not ask how many wait."""
        self._answers = []
        self._chats = [asyncio.create_task(self._arrivals(port, tokens, content, rate, seed))]
        return {}

    async def _arrivals(
        self, port: int, tokens: list[str], content: str, rate: float, seed: int
    ) -> None:
        moments = random.Random(seed)
        loop = asyncio.get_running_loop()
        next_s = loop.time()
        for user in itertools.cycle(range(len(tokens))):
            next_s += moments.expovariate(rate)
            await asyncio.sleep(next_s - loop.time())
            request = post("/v1/conversations/new/messages", tokens[user], {"content": content})
            answer = Answer(user, time.monotonic())
            self._answers.append((answer, await connect(port, request.encode())))

    async def seen(self) -> dict[str, Any]:
        """`waits_since_s`: when the longest of those who still wait for a first token has sent."""
        now_s = time.monotonic()
        waiting = [answer.sent_s for answer, stream in self._answers if not stream.first_s]
        return {
            "words": sum(stream.words for _, stream in self._answers),
            "waits_since_s": min(waiting, default=now_s),
            "at_s": now_s,
            "cpu_s": time.process_time(),
        }

    async def hush(self) -> dict[str, Any]:
        for task in self._chats:
            task.cancel()
        await asyncio.gather(*self._chats, return_exceptions=True)
        for answer, stream in self._answers:
            answer.note(stream)
            stream.close()
        return {"answers": [asdict(answer) for answer, _ in self._answers]}

    async def storm(
        self, port: int, token: str, content: str, clients: int, *, keyed: bool = False
    ) -> dict[str, Any]:
        path, body = "/v1/conversations/new/messages", {"content": content}
        requests = [post(path, token, body, keyed=keyed).encode() for _ in range(clients)]
        began_s = time.monotonic()
        found = await asyncio.gather(*(_status(port, request) for request in requests))
        return {"refused": found.count(429), "took_s": time.monotonic() - began_s}

    async def once(self, place: int | str, requests: list[str], mark: str) -> dict[str, Any]:
        began_s = time.monotonic()
        answers = await asyncio.gather(
            *(
                _read_answer(place, user, request.encode(), mark.encode())
                for user, request in enumerate(requests)
            )
        )
        return {
            "wall_s": time.monotonic() - began_s,
            "answers": [asdict(answer) for answer in answers],
        }


async def _status(port: int, request: bytes) -> int:
    stream = await connect(port, request)
    await stream.ended
    return int(stream.head.split(b" ", 2)[1]) if stream.head else 0


async def _read_answer(place: int | str, user: int, request: bytes, mark: bytes) -> Answer:
    answer = Answer(user, time.monotonic())
    stream = await connect(place, request, mark)
    await stream.ended
    answer.note(stream)
    return answer


async def main() -> None:
    load = Load()
    await serve(
        {
            "open": load.open,
            "mark": load.mark,
            "close": load.close,
            "chat": load.chat,
            "arrive": load.arrive,
            "seen": load.seen,
            "hush": load.hush,
            "once": load.once,
            "storm": load.storm,
        }
    )


if __name__ == "__main__":
    uvloop.run(main())
