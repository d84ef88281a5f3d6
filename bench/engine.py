"""Throughput through the product against the bare engine: the same prompts, the same lengths.

Eight people ask at the same moment and read their answers to the end, once through the product
(send, queue, worker, token log, gateway) and once with plain requests to the engine's own server;
in turn, and each time another goes first. What counts is tokens a second from the sends to the
last byte. All answers have the same length: one that ends by itself would leave fewer to share the
engine, on one side and not on the other.

The engine is the embedded llama.cpp with the demo model. Without --quick vLLM follows, where its
environment and the converted model are there (`make run ENGINE=vllm` makes both).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from bench.support.cli import Bench, Target
from bench.support.peer import Peer
from bench.support.people import make_people
from bench.support.requests import post
from bench.support.services import CHECKOUT, Engine, Services
from chatproject import vllm_setup
from chatproject.embedded import SetupProblem
from chatproject.run_options import read_options

CONTEXT_TOKENS: Final = 1_024
WARM_UP_TOKENS: Final = 2
TO_THE_BOUND: Final = {"ignore_eos": True}
"""Both engines go on until the bound."""
VLLM_START_S: Final = 900.0
CHUNK: Final = "data: {"
"""One piece of an OpenAI stream."""
DELTA: Final = "\nevent: delta\n"
TARGETS: Final = {"throughput_ratio": Target(0.97, at_least=True), "failed": Target(0)}


@dataclass(frozen=True, slots=True)
class Bare:
    """Where the engine itself answers, and as what."""

    place: int | str
    key: str
    model: str


def main(arguments: Sequence[str] | None = None) -> int:
    bench = Bench.of_command_line(
        "engine",
        "Eight answers at once: through the product, and from the bare engine.",
        [
            ("--streams", 8, "people"),
            ("--tokens", 0, "tokens of an answer; 0: 128, quick 40"),
            ("--rounds", 0, "rounds of both sides; 0: six, quick one"),
        ],
        arguments,
    )
    bench.figures |= {"streams": bench.options.streams, "failed": 0}
    bench.say("starting PostgreSQL, Valkey and llama.cpp")
    with Services({"WORKER_GRACE_S": "1"}) as services:
        llamacpp = services.start_llamacpp(bench.options.streams, CONTEXT_TOKENS)
        _name_profiles(bench, services, llamacpp)
        services.set_up_django()
        people = make_people(bench.options.streams)
        web = services.start_web()
        llamacpp.wait()
        load = Peer.start(services, "load", "bench.support.load")
        whole = Whole(bench, services, load, web.port, people)
        whole.measure("llamacpp", Bare(llamacpp.port, llamacpp.key, "llamacpp"))
        llamacpp.stop()
        if "vllm" in services.env["ENGINE_PROFILES"]:
            services.at_end(lambda: _stop_vllm(services))
            whole.measure("vllm", Bare(_vllm_socket(services), "", "vllm"))
    ratios = [value for name, value in bench.figures.items() if name.endswith("_ratio")]
    bench.figures["throughput_ratio"] = min(ratios)
    return bench.finish(_rows(bench), TARGETS)


def _rows(bench: Bench) -> list[tuple[str, str]]:
    texts = {
        "throughput_ratio": "tokens a second through the product, to the bare engine's",
        "streams": "at once",
        "failed": "answers that were refused or broke off",
    }
    return [
        (name, texts.get(name, ""))
        for name in sorted(bench.figures, key=lambda name: name != "throughput_ratio")
    ]


def _tokens(bench: Bench) -> int:
    return int(bench.options.tokens or (40 if bench.quick else 128))


@dataclass(frozen=True, slots=True)
class Whole:
    """The stack that both engines stand behind, one after the other."""

    bench: Bench
    services: Services
    load: Peer
    port: int
    people: list[str]

    def measure(self, name: str, bare: Bare) -> None:
        bench = self.bench
        bench.say(f"{name}: starting its worker")
        worker = self.services.start_worker(name, bench.options.streams, VLLM_START_S)
        sides = Sides(self, name, bare)
        bench.say(f"{name}: warming up")
        sides.bound(WARM_UP_TOKENS)
        sides.product()
        sides.bare()
        sides.forget()
        sides.bound(_tokens(bench))
        for number in range(bench.options.rounds or (1 if bench.quick else 6)):
            bench.say(f"{name}: round {number + 1}")
            for side in (sides.product, sides.bare) if number % 2 else (sides.bare, sides.product):
                side()
        sides.note()
        worker.stop()


def _question(number: int) -> str:
    """Each person's own, the same in all rounds: by the first one both sides have warmed the
    engine's caches with it, and the time goes into writing.
    """
    return f"Count upwards from {number}, one number a line, to the end."


class Sides:
    """Both ways to the same engine, and what they took."""

    def __init__(self, whole: Whole, name: str, bare: Bare) -> None:
        self._whole, self._name, self._bare = whole, name, bare
        self._tokens = 0
        self.forget()

    def forget(self) -> None:
        self._wrote = {"product": 0, "bare": 0}
        self._took_s = {"product": 0.0, "bare": 0.0}
        self.problems: list[str] = []

    def bound(self, tokens: int) -> None:
        """How long the answers are from now on."""
        from generation.models import Model

        self._tokens = tokens
        Model.objects.update(answer_tokens=tokens)

    def product(self) -> None:
        path = "/v1/conversations/new/messages"
        self._read(
            "product",
            self._whole.port,
            [
                post(path, token, {"content": _question(number), "model": self._name})
                for number, token in enumerate(self._whole.people)
            ],
            DELTA,
        )

    def bare(self) -> None:
        """As the product's adapter asks, system prompt included."""
        from django.conf import settings

        body = {
            "model": self._bare.model,
            "stream": True,
            "stream_options": {"include_usage": True},
            "max_tokens": self._tokens,
            **TO_THE_BOUND,
        }
        system = {"role": "system", "content": settings.SYSTEM_PROMPT}
        requests = [
            post(
                "/v1/chat/completions",
                self._bare.key,
                {**body, "messages": [system, {"role": "user", "content": _question(number)}]},
            )
            for number in range(len(self._whole.people))
        ]
        self._read("bare", self._bare.place, requests, CHUNK)

    def _read(self, side: str, place: int | str, requests: list[str], mark: str) -> None:
        found = self._whole.load.ask("once", place=place, requests=requests, mark=mark)
        self._wrote[side] += sum(answer["tokens"] for answer in found["answers"])
        self._took_s[side] += found["wall_s"]
        self.problems += [one["problem"] for one in found["answers"] if one["problem"]]

    def note(self) -> None:
        bench, name = self._whole.bench, self._name
        pace = {side: self._wrote[side] / self._took_s[side] for side in self._wrote}
        if self.problems:
            bench.say(f"an answer failed: {self.problems[0]}")
        bench.figures["failed"] += len(self.problems)
        bench.figures |= {
            f"{name}_ratio": round(pace["product"] / pace["bare"], 3),
            f"{name}_product_tokens_per_s": round(pace["product"], 1),
            f"{name}_bare_tokens_per_s": round(pace["bare"], 1),
            f"{name}_tokens": self._wrote["product"],
        }


