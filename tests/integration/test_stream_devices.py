"""Several devices in one conversation: the same bytes on each of them."""

from __future__ import annotations

import asyncio

from tests.phone import Phone, call, get_thread, post_message, stored_reply, text_of
from tests.stack import Stack, directive


async def test_two_devices_in_mid_answer(stack: Stack) -> None:
    ada = stack.people["ada"]
    here, there = (web.url for web in stack.webs)
    phone, tablet, early = Phone(ada.headers), Phone(ada.headers), Phone(ada.headers)
    hold = stack.hold("devices")
    content = directive(tokens=80, tokens_per_s=40, hold="devices", hold_after=10)
    tasks = [asyncio.create_task(phone.send(here, content))]
    await phone.until(lambda p: len(p.text.split()) >= 10)
    thread = get_thread(there, ada.headers, phone.start["conversation"])
    assert [text_of(message) for message in thread["messages"]] == [content]
    (live,) = thread["live_runs"]
    assert live == {
        "id": phone.run,
        "reply_id": phone.start["reply_msg"],
        "parent_id": phone.start["user_msg"],
        "status": "running",
        "model": phone.start["model"],
        "versions": None,
    }
    for device, url in ((tablet, there), (early, here)):
        device.run = live["id"]
        tasks.append(asyncio.create_task(device.resume(url)))
    await tablet.until(lambda p: p.start)
    hold.unlink()
    await asyncio.gather(*tasks)
    stored = stored_reply(here, ada.headers, phone.start)
    assert phone.text == tablet.text == early.text == stored
    assert phone.done == tablet.done == early.done
    after = get_thread(there, ada.headers, phone.start["conversation"])
    assert after["live_runs"] == []
    assert after["messages"][1]["run"]["finish"] == "stop"


async def test_two_answers_to_one_message_do_not_mix(stack: Stack) -> None:
    """Two first messages of one conversation are answered at once, each with its own words."""
    ada, url = stack.people["ada"], stack.webs[0].url
    new = call("POST", f"{url}/v1/conversations", ada.headers, {}).json()["id"]
    phones = [Phone(ada.headers) for _ in range(2)]
    texts = ["alpha " * 30, "omega " * 30]
    await asyncio.gather(
        *(
            phone.send(
                web.url,
                directive(text=text, tokens_per_s=60),
                conversation=new,
                parent_id=None,
            )
            for phone, web, text in zip(phones, stack.webs, texts, strict=True)
        )
    )
    assert [phone.text for phone in phones] == texts
    thread = get_thread(url, ada.headers, new)
    assert thread["messages"][0]["versions"]["count"] == 2


def test_a_stale_device_gets_a_branch_where_its_user_saw_it(stack: Stack) -> None:
    ada, url = stack.people["ada"], stack.webs[0].url
    first = post_message(url, ada.headers, directive(tokens=1))
    conversation = first["conversation"]
    asyncio.run(Phone(ada.headers, first["id"]).resume(url))
    seen = get_thread(url, ada.headers, conversation)["messages"][-1]["id"]
    for word in ("one", "two"):
        sent = post_message(url, ada.headers, directive(text=word), conversation, parent_id=seen)
        asyncio.run(Phone(ada.headers, sent["id"]).resume(url))
    messages = get_thread(url, ada.headers, conversation)["messages"]
    assert [text_of(m) for m in messages][-1] == "two"
    assert messages[2]["parent_id"] == seen
    assert messages[2]["versions"]["count"] == 2
