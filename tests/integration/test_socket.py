"""`WS /v1/ws`: what a socket shows of runs, and what a second device hears."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from tests.faults.redis_proxy import RedisProxy
from tests.phone import Phone, call, get_run, get_thread, post_message, stored_reply
from tests.sockets import Socket
from tests.stack import Process, Stack, directive

GONE = "conversation_gone"
LOSSES: dict[str, Callable[[int], bool]] = {"bursts": lambda n: n % 20 > 5, "all": lambda n: True}


@pytest.fixture
def ada(stack: Stack) -> Any:
    return stack.people["ada"]


# --- runs -----------------------------------------------------------------------------------------


async def test_a_watched_run_is_the_stream(stack: Stack, ada: Any) -> None:
    web = stack.webs[0]
    phone = Phone(ada.headers)
    async with Socket.open(stack.webs[1].url, token=ada.token) as socket:
        task = asyncio.create_task(phone.send(web.url, directive(tokens=60, tokens_per_s=60)))
        await phone.until(lambda p: p.start)
        await socket.say(type="watch", run=phone.run)
        await socket.until(lambda s: s.done(phone.run))
        await task
        shown = socket.phones[phone.run]
        assert shown.text == phone.text == stored_reply(web.url, ada.headers, phone.start)
        assert (shown.start, shown.done, shown.cursor) == (phone.start, phone.done, phone.cursor)


async def test_several_runs_at_once_over_one_socket(stack: Stack, ada: Any) -> None:
    texts = [f"{word} " * 40 for word in ("alpha", "beta", "gamma")]
    async with Socket.open(stack.webs[1].url, headers=ada.headers) as socket:
        runs = []
        for text in texts:
            content = directive(text=text, tokens_per_s=80)
            run = await asyncio.to_thread(post_message, stack.webs[0].url, ada.headers, content)
            runs.append(run["id"])
            await socket.say(type="watch", run=run["id"])
        await socket.until(lambda s: all(s.done(run) for run in runs))
        assert [socket.phones[run].text for run in runs] == texts


async def test_a_watch_goes_on_at_the_cursor(stack: Stack, ada: Any) -> None:
    """Another client saw the beginning; the socket, elsewhere, gets exactly the rest."""
    phone, hold = Phone(ada.headers), stack.hold("cursor")
    content = directive(tokens=60, tokens_per_s=60, hold="cursor", hold_after=30)
    await phone.send(stack.webs[0].url, content, events=2)
    async with Socket.open(stack.webs[1].url, token=ada.token) as socket:
        shown = socket.phones[phone.run] = Phone({}, phone.run, phone.cursor, phone.text)
        await socket.say(type="watch", run=phone.run, after=phone.cursor)
        hold.unlink()
        await socket.until(lambda s: s.done(phone.run))
        assert shown.text == " ".join(f"w{n}" for n in range(1, 61))
        assert shown.seqs[0] == phone.cursor + 1
        assert not shown.start


async def test_a_run_that_has_ended(stack: Stack, ada: Any) -> None:
    """From the start all of it; from its end `done` alone, without an id; long ago a snapshot."""
    phone = await Phone(ada.headers).send(stack.webs[0].url, directive(tokens=5))
    async with Socket.open(stack.webs[1].url, token=ada.token) as socket:
        await socket.say(type="watch", run=phone.run)
        await socket.until(lambda s: s.done(phone.run))
        assert socket.phones[phone.run].text == phone.text
        del socket.phones[phone.run]
        await socket.say(type="watch", run=phone.run, after=phone.cursor)
        await socket.until(lambda s: s.done(phone.run))
        # (Hints of other things may come at any time.)
        assert [frame for frame in socket.frames if "run" in frame][-1] == {
            "id": None,
            "run": phone.run,
            "event": "done",
            "data": phone.done,
        }
        del socket.phones[phone.run]
        _forget_log(stack, phone.run)
        await socket.say(type="watch", run=phone.run)
        await socket.until(lambda s: s.done(phone.run))
        shown = socket.phones[phone.run]
        assert [frame.name for frame in shown.frames] == ["start", "snapshot", "done"]
        assert (shown.text, shown.done) == (phone.text, phone.done)


async def test_a_second_watch_takes_the_place_of_the_first(stack: Stack, ada: Any) -> None:
    hold = stack.hold("twice")
    content = directive(tokens=6, hold="twice", hold_after=3)
    run = await asyncio.to_thread(post_message, stack.webs[0].url, ada.headers, content)
    async with Socket.open(stack.webs[1].url, token=ada.token) as socket:
        await socket.say(type="watch", run=run["id"])
        await socket.until(lambda s: s.text(run["id"]) == "w1 w2 w3")
        del socket.phones[run["id"]]
        await socket.say(type="watch", run=run["id"])
        await socket.until(lambda s: s.text(run["id"]) == "w1 w2 w3")
        hold.unlink()
        await socket.until(lambda s: s.done(run["id"]))
        # Phone would have refused a second copy of anything.
        assert socket.phones[run["id"]].text == "w1 w2 w3 w4 w5 w6"
        await socket.answer()


async def test_nothing_comes_after_an_unwatch(stack: Stack, ada: Any) -> None:
    hold = stack.hold("unwatch")
    content = directive(tokens=6, hold="unwatch", hold_after=3)
    run = await asyncio.to_thread(post_message, stack.webs[0].url, ada.headers, content)
    async with Socket.open(stack.webs[1].url, token=ada.token) as socket:
        await socket.say(type="watch", run=run["id"])
        await socket.until(lambda s: s.text(run["id"]) == "w1 w2 w3")
        await socket.say(type="unwatch", run=run["id"])
        await socket.answer()
        hold.unlink()
        ids = {"conversation": run["conversation"], "run": run["id"]}
        await socket.hinted({"kind": "run_ended", **ids})
        await socket.answer()
        assert socket.phones[run["id"]].text == "w1 w2 w3"
        await socket.say(type="unwatch", run=run["id"])
        await socket.say(type="unwatch", run="nonsense")
        await socket.answer()
        assert not socket.events("refused"), "there is nothing to refuse"


async def test_a_stop_over_the_socket(stack: Stack, ada: Any) -> None:
    hold = stack.hold("stopped")
    content = directive(tokens=6, hold="stopped", hold_after=3)
    run = await asyncio.to_thread(post_message, stack.webs[0].url, ada.headers, content)
    async with Socket.open(stack.webs[1].url, token=ada.token) as socket:
        await socket.say(type="watch", run=run["id"])
        await socket.until(lambda s: s.text(run["id"]) == "w1 w2 w3")
        await socket.say(type="stop", run=run["id"])
        await socket.until(lambda s: s.done(run["id"]))
        done = socket.phones[run["id"]].done
        assert done is not None
        assert done["finish"] == "user_stopped"
        await socket.say(type="stop", run=run["id"])
        await socket.answer()
        assert not socket.events("refused"), "stopping twice changes nothing"
    hold.unlink()
    found = await asyncio.to_thread(get_run, stack.webs[0].url, ada.headers, run["id"])
    assert found["finish"] == "user_stopped"


@pytest.fixture(scope="module")
def deaf(stack: Stack) -> Iterator[tuple[Process, RedisProxy]]:
    """One more web process, whose subscriptions lose messages."""
    with RedisProxy(stack.env["REDIS_URL"]) as proxy:
        web = stack.start_web(env={"REDIS_URL": proxy.url})
        try:
            stack.wait_ready()
            yield web, proxy
        finally:
            web.kill()
            stack.webs.remove(web)


@pytest.mark.parametrize("losses", LOSSES)
async def test_no_byte_is_missed_where_pushes_are_lost(
    stack: Stack, ada: Any, deaf: tuple[Process, RedisProxy], losses: str
) -> None:
    web, proxy = deaf
    text = "".join(f"{number} \U0001f468\u200d\U0001f469 \u2028\x85 " for number in range(60))
    phone, hold = Phone(ada.headers), stack.hold("lost")
    # What comes after the hold takes three seconds: too long to become a push or two.
    content = directive(text=text, tokens_per_s=30, hold="lost", hold_after=30)
    await phone.send(stack.webs[0].url, content, events=2)
    proxy.drop, proxy.dropped = LOSSES[losses], 0
    async with Socket.open(web.url, token=ada.token) as socket:
        shown = socket.phones[phone.run] = Phone({}, phone.run, phone.cursor, phone.text)
        await socket.say(type="watch", run=phone.run, after=phone.cursor)
        await socket.until(lambda s: "14 " in s.text(phone.run))
        hold.unlink()
        await socket.until(lambda s: s.done(phone.run))
        assert shown.text == text
    proxy.drop = lambda _: False
    assert proxy.dropped > 2, "the proxy did its work"


# --- the second device ----------------------------------------------------------------------------


async def test_a_second_device_hears_of_everything(stack: Stack, ada: Any) -> None:
    url, bob = stack.webs[0].url, stack.people["bob"]

    def ask(method: str, path: str, body: object = None) -> Any:
        answer = call(method, url + path, ada.headers, body)
        assert answer.status_code < 300, answer.text
        return answer

    async with (
        Socket.open(stack.webs[1].url, token=ada.token) as socket,
        Socket.open(stack.webs[0].url, token=ada.token) as third,
        Socket.open(stack.webs[1].url, token=bob.token) as stranger,
    ):
        run = await asyncio.to_thread(post_message, url, ada.headers, directive(tokens=1))
        conversation = run["conversation"]
        changed = {"kind": "conversation_changed", "conversation": conversation}
        for kind in ("run_started", "run_ended"):
            for device in (socket, third):
                ids = {"conversation": conversation, "run": run["id"]}
                await device.hinted({"kind": kind, **ids})
        thread = await asyncio.to_thread(get_thread, url, ada.headers, conversation)
        question, reply = thread["messages"]
        for method, path, body, hint in (
            ("PATCH", f"/v1/conversations/{conversation}", {"title": "New"}, changed),
            ("POST", f"/v1/messages/{reply['id']}/feedback", {"rating": "up"}, changed),
            ("DELETE", f"/v1/conversations/{conversation}", None, {**changed, "kind": GONE}),
            ("POST", f"/v1/conversations/{conversation}:restore", None, changed),
        ):
            await socket.answer()
            socket.frames.clear()
            await asyncio.to_thread(ask, method, path, body)
            await socket.hinted(hint)
        assert question["role"] == "user"
        await stranger.answer()
        # (Bob may hear of the end of his own answers, which other tests began.)
        assert not [hint for hint in stranger.hints() if hint.get("conversation") == conversation]


def _forget_log(stack: Stack, run: str) -> None:
    with redis.Redis.from_url(stack.env["REDIS_URL"]) as client:
        assert client.delete(f"run:{{{run}}}", f"run:{{{run}}}:m", f"run:{{{run}}}:w")
