"""An engine says nothing for longer than a proxy's patience: the stream stays, and ends whole."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from tests import phone as phone_room
from tests.faults import nginx
from tests.phone import Phone, stored_reply
from tests.stack import SILENCE_S, Stack, directive


class Silence(NamedTuple):
    """How long the engine is silent, twice; what nginx allows; how often a comment comes."""

    silence_s: int
    timeout_s: int | None
    heartbeat_s: float


SHORT = Silence(13, 6, 2.0)
LONG = Silence(130, None, 10.0)


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch, breakable: Stack) -> Iterator[None]:
    """The pool has less of it than the engine takes: nobody else could serve, so it is waited for.
    (13 s are too short for that; the watchdog's tests have it.)"""
    monkeypatch.setattr(phone_room, "PATIENCE_S", 600.0)
    breakable.execute("UPDATE generation_pool SET silence_s = 30")
    yield
    breakable.execute("UPDATE generation_pool SET silence_s = %s", SILENCE_S)


@pytest.mark.parametrize(
    "how",
    [
        pytest.param(SHORT, id="short"),
        pytest.param(LONG, id="long", marks=[pytest.mark.long, pytest.mark.timeout(600)]),
    ],
)
async def test_silence_behind_nginx(breakable: Stack, how: Silence) -> None:
    ada = breakable.people["ada"]
    web = breakable.start_web(env={"STREAM_HEARTBEAT_S": str(how.heartbeat_s)})
    breakable.wait_ready()
    name = f"silence{os.getpid()}"
    hold = breakable.hold(name)
    content = directive(tokens=40, ttft_s=how.silence_s, hold=name, hold_after=20)
    with nginx.in_front_of(web.url, how.timeout_s) as url:
        phone, began_s = Phone(ada.headers), time.monotonic()
        task = asyncio.create_task(phone.send(url, content))
        await phone.until(lambda p: p.start)
        assert time.monotonic() - began_s < how.silence_s, "at once, whatever the engine does"
        await phone.until(lambda p: p.text.endswith("w20"))
        assert time.monotonic() - began_s >= how.silence_s
        await asyncio.sleep(how.silence_s)
        hold.unlink()
        await task
        assert not phone.cut
        assert phone.text == " ".join(f"w{n}" for n in range(1, 41))
        assert phone.text == stored_reply(web.url, ada.headers, phone.start)
        assert phone.done is not None
        assert (phone.done["finish"], phone.told) == ("stop", [])
        assert phone.comments >= 2 * int(how.silence_s / how.heartbeat_s) - 2
    web.kill()
    breakable.webs.remove(web)
