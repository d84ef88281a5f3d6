"""The seven invariants of an answer's life, each held against one storm in which everything dies.

The order of the storm is forced (the engine waits for files), so that each kind of run meets each
fault: answers that are whole, stopped, broken once, broken for good, watched from two devices, sent
twice, waiting in the queue.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

from chatproject.embedded import EmbeddedValkey
from tests.faults.conftest import mend
from tests.phone import PATIENT, Phone, call, get_run, stop, stored_reply
from tests.stack import Person, Stack, directive

TOKENS = 120
BEFORE_FAULTS = 20
KINDS: dict[str, dict[str, object]] = {
    "whole": {},
    "whole, too": {},
    "stopped": {},
    "stopped, too": {},
    "broken once": {"cut_after": 30},
    "failed once": {"fail_after": 40},
    "broken for good": {"broken_at": 10},
    "never begun": {"unavailable": True, "fault_times": 0},
    "waiting": {},
    "waiting, too": {},
}
WAITING = ("waiting", "waiting, too")
NEVER = "never begun"


@dataclass
class Told:
    """One send, and what two devices were shown of its run."""

    kind: str
    key: str
    content: str
    owner: Person
    phone: Phone
    tablet: Phone
    repeated: list[str] = field(default_factory=list)
    at_done: list[dict[str, Any]] = field(default_factory=list)
    """The run as the API had it the moment each device was shown `done`."""

    @property
    def run(self) -> str:
        return self.phone.run


class Storm:
    """Sends, kills, and waits until everything has ended."""

    def __init__(self, stack: Stack, valkey: EmbeddedValkey) -> None:
        self.stack, self._valkey = stack, valkey
        people = [stack.people["ada"], stack.people["bob"]]
        self.told = [
            self._make(number, kind, people[number % 2]) for number, kind in enumerate(KINDS)
        ]

    @staticmethod
    def _make(number: int, kind: str, owner: Person) -> Told:
        script = {"tokens": TOKENS, "tokens_per_s": 60, **KINDS[kind]}
        content = directive(**script, hold="storm", hold_after=BEFORE_FAULTS)
        devices = (Phone(owner.headers), Phone(owner.headers))
        return Told(kind, f"storm-{number}", content, owner, *devices)

    def of(self, *kinds: str) -> list[Told]:
        return [one for one in self.told if one.kind in kinds]

    async def rage(self) -> None:
        # A run that does not end would be waited for for ever.
        async with asyncio.timeout(240):
            await self._rage()

    async def _rage(self) -> None:
        stack, hold = self.stack, self.stack.hold("storm")
        tasks = []
        for one in self.told:
            tasks.append(asyncio.create_task(self._send(one)))
            await one.phone.until(lambda p: p.start)
            tasks.append(asyncio.create_task(self._watch(one)))
        for one in self.told:
            if one.kind not in (*WAITING, NEVER, "broken for good"):
                await one.phone.until(lambda p: len(p.text.split()) >= BEFORE_FAULTS)
        await self._repeat()
        for one in self.of(*WAITING):
            found = await asyncio.to_thread(get_run, stack.webs[1].url, one.owner.headers, one.run)
            assert found["status"] == "queued", "there are eight slots for ten"
        self._replace_web()
        await self._stop(self.of("stopped")[0])
        stack.workers[-1].kill()
        stack.start_worker(8)
        await self._repeat()
        await self._stop(self.of("stopped, too")[0])
        # Each has an owner again: a run that loses its log without one ends as `interrupted`.
        for one in self.of("whole", "whole, too", "broken once", "failed once"):
            await one.phone.until(lambda p: p.told)
        await self.of("stopped, too")[0].phone.until(lambda p: p.done)
        self._valkey.kill()
        hold.unlink()
        await asyncio.sleep(1)  # an outage has a length; nothing is awaited here
        self._valkey.start()
        await asyncio.gather(*tasks)
        await self._repeat()

    async def _send(self, one: Told) -> None:
        await one.phone.send(self.stack.webs[0].url, one.content, key=one.key)
        await self._to_the_end(one, one.phone)

    async def _watch(self, one: Told) -> None:
        one.tablet.run = one.run
        await self._to_the_end(one, one.tablet)

    async def _to_the_end(self, one: Told, device: Phone) -> None:
        await device.follow(*(web.url for web in reversed(self.stack.webs)))
        found = await asyncio.to_thread(get_run, self.stack.webs[1].url, one.owner.headers, one.run)
        one.at_done.append(found)

    async def _repeat(self) -> None:
        """Each send once more, under its key: as a phone that lost the reply."""
        path = f"{self.stack.webs[1].url}/v1/conversations/new/messages"
        for one in self.told:
            headers = {**one.owner.headers, "Idempotency-Key": one.key}
            answer = await asyncio.to_thread(call, "POST", path, headers, {"content": one.content})
            assert answer.status_code in (200, 202, 503), answer.text
            if answer.status_code != 503:
                one.repeated.append(_run_of(answer))

    def _replace_web(self) -> None:
        gone = self.stack.webs[0]
        gone.kill()
        self.stack.webs[0] = self.stack.start_web(gone.port)
        self.stack.webs.pop()

    async def _stop(self, one: Told) -> None:
        url = self.stack.webs[1].url
        answer = await asyncio.to_thread(stop, url, one.owner.headers, one.run)
        assert answer.status_code in (200, 202), answer.text


def _run_of(answer: httpx.Response) -> str:
    """202 tells the run; an ended one's reply is its stream."""
    found = re.search(r"g_[0-9a-f]{32}", answer.text)
    assert found is not None, answer.text
    return found[0]


