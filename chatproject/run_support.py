"""What `make run` needs beside the processes: private files, and knowing when the page answers."""

from __future__ import annotations

import http.client
import os
import secrets
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from accounts.key_ring import new_entry
from chatproject.console import Console
from chatproject.run_options import Options

READY_LOOK_S = 0.3
READY_PATIENCE_S = 1.0
STILL_WAITING_S = 30.0

# What a program needs that is no part of the product. The rest of our environment holds passwords,
# and the engine reads text of strangers, the download bytes of strangers.
PLAIN_NAMES = frozenset(
    [
        "PATH",
        "HOME",
        "USER",
        "LANG",
        "LANGUAGE",
        "TZ",
        "TMPDIR",
        "LD_LIBRARY_PATH",
        "PYTHONUNBUFFERED",
        "HEARTH_VAR",
    ]
)
PLAIN_PREFIXES = ("LC_", "OMP_", "GOMP_", "GGML_", "CUDA_", "NVIDIA_")
NETWORK_NAMES = frozenset(
    [
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "ALL_PROXY",
        "NO_PROXY",
        "SSL_CERT_FILE",
        "SSL_CERT_DIR",
        "REQUESTS_CA_BUNDLE",
        "CURL_CA_BUNDLE",
        "XDG_CONFIG_HOME",
        "XDG_CONFIG_DIRS",
        "XDG_CACHE_HOME",
        "NETRC",
    ]
)


def plain_environment(environment: Mapping[str, str], *, network: bool = False) -> dict[str, str]:
    """Without what is secret. `network`: with proxies, certificates and pip's own settings."""

    def passes(name: str) -> bool:
        if name in PLAIN_NAMES or name.startswith(PLAIN_PREFIXES):
            return True
        return network and (name.upper() in NETWORK_NAMES or name.startswith("PIP_"))

    return {name: value for name, value in environment.items() if passes(name)}


def write_private(path: Path, text: str) -> None:
    """Replace the file in one step; only its owner can ever read it."""
    fresh = path.with_name(f"{path.name}.new")
    fresh.unlink(missing_ok=True)
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
    fresh.rename(path)


def secret_key(var: Path) -> str:
    """Django's key for this directory: made once, so that a restart signs nobody out."""
    path = var / "secret-key"
    if not path.exists():
        write_private(path, secrets.token_urlsafe(50))
    return path.read_text().strip()


def master_keys(var: Path) -> str:
    """The ring that wraps this directory's data keys. Without it no text here opens again."""
    path = var / "master-keys"
    if not path.exists():
        write_private(path, new_entry("k1"))
    return path.read_text().strip()


def allowed_host(environment: Mapping[str, str]) -> str:
    """A name that Django lets pass: with ALLOWED_HOSTS set, `localhost` need not be one."""
    names = [name.strip() for name in environment.get("ALLOWED_HOSTS", "").split(",")]
    plain = [name.removeprefix(".") for name in names if name and "*" not in name]
    return plain[0] if plain else "localhost"


def answers(options: Options, port: int) -> bool:
    """Whether the web process on that port is ready; returns within READY_PATIENCE_S."""
    wildcards = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104
    host = wildcards.get(options.host, options.host)
    connection = http.client.HTTPConnection(host, port, timeout=READY_PATIENCE_S)
    try:
        connection.request("GET", "/readyz", headers={"Host": allowed_host(os.environ)})
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


class Readiness:
    """Asks the first web process until it is ready, then calls `announce` and `proceed` once each.

    `proceed` does not wait for ever: STILL_WAITING_S later it is called without an answer too. It
    runs in the supervisor's loop, so each look is short.
    """

    def __init__(
        self,
        options: Options,
        console: Console,
        announce: Callable[[], None],
        proceed: Callable[[], None],
    ) -> None:
        self._answers = partial(answers, options, options.port)
        self._console = console
        self._announce = announce
        self._proceed = proceed
        self._proceeded = False
        self._done = False
        self._next_look_s = 0.0
        self._next_word_s = time.monotonic() + STILL_WAITING_S

    def look(self) -> None:
        now_s = time.monotonic()
        if self._done or now_s < self._next_look_s:
            return
        self._next_look_s = now_s + READY_LOOK_S
        if self._answers():
            self._done = True
            self._announce()
            self._proceed_once()
        elif now_s > self._next_word_s:
            self._next_word_s = now_s + STILL_WAITING_S
            self._console.say("Still waiting for the web process to be ready; its lines say why")
            self._proceed_once()

    def _proceed_once(self) -> None:
        if not self._proceeded:
            self._proceeded = True
            self._proceed()
