"""People who talk to a product that is being killed under them, as the page does.

Each sends, reads the answer over whatever connections it takes, and keeps what was shown. A send
that was not answered is repeated under its key; a stream that broke goes on from its cursor at
another web process.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import time
import uuid
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any, Final

import httpx

PATIENCE_S: Final = 180.0
"""A run that has not ended after so long is lost."""

ASK_S: Final = 10.0
SILENCE_S: Final = 15.0
"""A connection without even a heartbeat for so long is broken: they come every ten seconds."""

PAUSE_S: Final = 0.3


@dataclass(slots=True)
class Shown:
    """One send, and what its sender saw of the answer. `lost`: it was accepted and never ended."""

    key: str
    words: int
    accepted: bool = False
    run: str = ""
    conversation: str = ""
    reply: str = ""
    text: str = ""
    cursor: int = 0
    anchor: str | None = None  # the text at the cursor, under a snapshot without a seq
    finish: str = ""
    connections: int = 0
    began_s: float = field(default_factory=time.time)
    ended_s: float = 0.0
    problems: list[str] = field(default_factory=list)

    def take(self, name: str, seq: int, data: dict[str, Any]) -> None:
        """One event, by the rules that every client relies on."""
        if seq:
            if seq <= self.cursor:
                self.problems.append(f"{name} {seq} after {self.cursor}")
            jumps = name in ("snapshot", "retract", "done")
            if seq != self.cursor + 1 and not jumps:
                self.problems.append(f"{name} {seq} leaves a gap after {self.cursor}")
            self.cursor = seq
            if name == "delta" and self.anchor is not None:
                self.text = self.anchor
            self.anchor = None
        if name == "start":
            self.run, self.conversation = data["run"], data["conversation"]
            self.reply = data["reply_msg"]
        elif name == "delta":
            self.text += data["text"]
        elif name in ("snapshot", "retract"):
            if name == "snapshot" and not seq and self.anchor is None:
                self.anchor = self.text  # what the cursor still stands for
            self.text = data.get("text", "")
        elif name == "done":
            self.finish, self.ended_s = data["finish"], time.time()


class Person:
    """One user with an API token. `urls`: the web processes, any of which may be dead."""

    def __init__(
        self, client: httpx.AsyncClient, token: str, urls: Callable[[], list[str]]
    ) -> None:
        self._client = client
        self._headers = {"Authorization": f"Bearer {token}"}
        self._urls = urls
        self._next = itertools.count(random.randrange(100))
        self.shown: list[Shown] = []
        self.reads = 0
        self.failed_reads: list[str] = []

    async def talk(self, content: Callable[[int], str], words: int) -> None:
        """A new conversation, or the one from before, half and half; to the end of the answer."""
        before = self.shown[-1].conversation if self.shown else ""
        conversation = before if len(self.shown) % 2 else "new"
        shown = Shown(uuid.uuid4().hex, words)
        self.shown.append(shown)
        path = f"/v1/conversations/{conversation or 'new'}/messages"
        deadline_s = time.monotonic() + PATIENCE_S
        while not shown.finish and time.monotonic() < deadline_s:
            try:
                await self._go_on(shown, path, content(words))
            except (httpx.HTTPError, TimeoutError):
                await asyncio.sleep(PAUSE_S)

    async def _go_on(self, shown: Shown, path: str, content: str) -> None:
        """One connection: the send again until it is accepted, then the rest of the stream."""
        shown.connections += 1
        headers = {**self._headers, "Accept": "text/event-stream"}
        if not shown.run:
            headers["Idempotency-Key"] = shown.key
            asked = self._client.build_request(
                "POST", self._url() + path, headers=headers, json={"content": content}
            )
        else:
            headers["Last-Event-ID"] = f"{shown.run}:{shown.cursor}"
            url = f"{self._url()}/v1/runs/{shown.run}/stream"
            asked = self._client.build_request("GET", url, headers=headers)
        response = await self._client.send(asked, stream=True)
        try:
            if response.status_code == httpx.codes.OK:
                shown.accepted = True
                async for name, seq, data in _events(response):
                    shown.take(name, seq, data)
            else:
                await self._refused(shown, response)
        finally:
            await response.aclose()

    async def _refused(self, shown: Shown, response: httpx.Response) -> None:
        if response.status_code not in (429, 503):
            body = (await response.aread())[:200].decode("utf-8", "replace")
            shown.problems.append(f"{response.status_code} {body}")
        await asyncio.sleep(PAUSE_S)

    async def read_history(self) -> None:
        """The list and the last conversation; a dead web process is passed over, as by any load
        balancer, and an error of a living one is a failure."""
        paths = ["/v1/conversations"]
        if self.shown and self.shown[-1].conversation:
            paths.append(f"/v1/conversations/{self.shown[-1].conversation}")
        for path in paths:
            self.reads += 1
            if problem := await self._read(path):
                self.failed_reads.append(f"{path}: {problem}")

    async def _read(self, path: str) -> str:
        """What went wrong; empty where nothing did."""
        problem = "no web process"
        first = self._url()
        for url in sorted(self._urls(), key=lambda url: url != first):
            try:
                answer = await self._client.get(url + path, headers=self._headers, timeout=ASK_S)
            except httpx.TransportError as error:
                problem = f"{type(error).__name__} at {url}"
                continue
            return "" if answer.status_code == httpx.codes.OK else f"{answer.status_code}"
        return problem

    def _url(self) -> str:
        urls = self._urls()
        return urls[next(self._next) % len(urls)]


async def _events(response: httpx.Response) -> AsyncIterator[tuple[str, int, dict[str, Any]]]:
    """The events of a stream: name, seq (0: none) and data. Raises TimeoutError where it hangs."""
    lines = aiter(response.aiter_lines())
    name, seq, data = "", 0, ""
    while True:
        async with asyncio.timeout(SILENCE_S):
            line = await anext(lines, None)
        if line is None:
            return
        key, _, value = line.partition(": ")
        if key == "event":
            name = value
        elif key == "id":
            seq = int(value.rpartition(":")[2])
        elif key == "data":
            data = value
        elif not line and name:
            yield name, seq, json.loads(data)
            name, seq, data = "", 0, ""
