"""What a simulated peak was like for each plan, as text. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from generation.simulation.scenarios import Scenario
from generation.simulation.world import Tally, World

HEADS = (
    "order",
    "plan",
    "sends",
    "p50 s",
    "p95 s",
    "p99 s",
    "smaller",
    "shorter",
    "refused",
    "left",
)


def table(worlds: Mapping[str, World]) -> str:
    """A Markdown table: for each order and plan the seconds to the first token, and the shares of
    sends that another model answered, that were cut short, refused, or left before their turn."""
    lines = [_line(HEADS), _line(["---"] * len(HEADS))]
    for order, world in worlds.items():
        lines += [_line(row) for row in _rows(order, world)]
    use = ", ".join(f"{order} {world.use:.0%}" for order, world in worlds.items())
    return "\n".join([*lines, "", f"Slots in use: {use}.", ""])


def _rows(order: str, world: World) -> list[list[str]]:
    tallies = dict(world.tallies)
    if world.script.sends:
        tallies["(script)"] = world.script
    return [[order, plan, *_figures(tally)] for plan, tally in tallies.items()]


def _figures(tally: Tally) -> list[str]:
    accepted = max(1, tally.sends - tally.refused)
    return [
        f"{tally.sends:,}",
        *(_seconds(tally.ttft_ms, percent) for percent in (50, 95, 99)),
        *(f"{count / accepted:.0%}" for count in (tally.smaller, tally.shorter)),
        *(f"{count / max(1, tally.sends):.0%}" for count in (tally.refused, tally.left)),
    ]


def _seconds(waits_ms: Sequence[float], percent: int) -> str:
    return f"{percentile_ms(waits_ms, percent) / 1_000:.1f}" if waits_ms else "none"


def percentile_ms(values: Sequence[float], percent: int) -> float:
    """By nearest rank; raises ValueError where there are none."""
    if not values:
        raise ValueError("no values")
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def charts(scenario: Scenario, worlds: Mapping[str, World]) -> str:
    """A Mermaid bar chart of the 95th percentile, for each order and plan."""
    bars = [
        (f"{order} {plan}", _bar(tally))
        for order, world in worlds.items()
        for plan, tally in world.tallies.items()
    ]
    lines = [
        "",
        "```mermaid",
        "xychart-beta",
        f'    title "{scenario.name}: seconds to the first token, 95 of 100"',
        "    x-axis [" + ", ".join(f'"{name}"' for name, _ in bars) + "]",
        '    y-axis "seconds"',
        "    bar [" + ", ".join(height for _, height in bars) + "]",
        "```",
        "",
    ]
    return "\n".join(lines)


def _bar(tally: Tally) -> str:
    return f"{percentile_ms(tally.ttft_ms, 95) / 1_000:.1f}" if tally.ttft_ms else "0"
