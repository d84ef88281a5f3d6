"""What a web process pays for an open stream, and for each event that it writes.

Real web processes write the token logs of live runs, which a flusher of the product fills: one
piece of text is one event. In turn with them a bare ASGI application under the same server writes
frames of the same size at the same pace; the share of that floor holds whatever the machine does
meanwhile. Figures are by CPU time, so that readers and writers on the same cores do not count.

    bench/gateway --quick
    bench/gateway --streams 2000 --webs 2 --minutes 1 --rate 4      many streams for a while
"""

from __future__ import annotations

import math
import statistics
import sys
import time
from collections.abc import Sequence
from typing import Final

from bench.support.cli import Bench, Target
from bench.support.numbers import pss_kib, tree_cpu_s
from bench.support.peer import Peer
from bench.support.requests import get
from bench.support.services import Services, Web

STREAMS_PER_READER: Final = 1_000
WARM_UP: Final = 16
SETTLE_S: Final = 1.0
WINDOW_S: Final = 4.0
PSS_SAMPLES: Final = 3
TARGETS: Final = {
    "events_per_core_s": Target(12_500, at_least=True),
    "share_of_floor": Target(0.6, at_least=True),
    "kib_per_stream": Target(30),
    "longest_gap_ms": Target(1_000),
    "lost_streams": Target(0),
}
ROWS: Final = (
    ("events_per_core_s", "events written by one core of a web process"),
    ("share_of_floor", "the same, as a share of a bare ASGI writer's"),
    ("floor_per_core_s", "events of the bare writer by one core"),
    ("us_per_event", "CPU of the web processes for one event"),
    ("kib_per_stream", "memory of an open stream (PSS)"),
    ("longest_gap_ms", "longest silence in any stream"),
    ("streams", ""),
    ("lost_streams", "ended before they were closed"),
    ("events_per_s", "written in all, while they were measured"),
    ("web_cores", "used by the web processes meanwhile"),
    ("reader_cores", "used by the readers"),
    ("seconds", "measured"),
)


def main(arguments: Sequence[str] | None = None) -> int:
    bench = Bench.of_command_line(
        "gateway",
        "Write many live token logs to many clients.",
        [
            ("--streams", 400, "open streams"),
            ("--rate", 20, "events a second in each of them"),
            ("--webs", 1, "web processes"),
            ("--minutes", 0, "how long the streams are watched; 0: six windows, quick two"),
            ("--granian", 0, "1: the same through granian, where it is installed, in turn"),
        ],
        arguments,
    )
    options = bench.options
    bench.say("starting PostgreSQL, Valkey")
    with Services(env={"BARE_RATE": str(options.rate)}) as services:
        services.set_up_django()
        from bench.gateway_rows import make_runs

        runs = make_runs(options.streams)
        bench.say(f"starting {options.webs} web processes")
        webs = [services.start_web() for _ in range(options.webs)]
        feeder = Peer.start(services, "feeder", "bench.support.feeder")
        feeder.ask("open", runs=[live.run for live in runs])
        requests = [get(f"/v1/runs/{live.run}/stream", live.secret) for live in runs]
        product = Side(services, webs, requests)
        _open(bench, product)
        sides = {"product": product, "floor": _floor(services, options.streams)}
        if options.granian:
            sides["granian"] = Side(services, [services.start_granian()], requests, "granian")
            sides["granian"].open(requests)
        _measure(bench, sides, feeder)
    rows = [*ROWS, *((name, "") for name in bench.figures if name not in dict(ROWS))]
    return bench.finish(rows, TARGETS)


def _floor(services: Services, streams: int) -> Side:
    web = services.start_web("bench.support.bare:application", "/")
    return Side(services, [web], [get("/stream")] * streams, "floor")


