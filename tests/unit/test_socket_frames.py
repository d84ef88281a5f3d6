"""The frames of a socket: what passes, what does not, and that no byte of a run is changed."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounts.errors import NotFound
from generation.events import (
    EVENT_NAMES,
    MAX_SEQ,
    Event,
    comment_frame,
    encode_data,
    frame_without_id,
    sse_frame,
)
from generation.gateway.frame_rate import BURST, PER_S, FrameRate
from generation.gateway.outbox import MAX_HINTS, MAX_REPLIES, Outbox
from generation.gateway.socket_frames import (
    LOOK_AGAIN,
    MAX_FRAME_BYTES,
    BadFrame,
    ClientFrame,
    FrameTooBig,
    parse_frame,
    refused_frame,
    run_frames,
)

RUN = "g_" + "7" * 32
TEXTS = st.text(st.characters(exclude_categories=["Cs"]))


# --- runs -----------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.sampled_from(EVENT_NAMES), TEXTS, st.booleans())))
def test_a_socket_says_what_a_stream_says(events: list[tuple[str, str, bool]]) -> None:
    chunk, wanted = b"", []
    for seq, (name, text, has_id) in enumerate(events, start=1):
        data = encode_data({"text": text})
        chunk += sse_frame(RUN, Event(seq, name, data)) if has_id else frame_without_id(name, data)
        chunk += comment_frame() if seq % 3 == 0 else b""
        cursor = f"{RUN}:{seq}" if has_id else None
        wanted.append({"id": cursor, "run": RUN, "event": name, "data": {"text": text}})
    assert [json.loads(frame) for frame in run_frames(RUN, chunk)] == wanted


def test_silence_says_nothing() -> None:
    assert list(run_frames(RUN, b"")) == list(run_frames(RUN, comment_frame())) == []


# --- what a client may say ------------------------------------------------------------------------


def test_what_a_client_may_say() -> None:
    def said(**fields: object) -> ClientFrame:
        return parse_frame(json.dumps(fields))

    assert said(type="ping") == ClientFrame("ping")
    assert said(type="auth", token="t_x") == ClientFrame("auth", token="t_x")
    assert said(type="watch", run=RUN) == ClientFrame("watch", run=RUN, after=0)
    assert said(type="watch", run=RUN, after=7) == ClientFrame("watch", run=RUN, after=7)
    assert said(type="unwatch", run=RUN) == ClientFrame("unwatch", run=RUN)
    assert said(type="stop", run="anything") == ClientFrame("stop", run="anything")


BAD = [
    "",
    "x",
    "null",
    "[]",
    "7",
    '"watch"',
    "{}",
    '{"type": null}',
    '{"type": ["watch"]}',
    '{"type": "shutdown"}',
    '{"type": "__class__"}',
    '{"type": "ping", "extra": 1}',
    '{"type": "ping", "type": "ping"}',
    '{"type": "watch"}',
    '{"type": "watch", "run": 7}',
    '{"type": "watch", "run": null}',
    f'{{"type": "watch", "run": "{RUN}", "after": -1}}',
    f'{{"type": "watch", "run": "{RUN}", "after": true}}',
    f'{{"type": "watch", "run": "{RUN}", "after": 1.0}}',
    f'{{"type": "watch", "run": "{RUN}", "after": "1"}}',
    f'{{"type": "watch", "run": "{RUN}", "after": {MAX_SEQ + 1}}}',
    f'{{"type": "watch", "run": "{RUN}", "after": {"9" * 4_000}}}',
    f'{{"type": "watch", "run": "{RUN}", "after": NaN}}',
    f'{{"type": "unwatch", "run": "{RUN}", "after": 1}}',
    '{"type": "auth"}',
    '{"type": "auth", "token": {}}',
    "[" * MAX_FRAME_BYTES,
    '{"type":' * 500,
]


@pytest.mark.parametrize("text", BAD, ids=lambda text: text[:40])
def test_what_a_client_may_not_say(text: str) -> None:
    with pytest.raises(BadFrame) as refusal:
        parse_frame(text)
    assert len(str(refusal.value).encode()) <= 123, "a close frame has no room for more"


@pytest.mark.parametrize(
    "text", ["x" * (MAX_FRAME_BYTES + 1), "\u00e4" * (MAX_FRAME_BYTES // 2 + 1)]
)
def test_a_frame_that_is_too_big(text: str) -> None:
    with pytest.raises(FrameTooBig):
        parse_frame(text)


@given(st.one_of(st.text(), st.text(alphabet='{}[]":,\\ntypewachru0')))
def test_any_text_is_a_frame_or_refused(text: str) -> None:
    try:
        parse_frame(text)
    except (BadFrame, FrameTooBig):
        return
    except UnicodeEncodeError:
        pytest.skip("no such text comes from a socket")


def test_a_refusal_names_what_was_asked() -> None:
    frame = refused_frame(ClientFrame("watch", run='g_"\u2028'), NotFound())
    said: dict[str, Any] = json.loads(frame)
    assert said["event"] == "refused"
    assert (said["data"]["type"], said["data"]["run"]) == ("watch", 'g_"\u2028')
    assert said["data"]["error"]["code"] == "not_found"


# --- what waits -----------------------------------------------------------------------------------


async def _all_of(outbox: Outbox) -> list[str]:
    taken: list[str] = []
    while True:
        try:
            async with asyncio.timeout(0):
                taken.append(await outbox.take())
        except TimeoutError:
            return taken


async def test_the_same_hint_waits_once() -> None:
    outbox = Outbox()
    for frame in ("a", "b", "a"):
        outbox.hint(frame)
    assert await _all_of(outbox) == ["a", "b"]
    outbox.hint("a")
    assert await _all_of(outbox) == ["a"]


async def test_too_many_hints_say_look_again() -> None:
    outbox = Outbox()
    for number in range(3 * MAX_HINTS):
        outbox.hint(str(number))
    assert await _all_of(outbox) == [LOOK_AGAIN]
    outbox.hint("x")
    outbox.hint(LOOK_AGAIN)
    assert await _all_of(outbox) == [LOOK_AGAIN], "it says all that the others said"


async def test_replies_are_bounded_and_go_first() -> None:
    outbox = Outbox()
    outbox.hint("hint")
    assert all(outbox.reply(str(number)) for number in range(MAX_REPLIES))
    assert not outbox.reply("one more")
    assert await _all_of(outbox) == [*map(str, range(MAX_REPLIES)), "hint"]


def test_the_rate_of_frames() -> None:
    rate = FrameRate(100.0)
    assert all(rate.allows(100.0) for _ in range(BURST))
    assert not rate.allows(100.0)
    assert rate.allows(100.0 + 1.01 / PER_S)
    assert not rate.allows(100.0 + 1.02 / PER_S)
    assert sum(rate.allows(10_000.0) for _ in range(2 * BURST)) == BURST
