"""The examples of docs/api.md, run as they stand: in order, by a shell, against the stack.

Below each command stands what must come back: `# <status> [text/event-stream] [NAME=field …]`.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.api_schema import calls, check_answer
from tests.phone import FrameParser
from tests.stack import ROOT, Stack

PAGE = (ROOT / "docs" / "api.md").read_text()
EXAMPLES = re.findall(r"```sh\n(.*?)\n# (\d{3})([^\n]*)\n```", PAGE, re.DOTALL)
SHORT = {"conversation": "c", "message": "m", "run": "g", "token": "t"}
_SESSION = """
from django.test import Client
from accounts.models import User
client = Client()
client.force_login(User.objects.get(email="ada@example.org"))
print(client.cookies["sessionid"].value)
"""


def test_every_block_says_what_comes_back() -> None:
    assert len(EXAMPLES) == PAGE.count("```sh\n") > 15


def test_every_call_is_on_the_page() -> None:
    missing = []
    for call in calls():
        method, path = call.split()
        short = re.sub(r"\{(\w+)\}", lambda hole: f"{{{SHORT[hole[1]]}}}", path)
        if not re.search(rf"`{method} {re.escape(short)}[`?]", PAGE):
            missing.append(f"{method} {short}")
    assert not missing


def test_they_work(stack: Stack, tmp_path: Path) -> None:
    assert shutil.which("curl"), "apt-get install curl"
    # After the body, what curl knows and the commands do not show.
    (tmp_path / ".curlrc").write_text(
        r'write-out = "\n%{http_code} %{content_type} %{method} %{url}"' + "\n"
    )
    env = {
        "HOME": str(tmp_path),
        "PATH": "/usr/bin:/bin:/usr/local/bin",
        "URL": stack.webs[0].url,
        "TOKEN": stack.people["ada"].token,
        "SESSION": stack.manage("shell", "--verbosity", "0", "-c", _SESSION).strip(),
        "CSRF": "c" * 32,
    }
    for command, status, more in EXAMPLES:
        env |= _run(command, int(status), more.split(), env)


def _run(command: str, status: int, more: list[str], env: dict[str, str]) -> dict[str, str]:
    """The variables that the example's answer fills."""
    done = subprocess.run(
        ["/bin/sh", "-euc", command], env=env, capture_output=True, check=False, timeout=60
    )
    assert done.returncode == 0, f"{command}\n{done.stderr.decode()}"
    body, _, told = done.stdout.rpartition(b"\n")
    got, kind, method, url = told.decode().split(" ")
    assert int(got) == status, f"{command}\n{got} {body.decode()[:500]}"
    address = urlsplit(url)
    check_answer(method, f"{address.path}?{address.query}", status, kind, body)
    if more[:1] == ["text/event-stream"]:
        assert kind == more.pop(0)
        assert [frame.name for frame in FrameParser().feed(body)][-1] == "done"
    names = dict(pair.split("=") for pair in more)
    answer = json.loads(body) if names else {}
    return {name: answer[field] for name, field in names.items()}


@pytest.mark.parametrize("wrong", ["curl -s $URL/v1/models\n# 200", "exit 3\n# 200"])
def test_an_example_that_is_wrong_fails(stack: Stack, wrong: str) -> None:
    command, _, status = wrong.partition("\n# ")
    env = {"URL": stack.webs[0].url, "PATH": "/usr/bin:/bin:/usr/local/bin"}
    with pytest.raises((AssertionError, ValueError)):
        _run(command, int(status), [], env)