class Side:
    """Web processes, and who reads them."""

    def __init__(
        self, services: Services, webs: Sequence[Web], requests: Sequence[str], name: str = "load"
    ) -> None:
        self.webs = webs
        self.requests = requests
        count = max(1, math.ceil(len(requests) / STREAMS_PER_READER))
        self._readers = [
            Peer.start(services, f"{name}-{number}", "bench.support.load")
            for number in range(count)
        ]

    def open(self, requests: Sequence[str]) -> None:
        """One stream for each request, in turn at the web processes. Raises RuntimeError."""
        for number, reader in enumerate(self._readers):
            streams = [
                {"port": self.webs[at % len(self.webs)].port, "request": request}
                for at, request in enumerate(requests)
                if at % len(self._readers) == number
            ]
            refused = reader.ask("open", streams=streams)["refused"]
            if refused:
                raise RuntimeError(f"streams were refused: {refused}")

    def close(self) -> None:
        for reader in self._readers:
            reader.ask("close")

    def mark(self) -> dict[str, float]:
        """The readers' counts together, with the CPU that the web processes have used so far."""
        marks = [reader.ask("mark") for reader in self._readers]
        return {
            "events": sum(mark["events"] for mark in marks),
            "open": sum(mark["open"] for mark in marks),
            "longest_gap_ms": max(mark["longest_gap_ms"] for mark in marks),
            "reader_s": sum(mark["cpu_s"] for mark in marks),
            "web_s": sum(tree_cpu_s(web.pid) for web in self.webs),
            "at_s": time.monotonic(),
        }

    def pss_kib(self) -> float:
        samples = [sum(pss_kib(web.pid) for web in self.webs) for _ in range(PSS_SAMPLES)]
        return statistics.median(samples)


def _open(bench: Bench, product: Side) -> None:
    """All streams; what they take in memory is what the processes have grown by."""
    # Code, threads and connections that the first streams bring along are no stream's.
    product.open(product.requests[:WARM_UP])
    product.close()
    time.sleep(SETTLE_S)
    before_kib = product.pss_kib()
    bench.say(f"opening {len(product.requests)} streams")
    product.open(product.requests)
    bench.figures["streams"] = len(product.requests)
    bench.figures["kib_before"] = before_kib


def _measure(bench: Bench, sides: dict[str, Side], feeder: Peer) -> None:
    options = bench.options
    windows, window_s = (2 if bench.quick else 6), WINDOW_S
    if options.minutes:
        windows, window_s = 1, options.minutes * 60.0
    sums: dict[str, dict[str, float]] = {name: {} for name in sides}
    for number in range(windows):
        bench.say(f"window {number + 1} of {windows}: {window_s:g} s of each")
        for name, side in sides.items():
            if name == "floor":
                side.open(side.requests)
                _add(sums[name], _window(side, min(window_s, 2 * WINDOW_S)))
                side.close()
                continue
            feeder.ask("feed", rate=options.rate)
            _add(sums[name], _window(side, window_s))
            if number == 0 and name == "product":
                _note_memory(bench, side)
            feeder.ask("feed", rate=0)
    _note(bench, sums["product"], sums["floor"])
    if "granian" in sums:
        per_core = sums["granian"]["events"] / sums["granian"]["web_s"]
        bench.figures["granian_per_core_s"] = round(per_core)


def _note_memory(bench: Bench, product: Side) -> None:
    grown_kib = product.pss_kib() - bench.figures.pop("kib_before")
    # What the first ones left behind is used again: so many more are new.
    bench.figures["kib_per_stream"] = round(grown_kib / (bench.options.streams - WARM_UP), 1)


def _window(side: Side, window_s: float) -> dict[str, float]:
    time.sleep(SETTLE_S)
    before = side.mark()
    time.sleep(window_s)
    after = side.mark()
    found = {name: after[name] - before[name] for name in ("events", "reader_s", "web_s")}
    found["wall_s"] = after["at_s"] - before["at_s"]
    return {**found, "longest_gap_ms": after["longest_gap_ms"], "open": after["open"]}


def _add(sums: dict[str, float], found: dict[str, float]) -> None:
    for name, value in found.items():
        sums[name] = {
            "longest_gap_ms": max(sums.get(name, value), value),
            "open": min(sums.get(name, value), value),
        }.get(name, sums.get(name, 0.0) + value)


def _note(bench: Bench, product: dict[str, float], floor: dict[str, float]) -> None:
    per_core = product["events"] / product["web_s"]
    floor_per_core = floor["events"] / floor["web_s"]
    bench.figures |= {
        "events_per_core_s": round(per_core),
        "floor_per_core_s": round(floor_per_core),
        "share_of_floor": round(per_core / floor_per_core, 3),
        "us_per_event": round(1e6 / per_core, 1),
        "longest_gap_ms": round(product["longest_gap_ms"]),
        "lost_streams": bench.figures["streams"] - product["open"],
        "events_per_s": round(product["events"] / product["wall_s"]),
        "web_cores": round(product["web_s"] / product["wall_s"], 2),
        "reader_cores": round(product["reader_s"] / product["wall_s"], 2),
        "seconds": round(product["wall_s"], 1),
    }


if __name__ == "__main__":
    sys.exit(main())
