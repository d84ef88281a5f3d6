"""A helper process of a bench: it answers one line of JSON for each that it is given.

    peer = Peer.start(services, "load", "bench.support.load")
    peer.ask("open", streams=[...])["opened"]

In the helper itself, `serve(verbs)`. It ends when its standard input does.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from bench.support.services import Services

LINE_BYTES_MAX = 64 * 1024 * 1024

Verb = Callable[..., Awaitable[dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class Peer:
    """The helper as the bench sees it."""

    name: str
    popen: subprocess.Popen[bytes]
    log: Path

    @classmethod
    def start(cls, services: Services, name: str, module: str) -> Self:
        log, popen = services.spawn(name, [module])
        return cls(name, popen, log)

    @property
    def pid(self) -> int:
        return self.popen.pid

    def ask(self, verb: str, **arguments: object) -> dict[str, Any]:
        """Wait for its answer. Raises RuntimeError, with its last words, where it has none."""
        if self.popen.stdin is None or self.popen.stdout is None:
            raise RuntimeError("spawned with pipes")
        try:
            self.popen.stdin.write(json.dumps([verb, arguments]).encode() + b"\n")
            self.popen.stdin.flush()
            answer = self.popen.stdout.readline()
        except BrokenPipeError:
            answer = b""
        if not answer:
            tail = self.log.read_text(errors="replace")[-4000:]
            raise RuntimeError(f"{self.name} ended at {verb}:\n{tail}")
        return dict(json.loads(answer))


async def serve(verbs: Mapping[str, Verb]) -> None:
    """Answer from standard input to standard output until the input ends."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=LINE_BYTES_MAX)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin.buffer)
    while line := await reader.readline():
        verb, arguments = json.loads(line)
        answer = await verbs[verb](**arguments)
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
