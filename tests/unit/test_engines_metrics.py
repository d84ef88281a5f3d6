"""vLLM's metrics page: five numbers out of many, whatever else stands there."""

from __future__ import annotations

import pytest

from generation.engines.metrics import read_load
from generation.engines.protocol import Load

# Lines as vLLM 0.32 writes them.
PAGE = """\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="demo"} 3.0
vllm:num_requests_waiting{engine="0",model_name="demo"} 2.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="demo",reason="capacity"} 7.0
vllm:kv_cache_usage_perc{engine="0",model_name="demo"} 0.25
vllm:prefix_cache_queries_total{engine="0",model_name="demo"} 1000.0
vllm:prefix_cache_queries_created{engine="0",model_name="demo"} 1.7959819351573532e+09
vllm:prefix_cache_hits_total{engine="0",model_name="demo"} 640.0
vllm:external_prefix_cache_hits_total{engine="0",model_name="demo"} 9.0
"""


def test_the_five_numbers_are_read() -> None:
    load = read_load(PAGE)
    assert load == Load(3, 2, 0.25, 1000, 640)
    assert load.prefix_hit_share == 0.64
    assert str(load) == "3 running, 2 waiting, KV cache 25% full, prefix hits 64%"


def test_engines_behind_one_page_are_added_up_and_the_fullest_cache_counts() -> None:
    other = PAGE.replace('engine="0"', 'engine="1"').replace("} 0.25", "} 0.75")
    assert read_load(PAGE + other) == Load(6, 4, 0.75, 2000, 1280)


def test_a_page_of_another_server_tells_nothing() -> None:
    assert read_load("llamacpp:requests_processing 3\n") is None
    assert read_load("") is None


@pytest.mark.parametrize("value", ["NaN", "-1", "-Inf", "+Inf", "what"])
def test_a_number_that_is_none_counts_as_nothing(value: str) -> None:
    load = read_load(PAGE.replace("} 3.0", f"}} {value}"))
    assert load is not None
    assert load.running == 0


def test_labels_timestamps_and_line_ends_do_not_confuse_it() -> None:
    page = 'vllm:num_requests_running{model_name="a } 9.0 \\" b"} 4 1795981935\r\n'
    assert read_load(page) == Load(4, 0, 0.0, 0, 0)


def test_before_the_first_prompt_nothing_is_divided_by() -> None:
    assert Load(0, 0, 0.0, 0, 0).prefix_hit_share == 0
