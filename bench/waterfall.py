"""The first moments of an answer: when each step between the send and the first token is reached.

One person asks again and again, one answer at a time; the steps are timed inside the product's own
processes (bench/support/traced.py) on the machine's one monotonic clock. Shown is the median of
each step. The engine is the simulated one, whose first token comes after a known time.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from bench.support.cli import Bench
from bench.support.peer import Peer
from bench.support.people import make_people
from bench.support.services import Services
from bench.support.traced_steps import AFTER_ENGINE, ENGINE

POOL: Final = "sim"
TTFT_MS: Final = 100
TOKENS: Final = 8
TOKENS_PER_S: Final = 100
WARM_UP: Final = 5
WIDTH: Final = 60


def main(arguments: Sequence[str] | None = None) -> int:
    bench = Bench.of_command_line(
        "waterfall",
        "When each step between a send and its first token is reached.",
        [("--answers", 0, "answers timed; 0: 60, quick 20")],
        arguments,
    )
    answers = bench.options.answers or (20 if bench.quick else 60)
    bench.say("starting PostgreSQL, Valkey")
    env = {"ENGINE_PROFILES": json.dumps({POOL: _profile()}), "WORKER_GRACE_S": "1"}
    with Services(env, durable=True) as services:
        trace = services.directory / "trace"
        services.env["TRACE_FILE"] = str(trace)
        services.set_up_django()
        token = make_people(1)
        bench.say("starting a web process and a GPU worker")
        web = services.start_web("bench.support.traced:application")
        services.start_worker(POOL, 2, app="bench.support.traced")
        load = Peer.start(services, "load", "bench.support.load")
        bench.say(f"{answers} answers, one at a time")
        load.ask("chat", port=web.port, tokens=token, content="Go on.", over_s=0)
        took_s = TTFT_MS / 1000 + TOKENS / TOKENS_PER_S + 0.1
        time.sleep((answers + WARM_UP) * took_s)
        found = load.ask("hush")["answers"][WARM_UP:]
        _note(bench, [one for one in found if one["tokens"]], _read(trace))
    _draw(bench)
    return bench.finish([("answers", "timed")], {})


def _profile() -> dict[str, object]:
    script = {"tokens": TOKENS, "tokens_per_s": TOKENS_PER_S, "ttft_s": TTFT_MS / 1000}
    return {"kind": "simulated", "slots": 2, "context_tokens": 32_768, "options": script}


def _read(trace: Path) -> list[tuple[float, str]]:
    lines = (line.split(" ", 1) for line in trace.read_text().splitlines())
    return sorted((float(at_s), step) for at_s, step in lines)


def _note(
    bench: Bench, answers: Sequence[Mapping[str, Any]], trace: Sequence[tuple[float, str]]
) -> None:
    """The median of each step, in ms since the send."""
    reached: dict[str, list[float]] = {}
    for answer in answers:
        of_answer = [
            (at, step) for at, step in trace if answer["sent_s"] <= at <= answer["first_s"]
        ]
        for step, at_s in _steps(of_answer).items():
            reached.setdefault(step, []).append((at_s - answer["sent_s"]) * 1000)
        took_ms = (answer["first_s"] - answer["sent_s"]) * 1000
        reached.setdefault("first token read", []).append(took_ms)
    bench.figures["answers"] = len(answers)
    for step, values in sorted(reached.items(), key=lambda item: statistics.median(item[1])):
        bench.figures[step] = round(statistics.median(values), 1)


def _steps(trace: Sequence[tuple[float, str]]) -> dict[str, float]:
    """When each step was first reached; those after the engine's token, after it and in order."""
    found: dict[str, float] = {}
    for at_s, step in trace:
        if step not in found and step not in AFTER_ENGINE:
            found[step] = at_s
    last_s = found.get(ENGINE, float("inf"))
    for step in AFTER_ENGINE:
        later = [at_s for at_s, name in trace if name == step and at_s >= last_s]
        if later:
            last_s = found[step] = later[0]
    return found


def _draw(bench: Bench) -> None:
    """Each step as a bar from the one before it; what goes on at once stands together."""
    steps = [(name, value) for name, value in bench.figures.items() if name != "answers"]
    whole_ms = max(value for _, value in steps)
    before_ms = 0.0
    for name, at_ms in steps:
        begin, end = (round(ms / whole_ms * WIDTH) for ms in (before_ms, at_ms))
        bar = " " * begin + "#" * max(1, end - begin)
        print(f"{at_ms:7.1f} ms  {name:<20} |{bar:<{WIDTH + 1}}|", file=sys.stderr)
        before_ms = at_ms


if __name__ == "__main__":
    sys.exit(main())
