"""What everything around the engine costs an answer: time to its first token, and CPU.

Many people talk at once, each in a conversation of their own: a send, an answer of 400 tokens read
to its end over SSE, the next send. The engine is the simulated one, which writes its first token
at a known moment; what comes later than that is ours. The product runs as in production (one web
process, one GPU worker, PostgreSQL that syncs to disk, Valkey); CPU is read from /proc for each of
them while all answers are under way. The simulated engine lives in the worker: what it uses by
itself for as many answers is measured afterwards, in a process of its own, and taken off.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from bench.support.cli import Bench, Target
from bench.support.load import HUNG_S
from bench.support.numbers import CpuMeter, percentile
from bench.support.peer import Peer
from bench.support.people import make_people
from bench.support.services import Services

POOL: Final = "sim"
ANSWER_TOKENS: Final = 400
"""What `cpu_ms_per_answer` is for, whatever --tokens says."""
TTFT_MS: Final = 200
SAID: Final = "Tell me more."
WARM_UP: Final = 8
WARM_UP_S: Final = 3.0
ENGINE_S: Final = 5.0
RAMP_S: Final = 3.0
"""Over how long all people begin."""
TARGETS: Final = {
    "ttft_added_p50_ms": Target(25),
    "ttft_added_p95_ms": Target(60),
    "cpu_ms_per_answer": Target(100),
    "gap_p99_ms": Target(1_000),
    "tokens_per_s": Target(20, at_least=True),
    "failed": Target(0),
}
ROWS: Final = (
    ("ttft_added_p50_ms", "from the send to the first token, less the engine's own 200 ms"),
    ("ttft_added_p95_ms", ""),
    ("cpu_ms_per_answer", "CPU of it all for 400 tokens"),
    ("web_ms", "the web process"),
    ("worker_ms", "the GPU worker, without the simulated engine"),
    ("postgres_ms", "PostgreSQL"),
    ("valkey_ms", "Valkey"),
    ("engine_ms", "the simulated engine by itself, not counted"),
    ("gap_p99_ms", "longest silence within an answer, the 99th of 100 answers"),
    ("tokens_per_s", "of the slowest answer"),
    ("streams", "at once"),
    ("sends", "timed"),
    ("failed", "answers that were refused, broke off or fell silent"),
    ("cores", "used while it was measured"),
    ("load_cores", "used by the load generator, not counted"),
)


def main(arguments: Sequence[str] | None = None) -> int:
    bench = Bench.of_command_line(
        "overhead",
        "Many people talk at once to a simulated engine.",
        [
            ("--streams", 50, "people"),
            ("--tokens", ANSWER_TOKENS, "tokens of an answer"),
            ("--pace", 30, "tokens a second of the engine"),
            ("--answers", 0, "how many answers' time is measured; 0: four, quick one"),
        ],
        arguments,
    )
    options = bench.options
    bench.say("starting PostgreSQL, Valkey")
    env = {"ENGINE_PROFILES": json.dumps({POOL: _profile(options)}), "WORKER_GRACE_S": "1"}
    with Services(env, durable=True) as services:
        services.set_up_django()
        tokens = make_people(options.streams)
        bench.say("starting a web process and a GPU worker")
        web, worker = services.start_web_and_worker(POOL, options.streams + 8)
        pids = {
            "web": web.pid,
            "worker": worker.pid,
            "postgres": services.postgres_pid,
            "valkey": services.valkey_pid,
        }
        load = Peer.start(services, "load", "bench.support.load")
        _warm_up(bench, load, web.port, tokens)
        used_s, answers = _measure(bench, load, web.port, tokens, pids)
        worker.stop()
        engine = Peer.start(services, "engine", "bench.support.engine_alone")
        _note_cpu(bench, used_s, answers, _engine_s_per_token(bench, engine))
    return bench.finish(ROWS, TARGETS)


def _profile(options: Any) -> dict[str, object]:
    script = {"tokens": options.tokens, "tokens_per_s": options.pace, "ttft_s": TTFT_MS / 1000}
    return {
        "kind": "simulated",
        "slots": options.streams + 8,
        "context_tokens": 32_768,
        "options": {"directives": True, **script},
    }


def _warm_up(bench: Bench, load: Peer, port: int, tokens: Sequence[str]) -> None:
    """Code, connections and threads that the first answers bring along are no answer's."""
    bench.say("warming up")
    content = "Be quick. " + '[[sim {"tokens": 5, "ttft_s": 0}]]'
    load.ask("chat", port=port, tokens=tokens[:WARM_UP], content=content, over_s=0.5)
    time.sleep(WARM_UP_S)
    load.ask("hush")


