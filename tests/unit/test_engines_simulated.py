"""The simulated engine: words, pace, faults, and the gate that tests use to force an order."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from generation.engines.errors import (
    EngineCutOff,
    EngineError,
    EngineRejected,
    EngineUnavailable,
)
from generation.engines.protocol import (
    ChatMessage,
    EngineProfile,
    GenerateRequest,
    Piece,
    Usage,
)
from generation.engines.simulated import SimulatedEngine, skip_partial, split_directive


def make_engine(**options: object) -> SimulatedEngine:
    return SimulatedEngine(EngineProfile("p", "simulated", context_tokens=200, options=options))


def ask(text: str = "Hi", partial: str = "", max_tokens: int = 1000) -> GenerateRequest:
    return GenerateRequest("g_1", "m", (ChatMessage("user", text),), max_tokens, partial=partial)


async def collect(engine: SimulatedEngine, asked: GenerateRequest | None = None) -> list[Piece]:
    return [piece async for piece in engine.generate(asked or ask())]


async def text_of(engine: SimulatedEngine, asked: GenerateRequest | None = None) -> str:
    return "".join(piece.text for piece in await collect(engine, asked))


async def text_until_error(
    engine: SimulatedEngine, asked: GenerateRequest | None = None
) -> tuple[str, EngineError]:
    text = ""
    try:
        async for piece in engine.generate(asked or ask()):
            text += piece.text
    except EngineError as error:
        return text, error
    raise AssertionError("no error")


async def test_words_are_numbered_and_counted() -> None:
    pieces = await collect(make_engine(tokens=3))
    assert [piece.text for piece in pieces] == ["w1", " w2", " w3", ""]
    assert pieces[-1] == Piece("", 0, "stop", Usage(5, 0, 3))


async def test_the_answer_room_ends_it_as_length() -> None:
    pieces = await collect(make_engine(tokens=9), ask(max_tokens=2))
    assert pieces[-1] == Piece("", 0, "length", Usage(5, 0, 2))
    exactly = await collect(make_engine(tokens=2), ask(max_tokens=2))
    assert exactly[-1].finish == "stop"


async def test_text_pieces_and_echo_are_said_as_they_are() -> None:
    hard = "a\u2028b  c\n\ndata: x\r\n 👨‍👩‍👧‍👦"
    assert await text_of(make_engine(text=hard)) == hard
    assert await text_of(make_engine(echo=True), ask(hard)) == hard
    pieces = await collect(make_engine(pieces=["a", "", "b\x00", "\ud83d", "\ude00"]))
    assert [piece.text for piece in pieces] == ["a", "b\ufffd", "😀", ""]


async def test_a_directive_steers_one_request_only_where_it_is_allowed() -> None:
    text = 'Echo this[[sim {"echo": true, "tokens": 1}]] please'
    assert await text_of(make_engine(directives=True), ask(text)) == "Echo this please"
    assert await text_of(make_engine(tokens=1), ask(text)) == "w1"


@pytest.mark.parametrize(
    "directive",
    ["{", "[]", "{}", "{} ]]", '{"nope": 1}]]', '{"hold_file": "/etc/x"}]]', '{"hold": "../x"}]]'],
)
async def test_a_wrong_directive_is_rejected(directive: str) -> None:
    _, error = await text_until_error(make_engine(directives=True), ask(f"[[sim {directive}"))
    assert type(error) is EngineRejected


def test_a_directive_may_hold_the_closing_brackets_in_its_text() -> None:
    assert split_directive('a[[sim {"text": "x]]"}]]b') == ("ab", {"text": "x]]"})


@pytest.mark.parametrize(
    ("fault", "kind", "text"),
    [
        ("cut_after", EngineCutOff, "w1 w2"),
        ("fail_after", EngineError, "w1 w2"),
    ],
)
async def test_a_fault_comes_once_and_the_run_can_go_on(
    fault: str, kind: type[EngineError], text: str
) -> None:
    engine = make_engine(tokens=4, **{fault: 2})
    told, error = await text_until_error(engine)
    assert (told, type(error), error.retryable) == (text, kind, True)
    assert await text_of(engine, ask(partial=told)) == " w3 w4"
    other_process = make_engine(tokens=4, **{fault: 2})
    assert await text_of(other_process, ask(partial=told)) == " w3 w4"
    assert await text_of(engine) == "w1 w2 w3 w4"


async def test_a_fault_may_come_again_and_again() -> None:
    twice = make_engine(cut_after=0, tokens=1, fault_times=2)
    assert [(await text_until_error(twice))[0] for _ in range(2)] == ["", ""]
    assert await text_of(twice) == "w1"
    always = make_engine(cut_after=0, fault_times=0)
    for _ in range(3):
        await text_until_error(always, ask(partial="w1"))


async def test_a_fault_at_the_very_end_comes_before_the_finish() -> None:
    text, error = await text_until_error(make_engine(tokens=2, cut_after=2))
    assert (text, type(error)) == ("w1 w2", EngineCutOff)


async def test_refusals_say_their_kind() -> None:
    _, error = await text_until_error(make_engine(unavailable=True))
    assert type(error) is EngineUnavailable
    engine = make_engine(reject=True)
    for _ in range(2):
        assert type((await text_until_error(engine))[1]) is EngineRejected
    _, error = await text_until_error(make_engine(), ask("word " * 300))
    assert "longer than" in error.message


@pytest.mark.parametrize("options", [{"hang_after": 1}, {"ttft_s": 3600}, {"tokens_per_s": 0.001}])
async def test_abort_ends_what_waits(options: dict[str, object]) -> None:
    engine = make_engine(**options)
    task = asyncio.create_task(collect(engine))
    await asyncio.sleep(0)
    await engine.abort("g_other")
    assert not task.done()
    await engine.abort("g_1")
    with pytest.raises(EngineCutOff):
        await task


async def test_closing_the_engine_ends_what_waits() -> None:
    engine = make_engine(hang_after=0)
    task = asyncio.create_task(collect(engine))
    await asyncio.sleep(0)
    await engine.aclose()
    with pytest.raises(EngineCutOff):
        await task


async def test_the_gate_holds_the_next_piece_until_the_file_is_gone(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    gate.touch()
    engine = make_engine(tokens=4, hold_file=str(gate), hold_after=2)
    pieces = engine.generate(ask())
    assert [(await anext(pieces)).text for _ in range(2)] == ["w1", " w2"]
    third = asyncio.ensure_future(anext(pieces))
    done, _ = await asyncio.wait([third], timeout=0.1)
    assert not done
    gate.unlink()
    assert (await third).text == " w3"
    assert [piece.text async for piece in pieces] == [" w4", ""]


async def test_a_directive_names_a_gate_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "gate.one").touch()
    engine = make_engine(directives=True, tokens=1, hold_file=str(tmp_path / "gate"))
    held = asyncio.create_task(text_of(engine, ask('[[sim {"hold": "one"}]]')))
    assert await text_of(engine, ask('[[sim {"hold": "two"}]]')) == "w1"
    assert not held.done()
    (tmp_path / "gate.one").unlink()
    assert await held == "w1"


async def test_the_journal_tells_starts_and_ends(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    engine = make_engine(tokens=3, journal_file=str(journal))
    await collect(engine)
    async with aclosing(engine.generate(ask(partial="w1"))) as pieces:
        await anext(pieces)
    lines = [json.loads(line) for line in journal.read_text().splitlines()]
    told = [(line["what"], line["pieces"], line["partial_chars"]) for line in lines]
    assert told == [("started", 0, 0), ("finished", 3, 0), ("started", 0, 2), ("closed", 1, 2)]


async def test_pace_is_kept_on_the_whole() -> None:
    loop = asyncio.get_running_loop()
    before = loop.time()
    await collect(make_engine(tokens=20, tokens_per_s=200, ttft_s=0.1))
    assert loop.time() - before >= 0.1 + 19 / 200 - 0.01


@settings(deadline=None)
@given(st.lists(st.text(min_size=1), max_size=8), st.integers(0, 60))
def test_a_continuation_repeats_nothing_and_leaves_nothing_out(parts: list[str], at: int) -> None:
    whole = "".join(parts)
    partial = whole[:at]
    assert partial + "".join(skip_partial(iter(parts), partial)) == whole


def test_a_partial_that_is_not_ours_is_followed_by_the_whole_answer() -> None:
    assert list(skip_partial(iter(["a", "b", "c"]), "ax")) == ["a", "b", "c"]


async def test_health_is_as_scripted() -> None:
    assert (await make_engine().health()).ok
    assert not (await make_engine(sick=True).health()).ok
