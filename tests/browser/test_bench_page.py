"""`bench/page` runs, from its own services to its figures; what they say proves nothing here, where
the machine is busy with tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.page import Task, longest, main_thread_tasks
from tests.benches import run_bench
from tests.browser.conftest import chromium_path


@pytest.mark.timeout(300)
@pytest.mark.skipif(chromium_path() is None, reason="NOT TESTED: bench/page (no Chromium)")
def test_page_gives_every_figure(tmp_path: Path) -> None:
    found, told = run_bench("page", tmp_path, "--lines", "40", "--messages", "60")
    assert found["code_lines"] == 40
    # As it is served: in the source the modules are more than twice as much.
    assert 20 < found["js_kib"] <= 120
    assert found["js_kib"] < found["page_kib"]
    for name in ("first_paint_ms", "first_token_ms", "open_500_ms", "main_ms_per_1000_tokens"):
        assert found[name] > 0
    assert found["longest_task_ms"] > 0
    assert found["nodes"] > 60
    assert "≤ 120" in told


def test_tasks_are_those_of_the_busiest_pages_main_thread() -> None:
    def thread(pid: int, tid: int, name: str) -> dict[str, object]:
        return {"name": "thread_name", "ph": "M", "pid": pid, "tid": tid, "args": {"name": name}}

    def task(pid: int, tid: int, us: int) -> dict[str, object]:
        name = "ThreadControllerImpl::RunTask"
        return {"name": name, "ph": "X", "pid": pid, "tid": tid, "dur": us, "tdur": us // 2}

    events = [
        thread(1, 1, "CrBrowserMain"),
        thread(2, 1, "CrRendererMain"),
        thread(3, 1, "CrRendererMain"),
        thread(3, 2, "Compositor"),
        task(1, 1, 900_000),
        task(2, 1, 4_000),
        task(3, 1, 30_000),
        task(3, 1, 2_000),
        task(3, 2, 800_000),
    ]
    found = main_thread_tasks({"traceEvents": events})
    assert found == [Task(30.0, 15.0), Task(2.0, 1.0)]
    assert longest(found) == (30.0, 15.0)