def _measure(
    bench: Bench, load: Peer, port: int, tokens: Sequence[str], pids: Mapping[str, int]
) -> tuple[Mapping[str, float], float]:
    """CPU seconds by process, and for how many answers of ANSWER_TOKENS they were."""
    options = bench.options
    answer_s = TTFT_MS / 1000 + options.tokens / options.pace
    bench.say(f"{len(tokens)} people begin to talk")
    first = [_first(options, answer_s, user) for user in range(len(tokens))]
    load.ask("chat", port=port, tokens=tokens, content=SAID, over_s=RAMP_S, first=first)
    time.sleep(RAMP_S + 0.5)
    # A whole number of answers: as many sends and ends as in any other such time.
    window_s = answer_s * (options.answers or (1 if bench.quick else 4))
    bench.say(f"measuring {window_s:.0f} s")
    meter, before = CpuMeter(pids), load.ask("seen")
    time.sleep(window_s)
    used_s, after = meter.lap(), load.ask("seen")
    while (now := load.ask("seen"))["waits_since_s"] <= after["at_s"] >= now["at_s"] - HUNG_S:
        time.sleep(0.2)  # until the last ones have begun to answer too, or have failed
    answers = load.ask("hush")["answers"]
    _note_times(bench, answers, before["at_s"], after["at_s"])
    wall_s = after["at_s"] - before["at_s"]
    bench.figures["cores"] = round(sum(used_s.values()) / wall_s, 2)
    bench.figures["load_cores"] = round((after["cpu_s"] - before["cpu_s"]) / wall_s, 2)
    return used_s, (after["words"] - before["words"]) / ANSWER_TOKENS


def _first(options: Any, answer_s: float, user: int) -> str:
    """What a person says first: answers of such lengths that their ends, and with them all later
    sends, are as far apart from each other as if everybody had been talking for long."""
    share = user / options.streams
    took_s = RAMP_S + (answer_s - RAMP_S) * share - TTFT_MS / 1000
    return f'{SAID} [[sim {{"tokens": {max(1, round(took_s * options.pace))}}}]]'


def _engine_s_per_token(bench: Bench, engine: Peer) -> float:
    """CPU seconds of the simulated engine alone, with as many answers side by side."""
    bench.say("measuring the engine alone")
    streams = bench.options.streams
    found = engine.ask("run", profile=_profile(bench.options), streams=streams, seconds=ENGINE_S)
    return float(found["cpu_s"] / found["tokens"])


def _note_cpu(
    bench: Bench, used_s: Mapping[str, float], answers: float, engine_s_per_token: float
) -> None:
    engine_ms = engine_s_per_token * ANSWER_TOKENS * 1000
    parts_ms = {name: value * 1000 / answers for name, value in used_s.items()}
    parts_ms["worker"] -= engine_ms
    for name, value in parts_ms.items():
        bench.figures[f"{name}_ms"] = round(value, 1)
    bench.figures["engine_ms"] = round(engine_ms, 1)
    bench.figures["cpu_ms_per_answer"] = round(sum(parts_ms.values()), 1)


def _note_times(
    bench: Bench, answers: Sequence[Mapping[str, Any]], from_s: float, to_s: float
) -> None:
    timed = [one for one in answers if from_s <= one["sent_s"] <= to_s and one["first_s"]]
    going = [one for one in answers if one["first_s"] and (one["open"] or one["last_s"] >= from_s)]
    ended = [one for one in going if one["tokens"]]
    added = [(one["first_s"] - one["sent_s"]) * 1000 - TTFT_MS for one in timed]
    gaps = [one["longest_gap_s"] * 1000 for one in going]
    pace = [one["words"] / (one["last_s"] - one["first_s"]) for one in ended]
    problems = [one["problem"] for one in answers if one["problem"]]
    if problems:
        bench.say(f"an answer failed: {problems[0]}")
    bench.figures |= {
        "ttft_added_p50_ms": round(percentile(added, 50), 1),
        "ttft_added_p95_ms": round(percentile(added, 95), 1),
        "gap_p99_ms": round(percentile(gaps, 99)),
        "tokens_per_s": round(min(pace), 1),
        "streams": bench.options.streams,
        "sends": len(timed),
        "failed": len(problems),
    }


if __name__ == "__main__":
    sys.exit(main())