@pytest.fixture(scope="module")
def storm(_breakable: Stack, valkey: EmbeddedValkey) -> Storm:
    mend(_breakable, valkey)
    made = Storm(_breakable, valkey)
    asyncio.run(made.rage())
    return made


@pytest.fixture(scope="module")
def rows(storm: Storm) -> dict[str, dict[str, Any]]:
    """What PostgreSQL has of each run."""
    columns = ("status", "finish", "epoch", "last_seq", "output_tokens")
    query = f"SELECT id, {', '.join(columns)} FROM generation_run"  # noqa: S608
    return {
        f"g_{run_id.hex}": dict(zip(columns, values, strict=True))
        for run_id, *values in storm.stack.rows(query)
    }


def test_invariant_1_the_assembled_text_is_the_stored_reply(storm: Storm) -> None:
    for one in storm.told:
        stored = stored_reply(storm.stack.webs[0].url, one.owner.headers, one.phone.start)
        assert one.phone.text == stored == one.tablet.text, one.kind
    whole = " ".join(f"w{n}" for n in range(1, TOKENS + 1))
    for one in storm.of("whole", "whole, too", "broken once", "failed once", *WAITING):
        assert one.phone.text == whole, one.kind
    for one in storm.of("stopped", "stopped, too"):
        assert one.phone.text.startswith("w1 w2 w3"), one.kind


def test_invariant_2_seq_strictly_rises_and_names_one_thing(storm: Storm) -> None:
    for one in storm.told:
        told: dict[int, object] = {}
        for device in (one.phone, one.tablet):
            assert device.seqs == sorted(set(device.seqs)), one.kind
            for seq, said in _replayed(device):
                assert told.setdefault(seq, said) == said, (one.kind, seq)


def _replayed(device: Phone) -> Iterator[tuple[int, object]]:
    """What stood on the screen at each seq: its text, for a late device may have been given a
    snapshot in place of the deltas, and what came with it otherwise."""
    screen = Phone({}, device.run)
    for frame in device.frames:
        screen.take(frame)
        if frame.id is not None:
            is_text = frame.name in ("delta", "snapshot")
            yield screen.cursor, (screen.text, None if is_text else (frame.name, frame.data))


def test_invariant_3_a_run_ends_once_in_the_database_first(
    storm: Storm, rows: dict[str, dict[str, Any]]
) -> None:
    for one in storm.told:
        assert one.phone.done is not None
        assert one.phone.done == one.tablet.done, one.kind
        names = [frame.name for frame in one.phone.frames]
        assert (names.count("done"), names[-1]) == (1, "done")
        assert len(one.at_done) == 2
        for found in one.at_done:
            assert found["finish"] == one.phone.done["finish"], "told before it was stored"
        assert rows[one.run]["last_seq"] == one.phone.cursor


def test_invariant_4_every_saved_send_has_a_run_that_ends(
    storm: Storm, rows: dict[str, dict[str, Any]]
) -> None:
    expected = {"stopped": "stopped", "broken for good": "failed", NEVER: "failed"}
    for one in storm.told:
        assert one.repeated, one.kind
        assert set(one.repeated) == {one.run}, one.kind
        status = expected.get(one.kind.removesuffix(", too"), "completed")
        assert rows[one.run]["status"] == status, one.kind
    keys = storm.stack.rows(
        "SELECT key, count(*), count(run_id) FROM generation_idempotencykey "
        "WHERE key LIKE 'storm-%%' GROUP BY key"
    )
    assert len(keys) == len(KINDS)
    assert {(count, runs) for _, count, runs in keys} == {(1, 1)}


def test_invariant_5_what_was_used_is_settled_once(storm: Storm) -> None:
    query = "SELECT run_id, count(*) FROM quotas_usageentry GROUP BY run_id"
    entries = {f"g_{run_id.hex}": count for run_id, count in storm.stack.rows(query)}
    assert {entries.get(one.run) for one in storm.told} == {1}


def test_invariant_6_nothing_of_another_is_reached(storm: Storm) -> None:
    """With each id and cursor that was shown. (All calls: tests/integration/test_api_access.py.)"""
    url, everybody = storm.stack.webs[0].url, set(storm.stack.people.values())
    for one in storm.of("whole", "stopped, too"):
        (other,) = everybody - {one.owner}
        start, cursor = one.phone.start, one.phone.seqs[-2]
        resuming = {"Last-Event-ID": f"{one.run}:{cursor}", "Accept": "text/event-stream"}
        for method, path in (
            ("GET", f"/v1/runs/{one.run}"),
            ("GET", f"/v1/runs/{one.run}/stream"),
            ("POST", f"/v1/runs/{one.run}:stop"),
            ("GET", f"/v1/conversations/{start['conversation']}"),
            ("GET", f"/v1/conversations/{start['conversation']}?before={start['reply_msg']}"),
        ):
            for headers, status in ((other.headers, 404), ({}, 401)):
                asked = {**headers, **resuming}
                answer = httpx.request(method, url + path, headers=asked, **PATIENT)
                assert answer.status_code == status, path
                assert "w1" not in answer.text
        listed = call("GET", f"{url}/v1/conversations", other.headers).text
        assert start["conversation"] not in listed


def test_invariant_7_nobody_pays_for_what_they_did_not_get(
    storm: Storm, rows: dict[str, dict[str, Any]]
) -> None:
    query = "SELECT run_id, output_tokens, prompt_tokens FROM quotas_usageentry"
    used = {f"g_{run_id.hex}": values for run_id, *values in storm.stack.rows(query)}
    for one in storm.told:
        words = len(one.phone.text.split())
        assert used[one.run][0] == rows[one.run]["output_tokens"] == words, one.kind
    (never,) = storm.of(NEVER)
    assert used[never.run] == [0, 0]