# --- the engines ----------------------------------------------------------------------------------


def _name_profiles(bench: Bench, services: Services, llamacpp: Engine) -> None:
    slots = bench.options.streams
    common: dict[str, Any] = {
        "context_tokens": CONTEXT_TOKENS,
        "slots": slots,
        "options": {"extra_body": TO_THE_BOUND},
    }
    profiles: dict[str, dict[str, Any]] = {
        "llamacpp": {
            "kind": "llamacpp",
            "model": "llamacpp",
            "url": f"http://127.0.0.1:{llamacpp.port}",
            "api_key": llamacpp.key,
            **common,
        }
    }
    if not bench.quick:
        if problem := _vllm_problem():
            bench.say(f"without vLLM: {problem}")
        else:
            served = _serve(services, slots)
            profiles["vllm"] = {"kind": "vllm", "model": "vllm", **common, **served}
            profiles["vllm"]["options"] = {**served["options"], **common["options"]}
    services.env["ENGINE_PROFILES"] = json.dumps(profiles)


def _vllm_problem() -> str:
    """Why vLLM cannot be measured here; empty where it can."""
    try:
        vllm_setup.environment_directory()
    except SetupProblem as problem:
        return str(problem)
    return "" if vllm_setup.is_converted() else "the demo model is not converted for it yet"


def _serve(services: Services, slots: int) -> dict[str, Any]:
    """As `make run ENGINE=vllm ENGINE_DEVICE=cpu` starts it; here it is the worker that does."""
    own = {"ENGINE": "vllm", "ENGINE_DEVICE": "cpu", "HEARTH_VAR": str(services.directory / "var")}
    options = read_options({**own, "SLOTS": str(slots)})
    return vllm_setup.profile(options, vllm_setup.environment_directory())


def _vllm_socket(services: Services) -> str:
    return str(vllm_setup.socket_path(services.directory / "var"))


def _stop_vllm(services: Services) -> None:
    stop = [sys.executable, "-m", "generation.engines.vllm_server", "--profile", "vllm", "--stop"]
    subprocess.run(stop, cwd=CHECKOUT, env={**os.environ, **services.env}, check=False)


if __name__ == "__main__":
    sys.exit(main())
