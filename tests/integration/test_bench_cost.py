"""`bench/overhead`, `bench/gateway` and `bench/engine` run, from their own services to their
figures; the figures themselves prove nothing here, where the machine is busy with tests.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bench.support import bare
from bench.support.load import DELTA, HUNG_S, Answer, Stream
from bench.support.numbers import CpuMeter, pss_kib, tree_cpu_s
from tests.benches import run_bench


@pytest.mark.timeout(300)
def test_overhead_gives_every_figure(tmp_path: Path) -> None:
    found, told = run_bench("overhead", tmp_path, "--streams", "4", "--tokens", "40")
    for name in ("ttft_added_p50_ms", "ttft_added_p95_ms", "cpu_ms_per_answer", "gap_p99_ms"):
        assert found[name] > 0
    assert found["failed"] == 0
    assert found["sends"] >= 1
    # The engine writes 30 a second, and makes up for what was late; nothing is counted twice.
    assert 0 < found["tokens_per_s"] < 60
    parts = ("web_ms", "worker_ms", "postgres_ms", "valkey_ms")
    assert found["cpu_ms_per_answer"] == pytest.approx(sum(found[part] for part in parts), abs=1)
    assert found["engine_ms"] > 0
    assert "≤ 25" in told


@pytest.mark.timeout(300)
def test_gateway_gives_every_figure(tmp_path: Path) -> None:
    sizes = ("--streams", "30", "--rate", "5", "--webs", "2")
    found, told = run_bench("gateway", tmp_path, *sizes)
    assert found["events_per_core_s"] > 0
    assert found["share_of_floor"] > 0
    assert found["lost_streams"] == 0
    assert found["streams"] == 30
    assert found["longest_gap_ms"] > 0
    assert 0 < found["events_per_s"] < 300  # 150 are asked for, and what was late is made up for
    assert "≥ 12500" in told


@pytest.mark.timeout(300)
def test_fairness_gives_every_figure(tmp_path: Path) -> None:
    found, told = run_bench("fairness", tmp_path, "--seconds", "2", "--tokens", "8")
    assert found["paid_overtaken"] == 0
    assert found["failed"] == 0
    assert 0 < found["fair_paid_p50_ms"] <= found["fair_paid_p95_ms"]
    # Fifty chats before it, eight at a time: however busy the machine is, that is many turns.
    assert found["fifo_neighbour_delay_turns"] > found["neighbour_delay_turns"]
    assert found["storm_s"] > 0
    assert "≤ 1.2" in told


@pytest.mark.model
@pytest.mark.timeout(300)
def test_engine_gives_every_figure(tmp_path: Path, demo_model_path: Path) -> None:
    sizes = ("--streams", "2", "--tokens", "8", "--rounds", "1")
    found, told = run_bench("engine", tmp_path, *sizes)
    assert found["failed"] == 0
    assert found["llamacpp_tokens"] == 16
    assert found["throughput_ratio"] == found["llamacpp_ratio"] > 0
    assert "≥ 0.97" in told


@pytest.mark.parametrize("rate", [5.0, 60.0])
async def test_the_floor_writes_at_the_rate_that_it_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, rate: float
) -> None:
    """Also where that is more than one frame in each of its pushes, and where a push is late."""
    written = asyncio.Queue[None]()
    streams, loop = 3, asyncio.get_running_loop()

    async def send(message: bare.Message) -> None:
        for _ in range(message.get("body", b"").count(DELTA)):
            written.put_nowait(None)

    async def receive() -> bare.Message:
        await asyncio.Event().wait()
        return {}

    monkeypatch.setattr(bare, "RATE", rate)
    began_s = loop.time()
    tasks = [asyncio.create_task(bare._wake_forever())]
    tasks += [asyncio.create_task(bare._stream(receive, send)) for _ in range(streams)]
    await written.get()
    before, first_s = written.qsize(), loop.time()
    await asyncio.sleep(0.3)
    time.sleep(0.5)  # noqa: ASYNC251 — the loop stands still, as on a busy machine

    def behind_s() -> float:
        return loop.time() - first_s - (written.qsize() - before) / (rate * streams)

    while behind_s() > 0.3:  # for ever, where what was late is not made up for
        await asyncio.sleep(0.01)
    assert written.qsize() <= rate * streams * (loop.time() - began_s)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await asyncio.sleep(0)
    assert bare.streams == []


async def test_a_mark_is_counted_however_it_is_cut() -> None:
    frame = b"id: g_1:2\nevent: delta\ndata: {}\n\n"
    whole = b"HTTP/1.1 200 OK\r\n\r\n" + 3 * frame
    for size in (1, 2, 5, 13, 14, len(frame), len(whole)):
        stream = Stream(b"", DELTA)
        for at in range(0, len(whole), size):
            stream.data_received(whole[at : at + size])
        assert stream.events == 3
        assert not stream.refused
        assert 0 < stream.first_s <= stream.last_s


async def test_an_answer_that_hangs_has_failed() -> None:
    """Whether before its first token or after it; one that is only under way has not."""
    now_s = time.monotonic()
    never, stuck, going = Stream(b"", DELTA), Stream(b"", DELTA), Stream(b"", DELTA)
    for stream in (stuck, going):
        stream.data_received(b"HTTP/1.1 200 OK\r\n\r\nid: g_1:2\nevent: delta\ndata: {}\n\n")
    stuck.first_s = stuck.last_s = now_s - 2 * HUNG_S
    noted = []
    for stream in (never, stuck, going):
        noted.append(Answer(0, now_s - 3 * HUNG_S))
        noted[-1].note(stream)
    assert ["silent" in answer.problem for answer in noted] == [True, True, False]
    assert [answer.longest_gap_s >= 2 * HUNG_S for answer in noted] == [False, True, False]
    assert all(answer.open for answer in noted)


async def test_a_refusal_is_no_stream() -> None:
    stream = Stream(b"", DELTA)
    stream.data_received(b"HTTP/1.1 429 Too Many Requests\r\n\r\nlater")
    assert "later" in stream.refused
    stream.connection_lost(None)
    await asyncio.gather(stream.begun, stream.ended)


def test_what_children_used_is_counted_after_their_end() -> None:
    meter = CpuMeter({"self": os.getpid()})
    before_s = tree_cpu_s(os.getpid())
    burn = "import time\nwhile time.process_time() < 0.3: pass"
    subprocess.run([sys.executable, "-c", burn], check=True)
    assert tree_cpu_s(os.getpid()) - before_s >= 0.25
    assert meter.lap()["self"] >= 0.25
    assert meter.lap()["self"] < 0.25
    assert pss_kib(os.getpid()) > 1_000
