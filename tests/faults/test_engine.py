"""The engine fails in every way it can: the run ends, its text is kept, the next send works."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.phone import Phone, get_run, get_thread, stored_reply, text_of
from tests.stack import Person, Stack, directive

FAULTS: dict[str, tuple[dict[str, Any], str, str]] = {
    "cut": ({"tokens": 9, "cut_after": 4}, "w1 w2 w3 w4", "engine_failed"),
    "cut before the first token": ({"tokens": 9, "cut_after": 0}, "", "engine_failed"),
    "cut after the last token": ({"tokens": 2, "cut_after": 2}, "w1 w2", "engine_failed"),
    "fail": ({"tokens": 9, "fail_after": 3}, "w1 w2 w3", "engine_failed"),
    "unavailable": ({"tokens": 9, "unavailable": True}, "", "engine_failed"),
    "reject": ({"reject": True}, "", "rejected"),
    "hang": ({"tokens": 9, "hang_after": 2}, "w1 w2", "engine_failed"),
    "hang before the first token": ({"tokens": 9, "hang_after": 0}, "", "engine_failed"),
}


@pytest.fixture
def short_silence(stack: Stack, fault: str) -> Iterator[None]:
    """An engine that hangs is given up soon; one that does not may be slow."""
    if "hang_after" not in FAULTS[fault][0]:
        yield
        return
    with psycopg.connect(stack.env["DATABASE_URL"], autocommit=True) as connection:
        (before,) = connection.execute("SELECT silence_s FROM generation_pool").fetchone() or ()
        connection.execute("UPDATE generation_pool SET silence_s = 3")
        yield
        connection.execute("UPDATE generation_pool SET silence_s = %s", [before])


@pytest.fixture
def ada(stack: Stack) -> Person:
    return stack.people["ada"]


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_fault_ends_the_run_and_nothing_else(
    stack: Stack, ada: Person, short_silence: None, fault: str
) -> None:
    script, text, code = FAULTS[fault]
    url = stack.webs[0].url
    phone = await Phone(ada.headers).send(url, directive(tokens_per_s=50, **script))
    assert [frame.name for frame in phone.frames][-2:] == ["error", "done"]
    assert phone.error is not None
    assert phone.error["code"] == code
    assert phone.error["retryable"] is (code != "rejected")
    assert "scripted" not in phone.error["message"], "what an engine says is not told to users"
    assert phone.done is not None
    assert phone.done["finish"] == "error"
    assert phone.done["usage"]["output_tokens"] == len(text.split())
    assert phone.text == text == stored_reply(url, ada.headers, phone.start)
    run = get_run(url, ada.headers, phone.run)
    assert (run["status"], run["error"], run["usage"]) == (
        "failed",
        phone.error,
        phone.done["usage"],
    )
    await _next_send_works(url, ada, phone)


async def _next_send_works(url: str, ada: Person, phone: Phone) -> None:
    conversation = phone.start["conversation"]
    after = await Phone(ada.headers).send(url, directive(tokens=2), conversation=conversation)
    assert after.text == "w1 w2"
    messages = get_thread(url, ada.headers, conversation)["messages"]
    assert [text_of(message) for message in messages][1::2] == [phone.text, "w1 w2"]


async def test_a_client_that_comes_later_is_told_of_the_error_too(
    stack: Stack, ada: Person
) -> None:
    first = await Phone(ada.headers).send(stack.webs[0].url, directive(tokens=9, cut_after=4))
    later = await Phone(ada.headers, first.run).resume(stack.webs[1].url)
    assert (later.text, later.error, later.done) == (first.text, first.error, first.done)


async def test_a_prompt_that_does_not_fit(stack: Stack, ada: Person) -> None:
    content = "a " * 40_000 + directive(tokens=1)
    phone = await Phone(ada.headers).send(stack.webs[0].url, content)
    assert phone.error is not None
    assert phone.error["code"] == "prompt_too_long"
    assert phone.error["retryable"] is False
    assert phone.done is not None
    assert phone.done["finish"] == "error"
