"""Stands in for `vllm serve` where only processes and signals matter: three of them, as there.

    pretend_vllm.py serve MODEL --uds PATH …

An API server with a core and the core's worker. The core ends by its own handler of SIGTERM; the
worker, as vLLM's, ends only when its parent ends it. Their pids go to `pids.json` beside the
socket. MODEL `broken` ends at once; `deaf` ignores SIGTERM.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

ROLE = "PRETEND_ROLE"


def main() -> None:
    role = os.environ.get(ROLE, "server")
    if role == "worker":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(600)
    elif role == "core":
        _core()
    else:
        _serve()


def _spawn(role: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, *sys.argv], env={**os.environ, ROLE: role})


def _core() -> None:
    worker = _spawn("worker")

    def end(*_: object) -> None:
        worker.kill()
        worker.wait()
        os._exit(0)

    signal.signal(signal.SIGTERM, end)
    Path(os.environ["CORE_FILE"]).write_text(json.dumps([os.getpid(), worker.pid]))
    time.sleep(600)


def _serve() -> None:
    model, path = sys.argv[2], Path(sys.argv[sys.argv.index("--uds") + 1])
    if model == "broken":
        sys.exit(7)
    core_file = path.with_name("core.json")
    core_file.unlink(missing_ok=True)
    os.environ["CORE_FILE"] = str(core_file)
    core = _spawn("core")

    def end(*_: object) -> None:
        core.terminate()
        core.wait()
        os._exit(0)

    signal.signal(signal.SIGTERM, signal.SIG_IGN if model == "deaf" else end)
    while not core_file.exists() or not core_file.read_text():
        time.sleep(0.01)
    pids = [os.getpid(), *json.loads(core_file.read_text())]
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(path))
    server.listen()
    fresh = path.with_name("pids.new")
    fresh.write_text(json.dumps(pids))
    fresh.replace(path.with_name("pids.json"))
    while True:
        connection, _ = server.accept()
        connection.recv(4096)
        connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
        connection.close()


if __name__ == "__main__":
    main()
