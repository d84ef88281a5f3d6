"""Whoever may not see anything any more sees nothing more: streams and sockets end within 5 s."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.integration.live_people import LivePerson, change, live_people
from tests.phone import Phone, call
from tests.sockets import Socket
from tests.stack import Stack, directive

PROMISE_S = 5.0
SLACK_S = 10.0
"""For a machine that is busy with other tests; what was measured is printed."""

CSRF = {"Cookie": "csrftoken=" + "a" * 32, "X-CSRFToken": "a" * 32}

# Whose credential ends how: the credential that lets them in, and the statement.
ENDS: dict[str, tuple[str, str]] = {
    "revoked": (
        "token",
        "UPDATE accounts_apitoken SET revoked = now() WHERE user_id = %(user)s",
    ),
    "expired": (
        "token",
        "UPDATE accounts_apitoken SET expires = now() WHERE user_id = %(user)s",
    ),
    "disabled": ("token", "UPDATE accounts_user SET is_active = false WHERE id = %(user)s"),
    "disabled_session": (
        "session",
        "UPDATE accounts_user SET is_active = false WHERE id = %(user)s",
    ),
    "session_ended": ("session", "DELETE FROM django_session WHERE session_key = %(session)s"),
    "session_expired": (
        "session",
        "UPDATE django_session SET expire_date = now() WHERE session_key = %(session)s",
    ),
    "new_password": ("session", "UPDATE accounts_user SET password = 'x' WHERE id = %(user)s"),
    "signed_out": ("session", ""),
}


@dataclass
class Opened:
    """All that one person has open: a stream of a send, one of a resume, and a socket."""

    sent: Phone
    resumed: Phone
    socket: Socket
    tasks: list[asyncio.Task[Any]] = field(default_factory=list)


@pytest.fixture
def people(stack: Stack) -> dict[str, LivePerson]:
    return live_people(stack, dict.fromkeys([*ENDS, "stays"], ""))


@pytest.fixture
def held(stack: Stack) -> Iterator[str]:
    """An answer that stands still in its middle."""
    hold = stack.hold("closing")
    yield directive(tokens=3, hold="closing", hold_after=1)
    hold.unlink(missing_ok=True)


def _headers(person: LivePerson, kind: str) -> dict[str, str]:
    if kind == "token":
        return person.headers
    return {**CSRF, "Cookie": f"sessionid={person.session}; {CSRF['Cookie']}"}


async def _open(
    stack: Stack, person: LivePerson, kind: str, content: str, opened: AsyncExitStack
) -> Opened:
    here, there = (web.url for web in stack.webs)
    headers = _headers(person, kind)
    sent, resumed = Phone(headers), Phone(headers)
    tasks = [asyncio.create_task(sent.send(here, content))]
    await sent.until(lambda p: p.start)
    resumed.run = sent.run
    tasks.append(asyncio.create_task(resumed.resume(there)))
    await resumed.until(lambda p: p.start)
    socket = await opened.enter_async_context(Socket.open(there, headers=headers, origin=there))
    await socket.say(type="watch", run=sent.run)
    await socket.until(lambda s: sent.run in s.phones)
    return Opened(sent, resumed, socket, tasks)


async def test_everything_closes_when_what_let_it_in_has_ended(
    stack: Stack, people: dict[str, LivePerson], held: str
) -> None:
    async with AsyncExitStack() as exits:
        stays = await _open(stack, people["stays"], "session", held, exits)
        opened = {
            name: await _open(stack, people[name], kind, held, exits)
            for name, (kind, _) in ENDS.items()
        }
        # Another way in of somebody whose API token is revoked: it stays.
        other = await exits.enter_async_context(
            Socket.open(
                stack.webs[0].url,
                headers=_headers(people["revoked"], "session"),
                origin=stack.webs[0].url,
            )
        )
        assert not any(task.done() for one in opened.values() for task in one.tasks)
        took_s = await asyncio.gather(
            *(_end(stack, people[name], name, one) for name, one in opened.items())
        )
        print({name: f"{s:.1f} s" for name, s in zip(opened, took_s, strict=True)})
        assert max(took_s) <= PROMISE_S + SLACK_S
        assert min(took_s) <= PROMISE_S, "at least one was not held up by the machine"
        for name, one in opened.items():
            await _assert_closed(stack, name, one)
        assert not any(task.done() for task in stays.tasks)
        for socket in (stays.socket, other):
            await socket.answer()
            assert socket.code is None
        (stack.directory / "hold.closing").unlink()
        await asyncio.gather(*stays.tasks)
        assert stays.sent.text == stays.resumed.text == "w1 w2 w3"


async def _end(stack: Stack, person: LivePerson, name: str, opened: Opened) -> float:
    """End the credential; how long after that the last of it was closed."""
    if name == "signed_out":
        url = f"{stack.webs[0].url}/accounts/sign-out/"
        answer = await asyncio.to_thread(call, "POST", url, _headers(person, "session"))
        assert answer.status_code in (200, 302), answer.text
    else:
        await asyncio.to_thread(change, stack, person, ENDS[name][1])
    began_s = time.monotonic()
    await asyncio.gather(*opened.tasks, opened.socket.closed())
    return time.monotonic() - began_s


async def _assert_closed(stack: Stack, name: str, opened: Opened) -> None:
    for phone in (opened.sent, opened.resumed):
        assert not phone.cut, "an end in order, not a cut"
        assert (phone.done, phone.error) == (None, None)
        await phone.resume(stack.webs[0].url)
        assert phone.status == 401, "whoever goes on from the cursor is told"
    assert opened.socket.code == 4401, name
    assert not opened.socket.done(opened.sent.run)
