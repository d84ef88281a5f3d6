"""Whatever is pushed, lost, repeated or late: a client ends with the text of the whole log."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from generation.events import Event, encode_data
from generation.gateway.viewer import INBOX_LIMIT_BYTES, PAGE_EVENTS, Viewer
from generation.runs import RunEnd
from generation.token_log.commands import LogPage
from generation.token_log.push import PushedRun, decode_push, encode_push
from tests.phone import Frame, FrameParser, Phone

RUN = "g_" + "7" * 32
DONE = {
    "finish": "stop",
    "usage": {"prompt_tokens": 3, "cached_tokens": 0, "output_tokens": 1},
    "active_leaf": "m_" + "7" * 32,
}
STEPS = ("push", "lose", "tell", "again", "snapshot", "read")


class Log:
    """A token log in memory: what was appended, read after a cursor."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.reads = 0

    @property
    def last_seq(self) -> int:
        return self.events[-1].seq if self.events else 0

    def append(self, name: str, text: str, jump: int = 1) -> Event:
        data = DONE if name == "done" else {"text": text}
        event = Event(self.last_seq + jump, name, encode_data(data))
        self.events.append(event)
        return event

    async def read(self, run: str, after: int, limit: int) -> LogPage:
        self.reads += 1
        found = [event for event in self.events if event.seq > after][:limit]
        ended = any(event.name == "done" for event in self.events)
        return LogPage(tuple(found), self.last_seq, ended)

    def push(self, events: Sequence[Event]) -> PushedRun:
        (payload,) = encode_push([(RUN, self.last_seq, events)])
        return decode_push(payload)[0]


async def _drain(viewer: Viewer, frames: list[Frame], parser: FrameParser, chunks: int) -> None:
    """Write up to `chunks` chunks, as far as there are any now."""
    for _ in range(chunks):
        if chunk := await viewer.take():
            frames += parser.feed(chunk)


def _ids(frames: list[Frame]) -> list[str]:
    return [str(frame.id) for frame in frames if frame.id]


@settings(deadline=None)  # the machine may be busy
@given(steps=st.lists(st.tuples(st.sampled_from(STEPS), st.integers(1, 4)), max_size=60))
def test_the_text_of_the_whole_log(steps: list[tuple[str, int]]) -> None:
    asyncio.run(_follow(steps))


async def _follow(steps: list[tuple[str, int]]) -> None:
    log, frames, parser = Log(), list[Frame](), FrameParser()
    viewer = Viewer(RUN, 0, log.read)
    pushed: list[PushedRun] = []
    for step, count in steps:
        if step == "read":
            await _drain(viewer, frames, parser, count)
        elif step == "again" and pushed:
            viewer.offer(pushed[-min(count, len(pushed))])
        elif step == "tell":
            viewer.offer(log.push([]))
        elif step == "snapshot":
            pushed.append(log.push([log.append("snapshot", "s", jump=count)]))
            viewer.offer(pushed[-1])
        else:
            pushed.append(log.push([log.append("delta", "x" * count) for _ in range(count)]))
            if step == "push":
                viewer.offer(pushed[-1])
    log.append("done", "")
    viewer.look_again()
    async with asyncio.timeout(60):
        async for chunk in viewer.chunks():
            frames += parser.feed(chunk)
    assert viewer.ended
    shown, whole = Phone({}, RUN), Phone({}, RUN)
    for frame in frames:
        shown.take(frame)  # checks that seqs rise, and jump only to what replaces or ends
    for event in log.events:
        whole.take(Frame(event.name, json.loads(event.data), f"{RUN}:{event.seq}"))
    assert (shown.text, shown.cursor) == (whole.text, whole.cursor)


async def test_what_waits_for_a_slow_client_is_bounded() -> None:
    log, frames, parser = Log(), list[Frame](), FrameParser()
    viewer = Viewer(RUN, 0, log.read)
    await _drain(viewer, frames, parser, 1)
    for _ in range(400):
        viewer.offer(log.push([log.append("delta", "x" * 3_000)]))
        assert viewer.inbox_bytes <= INBOX_LIMIT_BYTES
    log.append("done", "")
    viewer.offer(log.push([log.events[-1]]))
    async for chunk in viewer.chunks():
        frames += parser.feed(chunk)
    assert len(_ids(frames)) == 401
    assert log.reads <= 2 + 401 // PAGE_EVENTS + 1


async def test_without_losses_the_log_is_read_once() -> None:
    log, frames, parser = Log(), list[Frame](), FrameParser()
    viewer = Viewer(RUN, 0, log.read)
    await _drain(viewer, frames, parser, 1)
    for _ in range(50):
        viewer.offer(log.push([log.append("delta", "x")]))
        await _drain(viewer, frames, parser, 1)
    assert len(_ids(frames)) == 50
    assert log.reads == 1


async def test_a_place_in_the_queue_is_not_told_after_the_text() -> None:
    log, frames, parser = Log(), list[Frame](), FrameParser()
    viewer = Viewer(RUN, 0, log.read)
    await _drain(viewer, frames, parser, 1)
    viewer.say(b'event: notice\ndata: {"code":"queued"}\n\n')
    viewer.offer(log.push([log.append("delta", "x")]))
    await _drain(viewer, frames, parser, 3)
    assert [frame.name for frame in frames] == ["delta"]


async def test_an_end_from_the_database_replaces_and_ends() -> None:
    log, frames, parser = Log(), list[Frame](), FrameParser()
    viewer = Viewer(RUN, 0, log.read)
    log.append("delta", "part")
    await _drain(viewer, frames, parser, 1)
    viewer.end_with(RunEnd(9, encode_data({"finish": "stop"}), "all of it"))
    async for chunk in viewer.chunks():
        frames += parser.feed(chunk)
    assert [(frame.name, frame.id) for frame in frames] == [
        ("delta", f"{RUN}:1"),
        ("snapshot", None),
        ("done", f"{RUN}:9"),
    ]
