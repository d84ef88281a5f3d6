"""`WS /v1/ws`: what a socket shows of runs, and what it hints at."""

from __future__ import annotations

import asyncio

from tests.phone import Phone, post_message, stored_reply
from tests.sockets import Socket
from tests.stack import Stack, directive


async def test_a_watched_run_is_the_stream(stack: Stack) -> None:
    ada, web = stack.people["ada"], stack.webs[0]
    phone = Phone(ada.headers)
    async with Socket.open(stack.webs[1].url, token=ada.token) as socket:
        content = directive(tokens=60, tokens_per_s=60)
        task = asyncio.create_task(phone.send(web.url, content))
        await phone.until(lambda p: p.start)
        await socket.say(type="watch", run=phone.run)
        await socket.until(lambda s: s.done(phone.run))
        await task
        shown = socket.phones[phone.run]
        assert shown.text == phone.text == stored_reply(web.url, ada.headers, phone.start)
        assert (shown.start, shown.done, shown.cursor) == (phone.start, phone.done, phone.cursor)


async def test_a_second_device_hears_of_everything(stack: Stack) -> None:
    ada, url = stack.people["ada"], stack.webs[0].url
    async with Socket.open(stack.webs[1].url, token=ada.token) as socket:
        run = await asyncio.to_thread(post_message, url, ada.headers, directive(tokens=1))
        ids = {"conversation": run["conversation"], "run": run["id"]}
        for kind in ("run_started", "run_ended"):
            await socket.hinted({"kind": kind, **ids})
        assert {"kind": "conversation_changed", "conversation": run["conversation"]} in (
            socket.hints()
        )
