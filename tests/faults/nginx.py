"""nginx in front of a web process: a plain `proxy_pass`, and nothing that helps streams."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from chatproject.embedded import processes
from chatproject.embedded.ports import free_port
from tests.stack import wait_for

_CONFIGURATION = """
daemon off;
worker_processes 1;
pid {home}/nginx.pid;
error_log {home}/error.log warn;
{user}
events {{ }}
http {{
  access_log off;
  client_body_temp_path {home}/body;
  proxy_temp_path {home}/proxy;
  fastcgi_temp_path {home}/fastcgi;
  uwsgi_temp_path {home}/uwsgi;
  scgi_temp_path {home}/scgi;
  gzip on;
  gzip_types *;
  {timeouts}
  server {{
    listen 127.0.0.1:{port};
    location / {{
      proxy_pass {upstream};
      proxy_http_version 1.1;
      proxy_set_header Host $host;
    }}
  }}
}}
"""


@contextmanager
def in_front_of(upstream: str, timeout_s: int | None) -> Iterator[str]:
    """Its address. `timeout_s`: of reading, sending and keeping alive; None: nginx' own 60 s."""
    program = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
    if program is None:
        if os.environ.get("CI") == "true":
            pytest.fail("No nginx: streams behind it cannot go untested in CI")
        pytest.skip("NOT TESTED: streams behind nginx (apt-get install nginx-light)")
    with tempfile.TemporaryDirectory(prefix="hearth-nginx-") as directory:
        home, port = Path(directory), free_port()
        names = ("proxy_read_timeout", "proxy_send_timeout", "send_timeout", "keepalive_timeout")
        timeouts = "".join(f"{name} {timeout_s}s; " for name in names) if timeout_s else ""
        text = _CONFIGURATION.format(
            home=home,
            port=port,
            upstream=upstream,
            timeouts=timeouts,
            user="user root;" if os.geteuid() == 0 else "",
        )
        (home / "nginx.conf").write_text(text)
        command = [program, "-p", str(home), "-c", str(home / "nginx.conf"), "-e", "stderr"]
        with (home / "said").open("wb") as said:
            process = processes.spawn(command, cwd=home, env=dict(os.environ), stdout=said)
        try:
            url = f"http://127.0.0.1:{port}"
            wait_for(lambda: _answers(url, process), "nginx to answer")
            yield url
        finally:
            process.terminate()
            process.wait(30)


def _answers(url: str, process: subprocess.Popen[bytes]) -> bool:
    assert process.poll() is None, "nginx has ended"
    try:
        return httpx.get(f"{url}/healthz").status_code == 200
    except httpx.TransportError:
        return False
