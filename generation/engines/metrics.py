"""What an engine does, read from its metrics page (Prometheus' text format). Pure.

vLLM's page has some 50 KiB of which five numbers matter here, every few seconds: a whole parser
would cost the worker's loop more than the rest of the heartbeat.
"""

from __future__ import annotations

import math
import re

from generation.engines.protocol import Load

# A label's value may hold anything in quotes, so the value of the sample is what follows the last
# brace. A timestamp may stand after it.
_SAMPLE = re.compile(
    r"^vllm:(num_requests_running|num_requests_waiting|kv_cache_usage_perc"
    r"|prefix_cache_queries|prefix_cache_hits)(?:_total)?(?:\{.*\})? +(\S+)(?: +-?\d+)?\r?$",
    re.MULTILINE,
)
COUNT_MAX = 2**53


def read_load(page: str) -> Load | None:
    """The load from vLLM's metrics, or None where the page does not tell it.

    Engines that share the page (data parallelism) are added up; the fullest cache counts.
    """
    found: dict[str, list[float]] = {}
    for name, value in _SAMPLE.findall(page):
        found.setdefault(name, []).append(_number(value))
    if "num_requests_running" not in found:
        return None
    return Load(
        running=_sum(found, "num_requests_running"),
        waiting=_sum(found, "num_requests_waiting"),
        kv_cache_share=min(1.0, max(found.get("kv_cache_usage_perc", [0.0]))),
        prefix_queried_tokens=_sum(found, "prefix_cache_queries"),
        prefix_hit_tokens=_sum(found, "prefix_cache_hits"),
    )


def _sum(found: dict[str, list[float]], name: str) -> int:
    return int(min(COUNT_MAX, sum(found.get(name, ()))))


def _number(text: str) -> float:
    """NaN, infinities, negative numbers and nonsense count as 0: a gauge before its first value."""
    try:
        value = float(text)
    except ValueError:
        return 0.0
    return value if math.isfinite(value) and value > 0 else 0.0
