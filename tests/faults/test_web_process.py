"""A web process dies or is deployed in mid-answer: its clients go on, and end with every byte."""

from __future__ import annotations

import asyncio

from tests.phone import Connection, FrameParser, Phone, stored_reply
from tests.stack import Stack, directive


async def test_web_process_dies(breakable: Stack) -> None:
    ada = breakable.people["ada"]
    web = breakable.webs[0]
    phone, hold = Phone(ada.headers), breakable.hold("killed")
    content = directive(tokens=300, tokens_per_s=50, hold="killed", hold_after=20)
    first = asyncio.create_task(phone.send(web.url, content))
    await phone.until(lambda p: len(p.text.split()) == 20)
    web.kill()
    hold.unlink()
    await first
    assert phone.cut
    assert phone.done is None
    breakable.webs[0] = breakable.start_web(web.port)
    breakable.webs.pop()
    await phone.follow(web.url)
    assert phone.text == " ".join(f"w{n}" for n in range(1, 301))
    assert stored_reply(web.url, ada.headers, phone.start) == phone.text


async def test_web_process_is_deployed(breakable: Stack) -> None:
    ada = breakable.people["ada"]
    web, other = breakable.webs
    hold = breakable.hold("deploy")
    held = directive(tokens=5, hold="deploy", hold_after=2)
    sent, resumed, queued = (Phone(ada.headers) for _ in range(3))
    tasks = [asyncio.create_task(phone.send(web.url, held)) for phone in (sent, queued)]
    await sent.until(lambda p: p.text == "w1 w2")
    resumed.run = sent.run
    tasks.append(asyncio.create_task(resumed.resume(web.url)))
    await resumed.until(lambda p: p.text == "w1 w2")
    await queued.until(lambda p: p.start)
    status = await asyncio.to_thread(web.terminate)
    await asyncio.gather(*tasks)
    assert status in (0, -15), web.tail()
    for phone in (sent, resumed, queued):
        assert not phone.cut
        assert phone.done is None
        assert phone.retry_ms is not None
        assert phone.retry_ms < 1_000
        assert phone.error is None
    hold.unlink()
    for phone in (sent, resumed, queued):
        await phone.follow(other.url)
        assert phone.text == "w1 w2 w3 w4 w5"
    assert "Traceback" not in web.tail()


async def test_a_deploy_in_the_middle_of_an_idle_connection(breakable: Stack) -> None:
    """A client that has connected and said nothing does not hold up the end of the process."""
    web = breakable.start_web()
    breakable.wait_ready()
    silent = await Connection.connect(web.url)
    status = await asyncio.to_thread(web.terminate)
    assert status in (0, -15)
    assert list(FrameParser().feed(await silent.reader.read())) == []
    await silent.drop()
