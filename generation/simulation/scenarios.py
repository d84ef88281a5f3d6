"""Who asks for how much, and what is there to serve it. Pure.

At 1 : 1,000 of a large installation, all ratios kept: 23,000 tokens a second are there, of which
19,000 are the large model's, and an evening asks for 30,000, a quarter of them by people who pay.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

LARGE: Final = "large"
SMALL: Final = "small"

ANSWER_TOKENS: Final = 400
PROMPT_TOKENS: Final = 900
"""On average. A cost is both; what a GPU can write is counted in answers' tokens alone."""


@dataclass(frozen=True, slots=True)
class Group:
    """People of one plan. `share` of what is asked; each of `users` may have several chats."""

    plan: str
    share: float
    users: int
    weight: int
    is_paid: bool
    deadline_ms: int
    concurrent_runs: int
    answer_tokens: int
    context_tokens: int


GROUPS: Final = (
    Group("free", 0.75, 20_000, 1, False, 5_000, 2, 1_024, 4_096),
    Group("plus", 0.15, 3_000, 4, True, 2_500, 4, 4_096, 16_384),
    Group("pro", 0.10, 1_000, 8, True, 2_500, 8, 8_192, 32_768),
)


@dataclass(frozen=True, slots=True)
class Site:
    """One pool: alike replicas. `tokens_per_s` of one slot while no more than `slots` are taken."""

    pool: str
    replicas: int
    slots: int
    paid_burst: int
    tokens_per_s: float
    prefill_s: float

    @property
    def capacity(self) -> float:
        """Tokens a second of all its slots."""
        return self.replicas * self.slots * self.tokens_per_s


@dataclass(frozen=True, slots=True)
class Script:
    """Accounts that send from many chats at once, each again as soon as it is answered or refused
    and its time to wait is over."""

    plan: str
    accounts: int
    chats: int
    from_share: float = 0.25


@dataclass(frozen=True, slots=True)
class Scenario:
    """`load`: what is asked for at shares of its length, as a multiple of what is there; straight
    lines between. `lost`: (share from, share to, how many of the large model's replicas)."""

    name: str
    says: str
    load: Mapping[float, float]
    lost: tuple[float, float, int] | None = None
    script: Script | None = None
    groups: tuple[Group, ...] = GROUPS


SITES: Final = (
    Site(LARGE, 13, 32, 4, 45.7, 0.35),
    Site(SMALL, 1, 48, 6, 83.4, 0.1),
)
"""19,011 tokens a second of the large model, 4,003 of the small one: 23,014."""

SCENARIOS: Final = (
    Scenario(
        "evening",
        "30,000 tokens a second asked, 23,000 there, a quarter paid",
        {0.0: 0.7, 0.25: 1.304, 0.75: 1.304, 1.0: 0.7},
    ),
    Scenario(
        "launch",
        "demand goes to twice what is there within a minute",
        {0.0: 0.6, 0.3: 0.6, 0.4: 2.0, 0.7: 2.0, 1.0: 1.0},
    ),
    Scenario(
        "rush",
        "those who pay alone ask for more than there is",
        {0.0: 1.4, 1.0: 1.4},
        groups=(
            replace(GROUPS[0], share=0.2),
            replace(GROUPS[1], share=0.4),
            replace(GROUPS[2], share=0.4),
        ),
    ),
    Scenario(
        "loss",
        "a third of the large model's replicas are gone for a while",
        {0.0: 0.85, 1.0: 0.85},
        lost=(0.35, 0.65, 4),
    ),
    Scenario(
        "script",
        "ten free accounts with fifty chats each, beside a usual day",
        {0.0: 0.8, 1.0: 0.8},
        script=Script("free", 10, 50),
    ),
)


def load_at(scenario: Scenario, share: float) -> float:
    """What is asked at that share of the scenario, as a multiple of what is there."""
    marks = sorted(scenario.load.items())
    for (from_, before), (to, after) in itertools.pairwise(marks):
        if share <= to:
            return before + (after - before) * (share - from_) / (to - from_)
    return marks[-1][1]
