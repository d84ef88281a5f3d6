"""Redis dies with all it held: answers go on, history is readable, sends are told to come back."""

from __future__ import annotations

import asyncio
from typing import Any

from chatproject.embedded import EmbeddedValkey
from tests.phone import Phone, call, get_run, get_thread, post_message, stop, stored_reply
from tests.stack import Stack, directive, wait_for


async def test_a_restart_in_mid_answer(breakable: Stack, valkey: EmbeddedValkey) -> None:
    ada = breakable.people["ada"]
    phones, hold = [Phone(ada.headers) for _ in range(3)], breakable.hold("restart")
    content = directive(tokens=400, tokens_per_s=40, hold="restart", hold_after=20)
    tasks = [
        asyncio.create_task(phone.send(breakable.webs[number % 2].url, content))
        for number, phone in enumerate(phones)
    ]
    for phone in phones:
        await phone.until(lambda p: len(p.text.split()) >= 20)
    valkey.kill()
    hold.unlink()  # the answers go on while it is away
    await asyncio.sleep(1)  # an outage has a length; nothing is awaited here
    valkey.start()
    await asyncio.gather(*tasks)
    whole = " ".join(f"w{n}" for n in range(1, 401))
    for phone in phones:
        assert not phone.cut
        assert phone.text == whole
        assert "snapshot" in [frame.name for frame in phone.frames]
        assert phone.done is not None
        assert phone.done["finish"] == "stop"
        assert stored_reply(breakable.webs[0].url, ada.headers, phone.start) == whole


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


async def test_while_redis_is_away(breakable: Stack, valkey: EmbeddedValkey) -> None:
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
