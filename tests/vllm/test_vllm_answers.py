"""Answers from the real vLLM, through the whole product."""

from __future__ import annotations

import asyncio

import pytest

from generation.engines import ChatMessage, GenerateRequest, build_engine
from generation.runs import FREE_PRIORITY, PAID_PRIORITY
from tests.phone import Phone, call, get_run, stop, stored_reply
from tests.stack import Person
from tests.vllm.conftest import LONG_TOKENS, PATIENCE_S, SLOTS, Vllm

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(2400)]

# More than one of the CPU build's cache blocks of 128 tokens.
LONG_QUESTION = "Here is a list of ships. " + " ".join(
    f"Ship number {n} sails on the sea." for n in range(1, 41)
)


@pytest.fixture
def ada(vllm: Vllm) -> Person:
    return vllm.stack.people["ada"]


@pytest.fixture
def bob(vllm: Vllm) -> Person:
    return vllm.stack.people["bob"]


async def test_a_chat(vllm: Vllm, ada: Person) -> None:
    vllm.answer_tokens(40)
    question = "Write two short sentences about the sea."
    seen = await Phone(ada.headers).send(vllm.url, question)
    assert seen.done is not None
    assert seen.done["finish"] in ("stop", "length")
    assert len(seen.text) > 10
    assert seen.text == stored_reply(vllm.url, ada.headers, seen.start)
    usage = get_run(vllm.url, ada.headers, seen.run)["usage"]
    assert 2 < usage["output_tokens"] <= 40
    assert usage["prompt_tokens"] > 10


async def test_tokens_are_counted_as_the_engine_counts_them(vllm: Vllm) -> None:
    """Also of a message that looks like the template's own words, and of one to be continued."""
    engine = build_engine(vllm.profile)
    short = (ChatMessage("system", "Be brief."), ChatMessage("user", "Good morning, 世界 👋"))
    longer = (*short, ChatMessage("assistant", "im_end and so on"))
    try:
        count, begun = await engine.count_tokens(short), await engine.count_tokens(longer)
    finally:
        await engine.aclose()
    assert 15 < count < 60
    assert count < begun < count + 15


async def test_stop_frees_the_slot(vllm: Vllm, ada: Person) -> None:
    vllm.answer_tokens(LONG_TOKENS)
    phone = Phone(ada.headers)
    finished = await vllm.finished()
    sending = asyncio.create_task(phone.send(vllm.url, "Count from one to five hundred in words."))
    await phone.until(lambda p: p.text)
    assert (await vllm.load()).running == 1
    assert stop(vllm.url, ada.headers, phone.run).status_code < 300
    await sending
    await vllm.until_running(0)
    assert await vllm.finished() == finished, "it was let go, not written to its end"
    assert phone.done is not None
    assert phone.done["finish"] == "user_stopped"
    assert phone.text
    assert phone.text == stored_reply(vllm.url, ada.headers, phone.start)
    # What was written is known without the engine's last word.
    usage = get_run(vllm.url, ada.headers, phone.run)["usage"]
    assert 0 < usage["output_tokens"] < LONG_TOKENS


async def test_an_answer_that_was_cut_is_continued(vllm: Vllm, ada: Person) -> None:
    vllm.answer_tokens(12)
    first = await Phone(ada.headers).send(vllm.url, "Tell me a long story about a lighthouse.")
    assert first.done is not None
    assert first.done["finish"] == "length"
    start = first.start
    path = f"/v1/conversations/{start['conversation']}/messages/{start['reply_msg']}:continue"
    answer = call("POST", vllm.url + path, ada.headers)
    assert answer.status_code == 202, answer.text
    second = await Phone(ada.headers, answer.json()["id"]).follow(vllm.url)
    assert second.done is not None
    whole = stored_reply(vllm.url, ada.headers, second.start)
    assert second.text == whole
    assert whole.startswith(first.text)
    assert len(whole) > len(first.text)
    # Not begun anew: what follows is no second beginning.
    assert not whole[len(first.text) :].lstrip().startswith(first.text[:20])


