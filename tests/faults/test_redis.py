"""Redis dies with all it held: answers go on, history is readable, sends are told to come back."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import redis

from chatproject.embedded import EmbeddedValkey
from tests.faults.redis_proxy import RedisProxy
from tests.phone import Phone, call, get_run, get_thread, post_message, stop, stored_reply
from tests.stack import Stack, directive, wait_for


async def test_redis_restarts_empty(breakable: Stack, valkey: EmbeddedValkey) -> None:
    """Answers go on, and the stop button works again."""
    ada = breakable.people["ada"]
    phones, hold = [Phone(ada.headers) for _ in range(4)], breakable.hold("restart")
    contents = [
        directive(tokens=tokens, tokens_per_s=40, hold="restart", hold_after=20)
        for tokens in (160, 160, 160, 10_000)
    ]
    tasks = [
        asyncio.create_task(phone.send(breakable.webs[number % 2].url, content))
        for number, (phone, content) in enumerate(zip(phones, contents, strict=True))
    ]
    for phone in phones:
        await phone.until(lambda p: len(p.text.split()) >= 20)
    valkey.kill()
    hold.unlink()  # the answers go on while it is away
    await asyncio.sleep(1)  # an outage has a length; nothing is awaited here
    valkey.start()
    endless = phones.pop()
    await endless.until(lambda p: "snapshot" in [frame.name for frame in p.frames])
    assert all(phone.done is None for phone in phones)
    answer = await asyncio.to_thread(stop, breakable.webs[1].url, ada.headers, endless.run)
    assert (answer.status_code, answer.json()["finish"]) == (200, "user_stopped")
    await asyncio.gather(*tasks)
    whole = " ".join(f"w{n}" for n in range(1, 161))
    for phone in phones:
        assert not phone.cut
        assert phone.text == whole
        assert "snapshot" in [frame.name for frame in phone.frames]
        assert phone.done is not None
        assert phone.done["finish"] == "stop"
        assert stored_reply(breakable.webs[0].url, ada.headers, phone.start) == whole


@dataclass
class Telling:
    """Three answers that are under way."""

    phones: list[Phone]
    tasks: list[asyncio.Task[Phone]]
    whole: str


async def _three_in_mid_answer(stack: Stack, tokens: int) -> Telling:
    ada = stack.people["ada"]
    phones = [Phone(ada.headers) for _ in range(3)]
    content = directive(tokens=tokens, tokens_per_s=30)
    tasks = [
        asyncio.create_task(phone.send(stack.webs[number % 2].url, content))
        for number, phone in enumerate(phones)
    ]
    for phone in phones:
        await phone.until(lambda p: len(p.text.split()) >= 20)
    return Telling(phones, tasks, " ".join(f"w{n}" for n in range(1, tokens + 1)))


async def _all_whole(stack: Stack, telling: Telling) -> None:
    """On whatever connections it takes: to their end, by their owner, as they are stored."""
    assert all(phone.done is None for phone in telling.phones), "nothing happened to them"
    await asyncio.gather(*telling.tasks)
    for phone in telling.phones:
        await phone.follow(*(web.url for web in stack.webs))
        assert phone.text == telling.whole
        assert phone.done is not None
        assert (phone.done["finish"], phone.told) == ("stop", [])
        stored = stored_reply(stack.webs[0].url, stack.people["ada"].headers, phone.start)
        assert stored == telling.whole


async def test_redis_freezes_for_five_seconds(breakable: Stack, valkey: EmbeddedValkey) -> None:
    telling = await _three_in_mid_answer(breakable, tokens=270)
    assert valkey.process is not None
    os.kill(valkey.process.pid, signal.SIGSTOP)
    await asyncio.sleep(5)
    os.kill(valkey.process.pid, signal.SIGCONT)
    await _all_whole(breakable, telling)


async def test_every_connection_to_redis_is_cut(breakable: Stack, valkey: EmbeddedValkey) -> None:
    telling = await _three_in_mid_answer(breakable, tokens=150)
    with redis.Redis.from_url(valkey.url) as client:
        for _ in range(3):
            for kind in ("pubsub", "normal"):
                client.client_kill_filter(_type=kind, skipme=True)
            await asyncio.sleep(0.7)
    await _all_whole(breakable, telling)


async def test_redis_restarts_with_what_it_had(
    breakable: Stack, valkey: EmbeddedValkey, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With an append-only file: leases and queues are there again, and older than PostgreSQL."""
    durable = valkey._configuration().replace("appendonly no", "appendonly yes")
    with monkeypatch.context() as patched:
        patched.setattr(valkey, "_configuration", lambda: durable + "appendfsync always\n")
        valkey.kill()
        valkey.start()
        await asyncio.to_thread(_until_accepted, breakable)
        telling = await _three_in_mid_answer(breakable, tokens=180)
        valkey.kill()
        await asyncio.sleep(1)
        valkey.start()
        with redis.Redis.from_url(valkey.url) as client:
            assert client.exists(f"run:{{{telling.phones[0].run}}}")
        await _all_whole(breakable, telling)
        await asyncio.to_thread(_until_accepted, breakable)
    valkey.kill()
    valkey.start()
    shutil.rmtree(valkey.home / "appendonlydir")


