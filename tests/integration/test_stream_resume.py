"""Nothing a client can do to its own connection changes what it ends with: the stored bytes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.phone import Phone, stored_reply
from tests.stack import Stack, directive

FAMILY = "\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466"
# Cut inside what a reader takes for one character, inside CRLF, between the halves of a surrogate
# pair, and before what would be a field of the wire format.
PIECES = [
    "Family ",
    FAMILY[:1],
    FAMILY[1:3],
    FAMILY[3:],
    " e",
    "\u0301",
    " \u0915\u094d",
    "\u0937\u093f",
    " \u0928\u092e\u0938\u094d\u0924\u0947",
    " \u0645\u0631\u062d",
    "\u0628\u0627 ",
    "line\r",
    "\nnext\r\n",
    "\rbare\n\n",
    "data: x\n",
    "\nid: g_0:9\nevent: done\n\n",
    ": comment\n",
    "\u2028",
    "\u2029\x85\x0b\x0c",
    "\ud83d",
    "\ude00",
    ' <b>&amp;</b> \\n \\u0041 "quoted"',
    "\t\x01\x1f\x7f",
    "\ufeff\u200e\u202e",
    "  end  ",
]
MANY = 15
"""More events than these: one for each piece, more or less."""
TRIES = 5
"""A machine that is busy meanwhile makes one event of several pieces: then another answer."""
ANSWER = "".join(PIECES).encode("utf-16", "surrogatepass").decode("utf-16")


@pytest.fixture(scope="module")
def urls(stack: Stack) -> tuple[str, str]:
    return stack.webs[0].url, stack.webs[1].url


@pytest.fixture(scope="module")
def finished(stack: Stack, urls: tuple[str, str]) -> dict[str, Any]:
    """The `start` of a run that has ended a moment ago, many events long."""
    for _ in range(TRIES):
        phone = Phone(stack.people["ada"].headers)
        asyncio.run(phone.send(urls[0], directive(pieces=PIECES, tokens_per_s=16)))
        assert phone.text == ANSWER
        if len(phone.seqs) > MANY:
            break
    assert len(phone.seqs) > MANY
    _keep_log(stack, phone.run)
    return {**phone.start, "events": len(phone.seqs), "last_seq": phone.cursor}


def _phone(stack: Stack, run: dict[str, Any]) -> Phone:
    return Phone(stack.people["ada"].headers, run["run"])


async def test_client_drops_after_every_event(stack: Stack, urls: tuple[str, str]) -> None:
    for _ in range(TRIES):
        if len((await _dropped_after_every_event(stack, urls)).seqs) > MANY:
            return
    raise AssertionError(f"never more than {MANY} events")


async def _dropped_after_every_event(stack: Stack, urls: tuple[str, str]) -> Phone:
    phone = Phone(stack.people["ada"].headers)
    await phone.send(urls[0], directive(pieces=PIECES, tokens_per_s=16), events=1)
    assert [frame.name for frame in phone.frames] == ["start"]
    await phone.follow(urls[1], urls[0], events=1)
    assert phone.text.encode() == ANSWER.encode()
    assert stored_reply(urls[0], phone.headers, phone.start) == ANSWER
    assert phone.done is not None
    assert phone.done["finish"] == "stop"
    assert phone.done["usage"]["output_tokens"] == len([p for p in PIECES if p != "\ud83d"])
    return phone


async def test_dropping_once_after_each_event(
    stack: Stack, urls: tuple[str, str], finished: dict[str, Any]
) -> None:
    for events in range(1, finished["events"]):
        phone = _phone(stack, finished)
        await phone.resume(urls[0], events=events)
        assert phone.done is None
        await phone.resume(urls[1])
        assert phone.text == ANSWER
        assert phone.cursor == finished["last_seq"]


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(cuts=st.lists(st.integers(min_value=1, max_value=3_000), max_size=8), first=st.booleans())
def test_dropping_at_any_byte(
    stack: Stack, urls: tuple[str, str], finished: dict[str, Any], cuts: list[int], first: bool
) -> None:
    async def trip() -> Phone:
        phone = _phone(stack, finished)
        for number, max_bytes in enumerate(cuts):
            if phone.done is None:
                await phone.resume(urls[(number + first) % 2], max_bytes=max_bytes)
        return await phone.follow(*urls)

    assert asyncio.run(trip()).text == ANSWER


async def test_resuming_without_a_cursor_begins_again(
    stack: Stack, urls: tuple[str, str], finished: dict[str, Any]
) -> None:
    phone = await _phone(stack, finished).resume(urls[1])
    assert phone.frames[0].name == "start"
    assert phone.frames[0].data == {k: finished[k] for k in phone.start}
    assert phone.text == ANSWER
    assert phone.answer_headers["cache-control"] == "no-store, no-transform"
    assert phone.answer_headers["x-accel-buffering"] == "no"
    assert phone.answer_headers["x-content-type-options"] == "nosniff"
    assert "access-control-allow-origin" not in phone.answer_headers


async def test_a_cursor_at_the_end_is_204(
    stack: Stack, urls: tuple[str, str], finished: dict[str, Any]
) -> None:
    for ahead in (0, 1, 10**14):
        phone = _phone(stack, finished)
        phone.cursor = finished["last_seq"] + ahead
        await phone.resume(urls[0])
        assert phone.status == 204
        assert phone.body == b""


@pytest.mark.parametrize(
    ("cursor", "why"),
    [
        ("g_" + "0" * 32 + ":3", "another run"),
        ("7", "no run"),
        ("{run}:-1", "below 0"),
        ("{run}:007", "not as written by us"),
        ("{run}:1e3", "no integer"),
        ("{run}:" + "9" * 16, "too large"),
        ("x" * 5_000, "long"),
        ("{run}:3, {run}:4", "two"),
    ],
)
async def test_a_cursor_of_another_kind_is_refused(
    stack: Stack, urls: tuple[str, str], finished: dict[str, Any], cursor: str, why: str
) -> None:
    phone = _phone(stack, finished)
    phone.headers = {**phone.headers, "Last-Event-ID": cursor.format(run=phone.run)}
    await phone.resume(urls[0])
    assert phone.status == 400, why
    assert b'"param":"Last-Event-ID"' in phone.body


async def test_after_the_log_has_gone_the_stored_text_stands_in(
    stack: Stack, urls: tuple[str, str]
) -> None:
    whole = await Phone(stack.people["ada"].headers).send(urls[0], directive(pieces=PIECES))
    _delete_log(stack, whole.run)
    for cursor in range(whole.cursor):
        phone = _phone(stack, whole.start)
        phone.cursor, phone.text = cursor, "what the phone had"
        await phone.resume(urls[cursor % 2])
        *_, snapshot, done = phone.frames
        assert (snapshot.name, snapshot.id) == ("snapshot", None)
        assert (done.name, done.id) == ("done", f"{whole.run}:{whole.cursor}")
        assert done.data == whole.done
        assert phone.text == ANSWER


async def test_the_log_goes_while_somebody_waits_in_it(stack: Stack, urls: tuple[str, str]) -> None:
    """A log without its `done` (lost after the finish) does not keep a client waiting."""
    whole = await Phone(stack.people["ada"].headers).send(urls[0], directive(tokens=40))
    with redis.Redis.from_url(stack.env["REDIS_URL"]) as client:
        client.xdel(f"run:{{{whole.run}}}", f"{whole.cursor}-0")
        client.hset(
            f"run:{{{whole.run}}}:m", mapping={"status": "running", "seq": whole.cursor - 1}
        )
    phone = await _phone(stack, whole.start).resume(urls[1])
    assert phone.text == whole.text
    assert phone.done == whole.done


def _keep_log(stack: Stack, run: str) -> None:
    """It would be gone a minute after the run's end, and the stored text would stand in."""
    with redis.Redis.from_url(stack.env["REDIS_URL"]) as client:
        assert client.persist(f"run:{{{run}}}")
        assert client.persist(f"run:{{{run}}}:m")


def _delete_log(stack: Stack, run: str) -> None:
    with redis.Redis.from_url(stack.env["REDIS_URL"]) as client:
        assert client.delete(f"run:{{{run}}}", f"run:{{{run}}}:m", f"run:{{{run}}}:w")
