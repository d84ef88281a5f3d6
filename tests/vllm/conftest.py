"""The whole product on the real vLLM (its CPU build) and the demo model, which it can just run.

Made for `scripts/run-vllm-tests`, which installs vLLM first. The engine is started by the GPU
worker, as a profile with `serve` says; it loads once for the session, and once more after a test
kills it.
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from chatproject import vllm_setup
from chatproject.run_options import read_options
from generation.engines import EngineProfile, Load, build_engine, parse_profiles
from generation.engines.keeper_lock import Place, at_work, holder
from tests import phone
from tests.stack import Process, Stack

SLOTS = 8
# Two minutes of writing on two cores, and four where eight are written at once: nobody waits longer
# for a test that has failed.
LONG_TOKENS = 400
# Loading takes a minute on two idle cores, and several on two busy ones.
START_S = 1500.0
PATIENCE_S = 600.0
VLLM_REDIS_DB = 13
_FINISHED = re.compile(
    r'^vllm:request_success_total\{.*finished_reason="(\w+)".*\} (\S+)$', re.MULTILINE
)
# Both terms that an engine is told of a run are then seen by the real one.
_BOB_PAYS = """
from accounts.models import User
from quotas.models import Plan, Subscription

plan = Plan.objects.create(
    slug="paid", title="Paid", is_paid=True, context_tokens=32768, answer_tokens=8192,
)
Subscription.objects.filter(user=User.objects.get(name="Bob")).update(plan=plan)
"""


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A real model on a busy CPU is slow; what hangs is found by the tests' own limit."""
    monkeypatch.setattr(phone, "PATIENCE_S", PATIENCE_S)


@pytest.fixture(scope="session")
def environment() -> Path:
    return vllm_setup.environment_directory()


@pytest.fixture(scope="session")
def converted(environment: Path, demo_model_path: Path) -> Path:
    """The demo model as safetensors, converted once per machine."""
    if not vllm_setup.is_converted():
        subprocess.run(vllm_setup.conversion(environment, demo_model_path), check=True)
    return vllm_setup.demo_directory()


@dataclass(slots=True)
class Vllm:
    """A stack whose worker drives a real vLLM, and what can be seen of that from outside."""

    stack: Stack
    profile: EngineProfile
    place: Place

    @property
    def url(self) -> str:
        return self.stack.webs[0].url

    async def load(self) -> Load:
        """What the engine tells of itself, asked directly, and again where it is too busy."""
        engine = build_engine(self.profile)
        deadline_s = time.monotonic() + PATIENCE_S
        try:
            while (health := await engine.health()).load is None:
                assert time.monotonic() < deadline_s, health
                await asyncio.sleep(0.2)
            return health.load
        finally:
            await engine.aclose()

    async def until_running(self, count: int, waiting: int = 0) -> None:
        """Wait until the engine tells that it writes so many answers, and that so many wait."""
        deadline_s = time.monotonic() + PATIENCE_S
        while ((load := await self.load()).running, load.waiting) != (count, waiting):
            assert time.monotonic() < deadline_s, f"{load}, waited for {count} and {waiting}"
            await asyncio.sleep(0.2)

    async def finished(self) -> int:
        """How many answers the engine has written to their end since its start."""
        transport = httpx.AsyncHTTPTransport(uds=str(self.place.socket))
        async with httpx.AsyncClient(transport=transport, timeout=PATIENCE_S) as client:
            page = (await client.get("http://engine/metrics")).text
        counts = dict(_FINISHED.findall(page))
        return int(float(counts["stop"]) + float(counts["length"]))

    def wait_healthy(self, worker: Process) -> None:
        """The worker's own replica row says so: it has asked the engine."""
        name = worker.replica
        query = "SELECT 1 FROM generation_replica WHERE name = %s AND healthy"
        self.wait(lambda: bool(self.stack.rows(query, name)), f"{name} to be healthy", worker)

    def wait(self, condition: Any, what: str, worker: Process | None = None) -> None:
        deadline_s = time.monotonic() + START_S
        while not condition():
            if worker is not None:
                assert worker.popen.poll() is None, worker.tail()
            assert time.monotonic() < deadline_s, f"waited for {what}\n{self.log()}"
            time.sleep(0.2)

    def processes(self) -> list[int]:
        return at_work(self.place)

    def answer_tokens(self, tokens: int) -> None:
        """How long the answers may be that are asked for from now on."""
        self.stack.execute("UPDATE generation_model SET answer_tokens = %s", tokens)

    def log(self) -> str:
        try:
            return self.place.log.read_text(errors="replace")[-6000:]
        except OSError:
            return ""

    def stop_engine(self) -> None:
        self.stack.python("-m", "generation.engines.vllm_server", "--profile", "sim", "--stop")


def _profile(socket: Path, environment: Path, model: Path) -> dict[str, Any]:
    """As `make run ENGINE=vllm ENGINE_DEVICE=cpu` has it, at another place, and with answers that
    all take their whole room: one that ends by itself cannot be interrupted in the middle."""
    options = read_options({"ENGINE": "vllm", "ENGINE_DEVICE": "cpu", "MODEL": str(model)})
    profile: dict[str, Any] = vllm_setup.profile(options, environment)
    return {
        "kind": "vllm",
        "model": "demo",
        "slots": SLOTS,
        "context_tokens": options.engine_context_tokens,
        **profile,
        "url": f"unix://{socket}",
        "options": {**profile["options"], "extra_body": {"ignore_eos": True}},
    }


@pytest.fixture
def vllm(running_vllm: Vllm) -> Vllm:
    """With a worker, whatever an earlier test has left."""
    worker = running_vllm.stack.workers[-1]
    if worker.popen.poll() is not None:
        running_vllm.wait_healthy(running_vllm.stack.start_worker(SLOTS))
    return running_vllm


@pytest.fixture(scope="session")
def running_vllm(environment: Path, converted: Path) -> Iterator[Vllm]:
    with tempfile.TemporaryDirectory(prefix="hearth-vllm-") as directory:
        socket = Path(directory) / "engine" / "demo.sock"
        profiles = json.dumps({"sim": _profile(socket, environment, converted)})
        own = {"ENGINE_PROFILES": profiles, "WORKER_GRACE_S": "1"}
        with Stack.start(webs=1, workers=0, redis_db=VLLM_REDIS_DB, env=own) as stack:
            running = Vllm(stack, parse_profiles(profiles)["sim"], Place(socket))
            stack.execute("UPDATE generation_pool SET silence_s = %s", PATIENCE_S)
            stack.manage("shell", "--verbosity", "0", "-c", _BOB_PAYS)
            try:
                began_s = time.monotonic()
                running.wait_healthy(stack.start_worker(SLOTS))
                print(f"vLLM was ready after {time.monotonic() - began_s:.0f} s")
                stack.wait_ready()
                yield running
            finally:
                stack.close()
                running.stop_engine()
                assert running.processes() == []
                assert holder(running.place) is None