@pytest.fixture
def full(valkey: EmbeddedValkey) -> Iterator[Callable[[str], None]]:
    """Sets how much memory Redis may have."""
    with redis.Redis.from_url(valkey.url) as client:
        yield lambda limit: client.config_set("maxmemory", limit)
        client.config_set("maxmemory", "512mb")


async def test_redis_refuses_to_write(breakable: Stack, full: Callable[[str], None]) -> None:
    """Its memory is full. The text is kept in PostgreSQL meanwhile; sends are told to come back."""
    ada, web, worker = breakable.people["ada"], breakable.webs[0], breakable.workers[-1]
    telling = await _three_in_mid_answer(breakable, tokens=300)
    said = len(worker.log.read_text())
    full("1")
    await asyncio.to_thread(
        wait_for,
        lambda: breakable.kept(*(phone.run for phone in telling.phones)) == 3,
        "their texts to be kept",
        worker,
    )
    assert "append_refused" in worker.log.read_text()[said:]
    count = "SELECT count(*) FROM generation_run"
    before = breakable.rows(count)
    path = f"{web.url}/v1/conversations/new/messages"
    refused = await asyncio.to_thread(call, "POST", path, ada.headers, {"content": "x"})
    assert refused.status_code == 503, refused.text
    assert int(refused.headers["retry-after"]) >= 1
    assert breakable.rows(count) == before
    full("512mb")
    await _all_whole(breakable, telling)
    assert breakable.kept(*(phone.run for phone in telling.phones)) == 0
    told = worker.log.read_text()[said:]
    assert " ERROR " not in told
    assert " CRITICAL " not in told


async def test_orchestrator_and_log_both_lost(breakable: Stack, valkey: EmbeddedValkey) -> None:
    """Both at once: the answer ends with the text that was kept last, marked as interrupted."""
    ada = breakable.people["ada"]
    phone = Phone(ada.headers)
    task = asyncio.create_task(
        phone.send(breakable.webs[0].url, directive(tokens=10_000, tokens_per_s=20))
    )
    await phone.until(lambda p: p.text)
    valkey.kill()
    await asyncio.to_thread(
        wait_for,
        lambda: breakable.kept(phone.run),
        "its text to be kept",
        breakable.workers[-1],
    )
    breakable.workers[-1].kill()
    valkey.start()
    breakable.start_worker()
    await asyncio.to_thread(breakable.wait_ready)
    breakable.let_reap()  # at once: nobody is left who might open its log again
    await task
    await phone.follow(*(web.url for web in breakable.webs))
    assert phone.done is not None
    assert phone.done["finish"] == "interrupted"
    assert phone.text.startswith("w1 w2 w3")
    assert phone.text == stored_reply(breakable.webs[0].url, ada.headers, phone.start)


async def test_a_stop_while_redis_is_away(breakable: Stack, valkey: EmbeddedValkey) -> None:
    """Accepted and recorded; it holds as soon as the worker hears of it."""
    ada = breakable.people["ada"]
    phone = Phone(ada.headers)
    content = directive(tokens=10_000, tokens_per_s=10)
    task = asyncio.create_task(phone.send(breakable.webs[0].url, content))
    await phone.until(lambda p: len(p.text.split()) >= 20)
    valkey.kill()
    answer = await asyncio.to_thread(stop, breakable.webs[1].url, ada.headers, phone.run)
    assert answer.status_code == 202, answer.text
    assert answer.json()["status"] == "running"
    valkey.start()
    await task
    assert phone.done is not None
    assert phone.done["finish"] == "user_stopped"
    assert phone.text == stored_reply(breakable.webs[0].url, ada.headers, phone.start)
    again = await asyncio.to_thread(stop, breakable.webs[0].url, ada.headers, phone.run)
    assert (again.status_code, again.json()["finish"]) == (200, "user_stopped")


