"""The command line of a bench, its progress, its table and its JSON.

Progress and the table go to standard error, so that `--json -` can be piped.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

Number = float | int


@dataclass(frozen=True, slots=True)
class Target:
    """What a figure should be: at most, or at least, this."""

    bound: Number
    at_least: bool = False

    def is_met(self, value: Number) -> bool:
        return value >= self.bound if self.at_least else value <= self.bound

    def __str__(self) -> str:
        return f"{'≥' if self.at_least else '≤'} {self.bound:g}"


@dataclass(slots=True)
class Bench:
    """One run of one bench: what was asked, and what was found so far."""

    name: str
    quick: bool
    json_path: Path | None
    options: argparse.Namespace
    figures: dict[str, Number] = field(default_factory=dict)
    _began_s: float = field(default_factory=time.monotonic)

    @classmethod
    def of_command_line(
        cls,
        name: str,
        description: str,
        more: Sequence[tuple[str, int, str]] = (),
        arguments: Sequence[str] | None = None,
    ) -> Self:
        """`more`: whole numbers that may be set, as (option, default, help)."""
        parser = argparse.ArgumentParser(prog=f"bench/{name}", description=description)
        parser.add_argument("--quick", action="store_true", help="fewer rounds, under 50 s")
        parser.add_argument(
            "--json", type=Path, metavar="FILE", help="write the figures; - for stdout"
        )
        for option, default, text in more:
            parser.add_argument(option, type=int, default=default, help=f"{text} ({default})")
        given = parser.parse_args(arguments)
        # By default it would end us at once, and leave behind what has a session of its own.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
        return cls(name, given.quick, given.json, given)

    def say(self, text: str) -> None:
        """Progress, with the seconds since the start."""
        print(f"[{time.monotonic() - self._began_s:5.1f} s] {text}", file=sys.stderr, flush=True)

    def finish(self, rows: Sequence[tuple[str, str]], targets: Mapping[str, Target]) -> int:
        """The table and the JSON; the exit status: 1 where a target is missed."""
        self._print_table(rows, targets)
        if self.json_path is not None:
            text = json.dumps(self.figures, indent=1) + "\n"
            if str(self.json_path) == "-":
                sys.stdout.write(text)
            else:
                self.json_path.write_text(text)
        return int(any(not one.is_met(self.figures[name]) for name, one in targets.items()))

    def _print_table(self, rows: Sequence[tuple[str, str]], targets: Mapping[str, Target]) -> None:
        """`rows`: (figure, what it says)."""
        lines = [("figure", "value", "target", "")]
        for name, text in rows:
            target = targets.get(name)
            verdict = (
                "" if target is None else "met" if target.is_met(self.figures[name]) else "MISSED"
            )
            goal = f"{target} {verdict}" if target else ""
            lines.append((name, f"{self.figures[name]:,.2f}", goal, text))
        widths = [max(len(line[column]) for line in lines) for column in range(3)]
        for name, value, goal, text in lines:
            line = f"{name:<{widths[0]}}  {value:>{widths[1]}}  {goal:<{widths[2]}}  {text}"
            print(line.rstrip(), file=sys.stderr)
