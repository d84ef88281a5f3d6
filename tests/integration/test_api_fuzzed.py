"""Schemathesis: every call with what its description allows and forbids, also one after another.

It reads `/v1/schema` as any client would, and asks a real web process with an API token. A server
error, an answer that the schema does not describe, a bad request that is accepted, or a credential
that does not count fails here. The same requests are made each time.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.stack import Stack

ST = Path(sys.executable).with_name("st")
CASES_PER_CALL = 2
OPTIONS = (
    *("--generation-deterministic", "--no-shrink", "--no-color", "--workers", "1"),
    *("--max-examples", str(CASES_PER_CALL), "--suppress-health-check", "all"),
    *("--request-timeout", "60", "--warnings", "off", "--continue-on-failure"),
    # What a schema allows may still not fit: a cursor of another list, a key used before, a tag of
    # another revision. Everything else is checked.
    *("--checks", "all", "--exclude-checks", "positive_data_acceptance"),
    *("--exclude-path", "/v1/schema"),
)


@pytest.mark.timeout(500)
def test_every_call_holds_to_its_description(stack: Stack, tmp_path: Path) -> None:
    assert ST.exists() or shutil.which("st"), "pip install -r requirements-dev.txt"
    web, before = stack.webs[0], _runs(stack)
    seen = len(web.log.read_bytes())
    token = stack.people["bob"].headers["Authorization"]
    command = [str(ST), "run", f"{web.url}/v1/schema", "-H", f"Authorization: {token}", *OPTIONS]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=450
    )
    assert done.returncode == 0, f"{done.stdout[-12_000:]}{done.stderr[-2_000:]}"
    assert b"Traceback" not in web.log.read_bytes()[seen:], web.tail()
    made = _runs(stack) - before
    assert 0 < made < 300, f"{made} runs: what begins one was hardly reached, or too often"


def _runs(stack: Stack) -> int:
    return int(stack.rows("SELECT count(*) FROM generation_run")[0][0])