async def test_redis_is_away(breakable: Stack, valkey: EmbeddedValkey) -> None:
    ada, web = breakable.people["ada"], breakable.webs[0]
    first = await Phone(ada.headers).send(web.url, directive(tokens=3))
    conversation = first.start["conversation"]
    count = "SELECT (SELECT count(*) FROM generation_run), (SELECT count(*) FROM {})"
    count = count.format("conversations_message")
    before = breakable.rows(count)
    valkey.kill()
    for path in ("new", conversation):
        url = f"{web.url}/v1/conversations/{path}/messages"
        refused = await asyncio.to_thread(call, "POST", url, ada.headers, {"content": "x"})
        assert refused.status_code == 503, refused.text
        assert int(refused.headers["retry-after"]) >= 1
        assert refused.json()["error"]["code"] == "unavailable"
    assert breakable.rows(count) == before
    assert len(get_thread(web.url, ada.headers, conversation)["messages"]) == 2
    assert get_run(web.url, ada.headers, first.run)["status"] == "completed"
    listed = call("GET", f"{web.url}/v1/conversations", ada.headers).json()["items"]
    assert conversation in {item["id"] for item in listed}
    assert call("GET", f"{web.url}/readyz", {}).status_code == 503
    assert call("GET", f"{web.url}/healthz", {}).status_code == 200
    # An ended run needs no Redis: its text comes from PostgreSQL.
    again = await Phone(ada.headers, first.run).resume(breakable.webs[1].url)
    assert (again.text, again.done) == (first.text, first.done)
    valkey.start()
    await asyncio.to_thread(_until_accepted, breakable)


async def test_a_subscriber_that_has_gone_deaf(breakable: Stack) -> None:
    """Its streams go on from the log; its health says so, and is well again by itself."""
    ada = breakable.people["ada"]
    with RedisProxy(breakable.env["REDIS_URL"]) as proxy:
        web = breakable.start_web(env={"REDIS_URL": proxy.url})
        breakable.wait_ready()
        phone = Phone(ada.headers)
        content = directive(tokens=300, tokens_per_s=20)
        task = asyncio.create_task(phone.send(web.url, content))
        await phone.until(lambda p: p.text)
        ready = f"{web.url}/readyz"
        with proxy.deafness():
            seen = len(phone.text)
            await asyncio.to_thread(
                wait_for, lambda: call("GET", ready, {}).status_code == 503, "it to say so", web
            )
            told = call("GET", ready, {}).json()
            assert told == {**told, "pushes": "deaf", "token_logs": "ok", "database": "ok"}
            assert len(phone.text) > seen
        await asyncio.to_thread(
            wait_for, lambda: call("GET", ready, {}).status_code == 200, "it to be well", web
        )
        await task
        assert phone.text == " ".join(f"w{n}" for n in range(1, 301))
        web.kill()
        breakable.webs.remove(web)


def _until_accepted(stack: Stack) -> None:
    """The queue is built again by itself, and sends are answered."""
    ada, url = stack.people["ada"], stack.webs[0].url
    path = f"{url}/v1/conversations/new/messages"
    body = {"content": directive(tokens=2)}
    answers: list[Any] = []

    def accepted() -> bool:
        answers.append(call("POST", path, ada.headers, body))
        assert answers[-1].status_code in (202, 503), answers[-1].text
        return bool(answers[-1].status_code == 202)

    wait_for(accepted, "sends to be accepted again", stack.workers[-1])
    run = answers[-1].json()["id"]
    wait_for(lambda: get_run(url, ada.headers, run)["status"] == "completed", "the answer")


async def test_queued_runs_survive_the_loss_of_the_queue(
    breakable: Stack, valkey: EmbeddedValkey
) -> None:
    ada, url = breakable.people["ada"], breakable.webs[0].url
    hold = breakable.hold("loss")
    held = [
        post_message(url, ada.headers, directive(tokens=1, hold="loss"))["id"] for _ in range(8)
    ]
    wait_for(lambda: all(breakable.journal(run) for run in held), "every slot to be taken")
    waiting = [Phone(ada.headers) for _ in range(3)]
    tasks = [
        asyncio.create_task(phone.send(web.url, directive(tokens=4)))
        for phone, web in zip(waiting, [*breakable.webs, breakable.webs[0]], strict=True)
    ]
    for phone in waiting:
        await phone.until(lambda p: p.start)
    valkey.kill()
    valkey.start()
    hold.unlink()
    await asyncio.gather(*tasks)
    assert [phone.text for phone in waiting] == ["w1 w2 w3 w4"] * 3
    for run in held:
        wait_for(
            lambda run=run: get_run(url, ada.headers, run)["status"] == "completed", "the others"
        )
