"""The engine fails in every way it can: the answer goes on where it was; an engine that fails it
again and again ends it, with its text kept; the next send works.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from generation.run_state import FAILURES_MAX
from tests.phone import Phone, get_run, get_thread, stored_reply, text_of
from tests.stack import Person, Stack, directive

ONCE: dict[str, dict[str, Any]] = {
    "cut": {"cut_after": 4},
    "cut before the first token": {"cut_after": 0},
    "cut after the last token": {"cut_after": 9},
    "fail": {"fail_after": 3},
    "unavailable": {"unavailable": True},
}
NINE = "w1 w2 w3 w4 w5 w6 w7 w8 w9"

ALWAYS: dict[str, tuple[dict[str, Any], str, str]] = {
    "broken": ({"tokens": 9, "broken_at": 5}, "w1 w2 w3 w4 w5", "engine_failed"),
    "cut before the first token": ({"tokens": 9, "cut_after": 0}, "", "engine_failed"),
    "fail": ({"tokens": 9, "fail_after": 0}, "", "engine_failed"),
    "unavailable": ({"tokens": 9, "unavailable": True}, "", "engine_failed"),
    "reject": ({"reject": True}, "", "rejected"),
}


@pytest.fixture
def ada(stack: Stack) -> Person:
    return stack.people["ada"]


async def _send_all(url: str, ada: Person, scripts: dict[str, dict[str, Any]]) -> dict[str, Phone]:
    """Side by side: what fails is held for some seconds, longer each time."""
    phones = {fault: Phone(ada.headers) for fault in scripts}
    await asyncio.gather(
        *(
            phone.send(url, directive(tokens_per_s=50, **scripts[fault]))
            for fault, phone in phones.items()
        )
    )
    return phones


async def test_replica_fails_once(stack: Stack, ada: Person) -> None:
    """In any way: it is a short pause."""
    url = stack.webs[0].url
    scripts = {fault: {"tokens": 9, **script} for fault, script in ONCE.items()}
    for fault, phone in (await _send_all(url, ada, scripts)).items():
        assert phone.text == NINE == stored_reply(url, ada.headers, phone.start), fault
        assert phone.error is None, fault
        assert phone.done is not None
        assert (phone.done["finish"], phone.done["usage"]["output_tokens"]) == ("stop", 9), fault
        assert phone.told == ["recovered"], fault
        await _next_send_works(stack, ada, phone)


async def test_replica_fails_for_good(stack: Stack, ada: Person) -> None:
    """The run ends, and nothing else."""
    scripts = {fault: {**script, "fault_times": 0} for fault, (script, _, _) in ALWAYS.items()}
    for fault, phone in (await _send_all(stack.webs[0].url, ada, scripts)).items():
        await _ended_by(stack, ada, phone, *ALWAYS[fault][1:])


async def _ended_by(stack: Stack, ada: Person, phone: Phone, text: str, code: str) -> None:
    url = stack.webs[0].url
    assert [frame.name for frame in phone.frames][-2:] == ["error", "done"]
    assert phone.error is not None
    assert phone.error["code"] == code
    assert phone.error["retryable"] is (code != "rejected")
    assert "scripted" not in phone.error["message"], "what an engine says is not told to users"
    assert phone.done is not None
    assert phone.done["finish"] == "error"
    assert phone.done["usage"]["output_tokens"] == len(text.split())
    assert phone.text == text == stored_reply(url, ada.headers, phone.start)
    tries = [line for line in stack.journal(phone.run) if line["what"] == "started"]
    # What got further before it failed does not count.
    assert len(tries) == (1 if code == "rejected" else FAILURES_MAX + bool(text))
    run = get_run(url, ada.headers, phone.run)
    assert (run["status"], run["error"], run["usage"]) == (
        "failed",
        phone.error,
        phone.done["usage"],
    )
    await _later(stack, ada, phone)
    await _next_send_works(stack, ada, phone)


async def _later(stack: Stack, ada: Person, first: Phone) -> None:
    """A client that comes later is told of the error too."""
    later = await Phone(ada.headers, first.run).resume(stack.webs[1].url)
    assert (later.text, later.error, later.done) == (first.text, first.error, first.done)


async def _next_send_works(stack: Stack, ada: Person, phone: Phone) -> None:
    url = stack.webs[0].url
    conversation = phone.start["conversation"]
    after = await Phone(ada.headers).send(url, directive(tokens=2), conversation=conversation)
    assert after.text == "w1 w2"
    messages = get_thread(url, ada.headers, conversation)["messages"]
    assert [text_of(message) for message in messages][1::2] == [phone.text, "w1 w2"]


async def test_a_prompt_that_does_not_fit(stack: Stack, ada: Person) -> None:
    content = "a " * 40_000 + directive(tokens=1)
    phone = await Phone(ada.headers).send(stack.webs[0].url, content)
    assert phone.error is not None
    assert phone.error["code"] == "prompt_too_long"
    assert phone.error["retryable"] is False
    assert phone.done is not None
    assert phone.done["finish"] == "error"
