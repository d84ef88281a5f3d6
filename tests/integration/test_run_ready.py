"""`python -m chatproject.run` until it is ready, with the simulated engine."""

from __future__ import annotations

import resource
from collections.abc import Iterator

import httpx
import pytest

from chatproject.embedded.processes import wait_until
from tests.phone import PATIENT
from tests.started import NAME, PATIENCE_S, Started


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Started]:
    """Ready; the one run of this file, since each takes seconds."""
    with Started.ready(tmp_path_factory.mktemp("run"), "--reload", redis_db=11) as run:
        yield run


def test_it_gets_ready_where_localhost_is_no_allowed_name(started: Started) -> None:
    url = f"http://127.0.0.1:{started.port}/healthz"
    answer = httpx.get(url, headers={"Host": NAME}, **PATIENT)
    assert answer.status_code == 200


def test_services_and_a_key_named_by_files_are_used_in_place_of_its_own(started: Started) -> None:
    made = {path.name for path in started.var.iterdir()}
    assert "run.json" in made
    assert not made & {"postgres", "postgres.elsewhere", "valkey", "secret-key"}


def test_what_a_first_message_does_not_need_is_started_too(started: Started) -> None:
    all_of_them = {"uvicorn", "gpu.demo", "chores", "beat"}
    assert wait_until(lambda: set(started.processes()) == all_of_them, PATIENCE_S)


def test_a_change_of_the_source_restarts_the_product_once(started: Started) -> None:
    """`make dev`: what serves is new, and ready again; the supervisor itself stays."""
    assert wait_until(lambda: len(started.processes()) == 4, PATIENCE_S)
    before = started.processes()
    changed = started.checkout / "chatproject" / "urls.py"
    # In one step: a server that reads meanwhile must not find half a file.
    new = started.var / "urls.py"
    new.write_text(changed.read_text() + "# a change\n")
    new.replace(changed)
    started.line_with("The source has changed: restarting")
    assert wait_until(
        lambda: (
            len(started.processes()) == 4
            and not set(started.processes().values()) & set(before.values())
        ),
        PATIENCE_S,
    )
    assert wait_until(lambda: ready(started), PATIENCE_S)
    assert not any("ended" in line or "killed" in line for line in started.lines)


def ready(started: Started) -> bool:
    try:
        answer = httpx.get(
            f"http://127.0.0.1:{started.port}/readyz", headers={"Host": NAME}, **PATIENT
        )
    except httpx.HTTPError:
        return False
    return answer.status_code == 200


def test_the_web_process_may_open_as_many_files_as_the_machine_lets_it(started: Started) -> None:
    """Each stream holds one."""
    assert resource.prlimit(started.process.pid, resource.RLIMIT_NOFILE)[0] == 1024
    soft, hard = resource.prlimit(started.processes()["uvicorn"], resource.RLIMIT_NOFILE)
    assert soft == hard > 1024
