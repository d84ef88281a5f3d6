"""The real engine's life: it outlives its workers, and is started again when it dies. Whoever dies,
the answer goes on."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from generation.engines.keeper_lock import holder
from tests.phone import Phone, get_run, stored_reply
from tests.stack import Process
from tests.vllm.conftest import PATIENCE_S, SLOTS, Vllm

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(3600)]

TOKENS = 120


async def _in_mid_answer(vllm: Vllm) -> tuple[Phone, asyncio.Task[Phone]]:
    vllm.answer_tokens(TOKENS)
    phone = Phone(vllm.stack.people["ada"].headers)
    sending = asyncio.create_task(phone.send(vllm.url, "Count from one to five hundred in words."))
    await phone.until(lambda p: p.text)
    return phone, sending


async def _expect_whole(vllm: Vllm, phone: Phone, seen: str) -> None:
    """It went on after what was seen, to its length, and each token was charged once."""
    headers = vllm.stack.people["ada"].headers
    run = get_run(vllm.url, headers, phone.run)
    assert (run["status"], run["finish"], phone.error) == ("completed", "length", None)
    assert phone.told == ["recovered"]
    assert phone.text == stored_reply(vllm.url, headers, phone.start)
    assert phone.text.startswith(seen)
    assert len(phone.text) > len(seen)
    # Where an answer is cut and read again, its tokens may be one more or less.
    assert abs(run["usage"]["output_tokens"] - TOKENS) <= 2, run["usage"]
    assert run["usage"]["prompt_tokens"] < TOKENS + 40, "what was written is no part of the prompt"


async def _expect_answer(vllm: Vllm) -> None:
    vllm.answer_tokens(6)
    seen = await Phone(vllm.stack.people["ada"].headers).send(vllm.url, "Good morning!")
    assert seen.done is not None
    assert seen.done["finish"] in ("stop", "length")


async def _new_worker(vllm: Vllm) -> Process:
    worker = vllm.stack.start_worker(SLOTS)  # here: children end with the thread that forks
    await asyncio.to_thread(vllm.wait_healthy, worker)
    return worker


async def test_a_ctrl_c_ends_the_worker_and_leaves_the_engine_alone(vllm: Vllm) -> None:
    before, keeper = vllm.processes(), holder(vllm.place)
    assert keeper is not None
    worker = vllm.stack.workers[-1]
    phone, sending = await _in_mid_answer(vllm)
    seen = phone.text
    os.killpg(worker.popen.pid, signal.SIGINT)  # as the terminal sends it
    await asyncio.to_thread(worker.popen.wait, PATIENCE_S)
    await vllm.until_running(0)
    assert not phone.done
    # The next worker finds it, and nothing is loaded again.
    after = await _new_worker(vllm)
    await asyncio.wait_for(sending, PATIENCE_S)
    await _expect_whole(vllm, phone, seen)
    await _expect_answer(vllm)
    assert vllm.processes() == before
    assert holder(vllm.place) == keeper
    assert "The engine's keeper is process" in after.log.read_text()


async def test_a_worker_killed_in_mid_answer_leaves_the_engine_alone(vllm: Vllm) -> None:
    before, keeper = vllm.processes(), holder(vllm.place)
    phone, sending = await _in_mid_answer(vllm)
    seen = phone.text
    vllm.stack.workers[-1].kill()
    # The kernel closes its connection: vLLM ends the request, and nothing else.
    await vllm.until_running(0)
    await _new_worker(vllm)
    await asyncio.wait_for(sending, PATIENCE_S)  # the new worker's reaper puts the run back
    await _expect_whole(vllm, phone, seen)
    await _expect_answer(vllm)
    assert vllm.processes() == before
    assert holder(vllm.place) == keeper


async def test_a_killed_engine_is_started_again_and_its_runs_go_on(vllm: Vllm) -> None:
    """Its core, since what the server then does is vLLM's: it tells its requests, and ends.

    What a killed server leaves is ours to end, and tried with a stand-in (test_vllm_keeper).
    """
    before, keeper = vllm.processes(), holder(vllm.place)
    assert keeper is not None
    phone, sending = await _in_mid_answer(vllm)
    (server,) = [pid for pid in before if _parent(pid) == keeper.pid]
    (core,) = [pid for pid in before if _parent(pid) == server and "EngineCore" in _title(pid)]
    seen = phone.text
    os.kill(core, signal.SIGKILL)
    await asyncio.to_thread(
        vllm.wait, lambda: not set(before) & set(vllm.processes()), "the old engine to be gone"
    )
    await asyncio.to_thread(vllm.wait, lambda: vllm.processes() != [], "a new engine")
    await asyncio.to_thread(_wait_again_healthy, vllm)
    await asyncio.wait_for(sending, PATIENCE_S)
    await _expect_whole(vllm, phone, seen)
    await _expect_answer(vllm)
    assert holder(vllm.place) == keeper


def _parent(pid: int) -> int:
    stat = Path(f"/proc/{pid}/stat").read_text()
    return int(stat.rpartition(")")[2].split()[1])


def _title(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text(errors="replace")


def _wait_again_healthy(vllm: Vllm) -> None:
    vllm.wait(lambda: "ready after" in _since_the_death(vllm), "the new engine to be ready")
    vllm.wait_healthy(vllm.stack.workers[-1])


def _since_the_death(vllm: Vllm) -> str:
    return vllm.place.log.read_text(errors="replace").rpartition("vLLM has ended")[2]
