"""`make run` with two of each, and `make restart` while people send."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from chatproject.embedded.processes import children_of
from tests.phone import Headers, Phone, stored_reply
from tests.stack import directive
from tests.started import Started

LONG, SHORT = 4, 4
"""How many people wait for one answer all the while, and how many for one after the other."""
TOKENS = 100
WHOLE = " ".join(f"w{n}" for n in range(1, TOKENS + 1))


def _knobs(hold_file: Path) -> dict[str, str]:
    profile = {
        "kind": "simulated",
        "model": "sim",
        "slots": 8,
        "context_tokens": 32_768,
        "options": {"directives": True, "hold_file": str(hold_file)},
    }
    return {
        "WEB": "2",
        "WORKERS": "2",
        "SLOTS": "8",
        "WORKER_GRACE_S": "1",
        "ENGINE_PROFILES": json.dumps({"demo": profile}),
        "ALLOWED_HOSTS": "127.0.0.1",
    }


@pytest.fixture
def hold(tmp_path: Path) -> Path:
    hold = tmp_path / "hold.long"
    hold.touch()
    return hold


@pytest.fixture
def twice(tmp_path: Path, hold: Path) -> Iterator[Started]:
    with Started.ready(tmp_path, redis_db=10, **_knobs(hold.with_suffix(""))) as run:
        yield run


class Talker:
    """Sends one message after the other; where nobody listens, the next address is asked, as a
    proxy does."""

    def __init__(self, urls: list[str], headers: Headers, number: int) -> None:
        self.answers: list[Phone] = []
        self._urls, self._headers, self._number = urls, headers, number

    async def talk(self, over: asyncio.Event, **script: object) -> None:
        for turn in itertools.count():
            if over.is_set():
                return
            self.answers.append(phone := Phone(self._headers))
            await self._send(phone, f"{self._number}-{turn}", script)
            await phone.follow(*self._urls)
            if script:
                return

    async def _send(self, phone: Phone, key: str, script: dict[str, object]) -> None:
        content = directive(tokens=TOKENS, tokens_per_s=50, **script)
        for place in itertools.count(self._number):
            try:
                await phone.send(self._urls[place % 2], content, key=key)
            except (ConnectionError, EOFError):
                await asyncio.sleep(0.05)
            if phone.run:
                return


async def test_rolling_restart_of_make_run_under_load(twice: Started, hold: Path) -> None:
    words = ("create_api_token", "admin@localhost", "--name", "talkers")
    token = twice.command("--manage", *words).split()[-1]
    headers = {"Authorization": f"Bearer {token}"}
    urls = [f"http://127.0.0.1:{twice.port + place}" for place in range(2)]
    talkers = [Talker(urls, headers, number) for number in range(LONG + SHORT)]
    before, over = set(children_of(twice.process.pid)), asyncio.Event()
    # Held in the middle: each of its owners ends under it.
    script = {"hold": "long", "hold_after": 30}
    talking = [asyncio.create_task(talker.talk(over, **script)) for talker in talkers[:LONG]]
    talking += [asyncio.create_task(talker.talk(over)) for talker in talkers[LONG:]]
    await asyncio.sleep(0)
    for talker in talkers:
        await talker.answers[0].until(lambda p: p.text)
    await asyncio.to_thread(twice.command, "--restart")
    await asyncio.to_thread(twice.line_with, "All of them were restarted")
    held = [talker.answers[0] for talker in talkers[:LONG]]
    assert all(phone.done is None for phone in held)
    await asyncio.to_thread(hold.unlink)
    over.set()
    await asyncio.gather(*talking)
    assert not before & set(children_of(twice.process.pid)), "all of them were"
    answers = [phone for talker in talkers for phone in talker.answers]
    print(f"{len(answers)} answers, {sum(bool(p.told) for p in answers)} went on elsewhere")
    for phone in answers:
        assert phone.done is not None
        assert (phone.done["finish"], phone.error, phone.cut) == ("stop", None, False)
        assert phone.text == WHOLE == stored_reply(urls[0], headers, phone.start)
    assert all("recovered" in phone.told for phone in held)
    assert not any("is killed" in line for line in twice.lines), twice.lines
