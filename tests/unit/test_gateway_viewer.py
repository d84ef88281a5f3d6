"""A viewer gives each event once, in order, whatever of what was pushed is lost on the way."""

from __future__ import annotations

import asyncio
import re

from hypothesis import given, settings
from hypothesis import strategies as st

from generation.events import Event, encode_data
from generation.gateway.viewer import INBOX_LIMIT_BYTES, Viewer
from generation.runs import RunEnd
from generation.token_log import LogPage
from generation.token_log.push import decode_push, encode_push

RUN = "g_" + "0" * 32


class FakeLog:
    """Grows event by event; counts how often it is read."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.reads = 0

    async def read(self, run: str, after: int, limit: int) -> LogPage | None:
        self.reads += 1
        await asyncio.sleep(0)  # lets pushes come in between
        if not self.events:
            return None
        page = [event for event in self.events if event.seq > after][:limit]
        return LogPage(tuple(page), self.events[-1].seq, self.events[-1].name == "done")


def answer(count: int) -> list[Event]:
    """`start`, deltas, `done`."""
    deltas = [Event(seq, "delta", encode_data({"text": f"w{seq} "})) for seq in range(2, count)]
    return [Event(1, "start", b"{}"), *deltas, Event(count, "done", b"{}")]


def push(viewer: Viewer, events: list[Event], told_seq: int) -> None:
    for payload in encode_push([(RUN, told_seq, events)]):
        for pushed in decode_push(payload):
            viewer.offer(pushed)


async def collect(viewer: Viewer) -> bytes:
    return b"".join([chunk async for chunk in viewer.chunks()])


def seqs(written: bytes) -> list[int]:
    return [int(seq) for seq in re.findall(rb"^id: \w+:(\d+)$", written, re.MULTILINE)]


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_every_event_is_given_once_whatever_push_is_lost(data: st.DataObject) -> None:
    events = answer(data.draw(st.integers(min_value=2, max_value=25), label="events"))
    batches = data.draw(st.lists(st.integers(1, 4), min_size=25, max_size=25), label="batches")
    lost = data.draw(st.lists(st.booleans(), min_size=25, max_size=25), label="lost")
    after = data.draw(st.integers(min_value=0, max_value=len(events) - 1), label="cursor")

    async def play() -> bytes:
        log = FakeLog()
        viewer = Viewer(RUN, after, log.read)
        writing = asyncio.create_task(collect(viewer))
        rest = list(events)
        for size, is_lost in zip(batches, lost, strict=True):
            batch, rest = rest[:size], rest[size:]
            log.events += batch
            if batch and not is_lost:
                push(viewer, batch, batch[-1].seq)
            await asyncio.sleep(0)
        viewer.look_again()  # what the hub does after silence
        return await asyncio.wait_for(writing, 5)

    assert seqs(asyncio.run(play())) == [event.seq for event in events if event.seq > after]


async def test_what_follows_the_cursor_needs_no_read() -> None:
    log = FakeLog()
    events = answer(6)
    log.events = events[:2]
    viewer = Viewer(RUN, 0, log.read)
    writing = asyncio.create_task(collect(viewer))
    while viewer.cursor < 2:
        await asyncio.sleep(0)

    push(viewer, events[2:], 6)

    assert seqs(await writing) == [1, 2, 3, 4, 5, 6]
    assert log.reads == 1


async def test_a_slow_client_keeps_a_bounded_inbox_and_loses_no_word() -> None:
    log = FakeLog()
    big = encode_data({"text": "x" * 10_000})
    events = [Event(1, "start", b"{}"), *(Event(seq, "delta", big) for seq in range(2, 40))]
    events.append(Event(40, "done", b"{}"))
    viewer = Viewer(RUN, 0, log.read)

    held_bytes = []
    for event in events:
        log.events.append(event)
        push(viewer, [event], event.seq)
        held_bytes.append(viewer.inbox_bytes)

    assert max(held_bytes) <= INBOX_LIMIT_BYTES + 11_000
    assert seqs(await collect(viewer)) == list(range(1, 41))


async def test_an_ended_run_without_a_log_gives_its_text_and_done_under_its_seq() -> None:
    viewer = Viewer(RUN, 3, FakeLog().read)
    viewer.end_with(RunEnd(last_seq=9, done_data=b'{"finish":"stop"}', text="whole"))

    written = await collect(viewer)

    assert written.startswith(b'event: snapshot\ndata: {"text":"whole"}\n\n')
    assert seqs(written) == [9]


async def test_a_told_seq_that_is_ahead_sends_the_viewer_to_the_log() -> None:
    log = FakeLog()
    log.events = answer(2)[:1]
    viewer = Viewer(RUN, 0, log.read)
    writing = asyncio.create_task(collect(viewer))
    while viewer.cursor < 1:
        await asyncio.sleep(0)
    log.events.append(answer(2)[1])

    push(viewer, [], told_seq=2)

    assert seqs(await asyncio.wait_for(writing, 5)) == [1, 2]
