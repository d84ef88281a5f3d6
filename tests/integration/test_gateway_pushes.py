"""Pushed messages are lost: the log repairs, and no client misses a byte."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest

from tests.faults.redis_proxy import RedisProxy
from tests.phone import Phone, stored_reply
from tests.stack import Process, Stack, directive

CLIENTS = 5
TEXT = "".join(f"{number} \U0001f468\u200d\U0001f469 \u0915\u094d\u0937 " for number in range(80))

LOSSES: dict[str, Callable[[int], bool]] = {
    "every third": lambda n: n % 3 == 0,
    "bursts": lambda n: n % 20 > 5,
    "all": lambda n: True,
}


@pytest.fixture(scope="module")
def deaf(stack: Stack) -> Iterator[tuple[Process, RedisProxy]]:
    """One more web process, whose subscription loses messages."""
    with RedisProxy(stack.env["REDIS_URL"]) as proxy:
        web = stack.start_web(env={"REDIS_URL": proxy.url})
        try:
            stack.wait_ready()
            yield web, proxy
        finally:
            web.kill()
            stack.webs.remove(web)


@pytest.mark.parametrize("losses", LOSSES)
async def test_no_client_misses_a_byte(
    stack: Stack, deaf: tuple[Process, RedisProxy], losses: str
) -> None:
    web, proxy = deaf
    proxy.drop, proxy.dropped = LOSSES[losses], 0
    ada = stack.people["ada"]
    # Four seconds: too long to become a few pushes on a machine that is busy meanwhile.
    content = directive(text=TEXT, tokens_per_s=60)
    phones = [Phone(ada.headers) for _ in range(CLIENTS)]
    witness = Phone(ada.headers)
    conversations = [phone.send(web.url, content) for phone in phones]
    await asyncio.gather(*conversations, witness.send(stack.webs[0].url, content))
    assert witness.text == TEXT
    for phone in phones:
        assert not phone.cut
        assert phone.text == TEXT
        assert stored_reply(stack.webs[0].url, ada.headers, phone.start) == TEXT
    assert proxy.dropped > 5, "the proxy did its work"