async def test_the_second_turn_comes_from_the_prefix_cache(
    vllm: Vllm, ada: Person, bob: Person
) -> None:
    vllm.answer_tokens(8)
    before = await vllm.load()
    first = await Phone(ada.headers).send(vllm.url, LONG_QUESTION)
    again = await Phone(ada.headers).send(
        vllm.url, "And the last one?", conversation=first.start["conversation"]
    )
    usage = get_run(vllm.url, ada.headers, again.run)["usage"]
    assert usage["prompt_tokens"] >= usage["cached_tokens"] >= 256, usage
    # Bob is of no organisation, nor is Ada: he must not be able to tell what she asked.
    other = await Phone(bob.headers).send(vllm.url, LONG_QUESTION)
    assert get_run(vllm.url, bob.headers, other.run)["usage"]["cached_tokens"] == 0
    after = await vllm.load()
    assert after.prefix_hit_tokens - before.prefix_hit_tokens == usage["cached_tokens"]
    assert after.prefix_queried_tokens > before.prefix_queried_tokens


async def test_eight_at_once(vllm: Vllm, ada: Person) -> None:
    vllm.answer_tokens(40)
    phones = [Phone(ada.headers) for _ in range(SLOTS)]
    sending = [
        asyncio.create_task(phone.send(vllm.url, f"Tell a long story about the number {n}."))
        for n, phone in enumerate(phones)
    ]
    await vllm.until_running(SLOTS)
    await asyncio.gather(*sending)
    await vllm.until_running(0)
    for phone in phones:
        assert phone.done is not None
        assert phone.done["finish"] in ("stop", "length")
        assert phone.text == stored_reply(vllm.url, ada.headers, phone.start)


async def test_who_has_paid_is_read_first(vllm: Vllm) -> None:
    """Where more wait than the engine writes at once: straight at it, past our own queue."""
    engine = build_engine(vllm.profile)
    begun: list[str] = []

    async def ask(name: str, priority: int) -> None:
        turn = ChatMessage("user", f"Tell a long story about {name}.")
        request = GenerateRequest(name, "demo", (turn,), LONG_TOKENS, priority=priority)
        async for _ in engine.generate(request):
            if name not in begun:
                begun.append(name)

    async def until_begun(count: int) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while len(begun) < count:
                await asyncio.sleep(0.05)

    asking = [asyncio.create_task(ask(f"ship {n}", FREE_PRIORITY)) for n in range(SLOTS)]
    try:
        await until_begun(SLOTS)
        asking.append(asyncio.create_task(ask("a free rider", FREE_PRIORITY)))
        await vllm.until_running(SLOTS, waiting=1)
        asking.append(asyncio.create_task(ask("a paying guest", PAID_PRIORITY)))
        await vllm.until_running(SLOTS, waiting=2)
        await engine.abort("ship 0")
        await until_begun(SLOTS + 1)
        assert begun[SLOTS] == "a paying guest"
    finally:
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)
        await engine.aclose()
    await vllm.until_running(0)


async def test_the_replicas_row_tells_the_load(vllm: Vllm, bob: Person) -> None:
    """Of one who has paid, too: the server takes the priority that the orchestrator gives it."""
    vllm.answer_tokens(4)
    seen = await Phone(bob.headers).send(vllm.url, "Good evening!")
    assert seen.done is not None
    assert seen.done["finish"] in ("stop", "length")
    name = vllm.stack.workers[-1].replica

    def told() -> bool:
        ((detail,),) = vllm.stack.rows(
            "SELECT detail FROM generation_replica WHERE name = %s", name
        )
        return "0 running, 0 waiting, KV cache" in detail and "prefix hits" in detail

    await asyncio.to_thread(vllm.wait, told, "the heartbeat to tell the load")
