"""`make run ENGINE=vllm`: one command brings it up, and one Ctrl-C leaves nothing of it."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from chatproject import vllm_setup
from chatproject.embedded.ports import free_port
from generation.engines.keeper_lock import Place, at_work, holder
from tests.browser.test_make_run import MakeRun
from tests.phone import Phone, stored_reply
from tests.stack import PASSWORD, ROOT
from tests.vllm.conftest import START_S

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(3600)]


@pytest.fixture
def var(demo_model_path: Path, converted: Path) -> Iterator[Path]:
    """An empty data directory, which PostgreSQL's user may pass."""
    with tempfile.TemporaryDirectory(prefix="hearth-vllm-run-") as directory:
        Path(directory).chmod(0o711)
        inside = Path(directory) / "var"
        inside.mkdir()
        (inside / "models").symlink_to(demo_model_path.parent)
        yield inside


@pytest.fixture
def run(var: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MakeRun]:
    monkeypatch.setenv("ENGINE", "vllm")
    monkeypatch.setenv("ENGINE_DEVICE", "cpu")
    run = MakeRun(var, free_port())
    yield run
    if run.process.poll() is None:
        run.interrupt()


def wait_said(run: MakeRun, text: str) -> None:
    deadline_s = time.monotonic() + START_S
    while text not in run.output:
        assert run.process.poll() is None, run.output
        assert time.monotonic() < deadline_s, run.output
        time.sleep(0.2)


# The administrator has a one-time password, which opens nothing but the choice of another.
_MAKE_PERSON = f"""
from accounts import tokens
from accounts.models import User

user = User.objects.create_user("eve@example.org", {PASSWORD!r}, name="Eve")
print(tokens.create(user, "vllm")[1])
"""


def make_token(var: Path) -> str:
    command = ["-m", "chatproject.run", "--manage", "shell", "--verbosity", "0", "-c", _MAKE_PERSON]
    environment = {**os.environ, "HEARTH_VAR": str(var)}
    done = subprocess.run(
        [sys.executable, *command], cwd=ROOT, env=environment, stdout=subprocess.PIPE, check=True
    )
    return next(word for word in done.stdout.decode().split() if word.startswith("t_"))


async def test_one_command_and_one_ctrl_c(run: MakeRun, var: Path) -> None:
    place = Place(vllm_setup.socket_path(var))
    wait_said(run, "Ready:")
    wait_said(run, "ready after")
    keeper = holder(place)
    assert keeper is not None
    assert len(at_work(place)) >= 2
    headers = {"Authorization": f"Bearer {make_token(var)}"}
    seen = await Phone(headers).send(run.url, "Say good morning.")
    assert seen.done is not None, (seen.status, seen.body)
    assert seen.done["finish"] in ("stop", "length")
    assert seen.text == stored_reply(run.url, headers, seen.start)
    run.interrupt()
    assert not run.left_behind()
    assert at_work(place) == []
    assert holder(place) is None
    assert "killed" not in run.output, run.output
