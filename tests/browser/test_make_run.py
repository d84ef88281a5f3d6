"""The one long journey: `make run`, as a newcomer on this machine, with the real demo model."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest
from playwright.sync_api import Browser, Page, expect

from chatproject.embedded.ports import free_port
from tests.browser.chat_page import ChatPage
from tests.browser.conftest import SHOTS
from tests.phone import PATIENT
from tests.stack import ROOT

pytestmark = [pytest.mark.journey, pytest.mark.timeout(900)]

# What the test run has set for itself; a newcomer's shell has none of it.
OWN_VARIABLES = (
    *("DATABASE_URL", "KEYS_DATABASE_URL", "REDIS_URL", "SECRET_KEY", "MASTER_KEYS"),
    *("STATIC_ROOT", "DJANGO_SETTINGS_MODULE"),
)
READY_S = 300
ANSWER_MS = 180_000
"""How long a real model may take on a busy machine, to its first word and to its last."""
NEW_PASSWORD = "correct horse battery staple"


class MakeRun:
    """`make run` as a process, its output read as it comes."""

    def __init__(self, var: Path, port: int) -> None:
        env = {name: value for name, value in os.environ.items() if name not in OWN_VARIABLES}
        self.var = var
        self.url = f"http://127.0.0.1:{port}"
        self.lines: list[str] = []
        self.began_s = time.monotonic()
        self.process = subprocess.Popen(
            ["make", "run"],  # noqa: S607  # as a newcomer types it
            cwd=ROOT,
            env={**env, "HEARTH_VAR": str(var), "PORT": str(port)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout
        with self.process.stdout as output:
            for line in output:
                self.lines.append(line)

    @property
    def output(self) -> str:
        return "".join(self.lines)

    def wait_ready(self) -> float:
        """Seconds until the box with the address was shown."""
        while "Ready:" not in self.output:
            assert self.process.poll() is None, self.output
            assert time.monotonic() - self.began_s < READY_S, self.output
            time.sleep(0.1)
        return time.monotonic() - self.began_s

    def said(self, label: str) -> str:
        found = re.search(rf"{label}: (\S+)", self.output)
        assert found, self.output
        return found[1]

    def interrupt(self) -> int:
        """Ctrl-C in the terminal: the signal goes to everything that has not left for a session of
        its own."""
        os.killpg(self.process.pid, signal.SIGINT)
        status = self.process.wait(60)
        self._reader.join(10)
        return status

    def left_behind(self) -> list[str]:
        """Processes that still work with this run's data."""
        found = []
        for process in psutil.process_iter(["cmdline", "environ"]):
            environment = process.info["environ"] or {}
            command = " ".join(process.info["cmdline"] or [])
            if environment.get("HEARTH_VAR") == str(self.var) or str(self.var) in command:
                found.append(command)
        return found


@pytest.fixture
def var(demo_model_path: Path) -> Iterator[Path]:
    """An empty data directory, but for the model: fetching it once is enough for a test run.

    Not below pytest's own directories, which only root may pass: PostgreSQL's user must reach it.
    """
    with tempfile.TemporaryDirectory(prefix="hearth-journey-") as directory:
        Path(directory).chmod(0o711)
        inside = Path(directory) / "var"
        inside.mkdir()
        (inside / "models").symlink_to(demo_model_path.parent)
        yield inside


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 1200, "height": 800})
    yield context.new_page()
    context.close()


def sign_in(page: Page, url: str, email: str, password: str) -> None:
    page.goto(url)
    page.fill("input[name=username]", email)
    page.fill("input[name=password]", password)
    page.keyboard.press("Enter")


def choose_password(page: Page, old: str) -> None:
    expect(page.get_by_role("heading", name="Choose your own password")).to_be_visible()
    page.fill("input[name=old_password]", old)
    page.fill("input[name=new_password1]", NEW_PASSWORD)
    page.fill("input[name=new_password2]", NEW_PASSWORD)
    page.keyboard.press("Enter")
    # Anything but the form again; the way from here leads to the chat page.
    expect(page.get_by_role("heading", name="Choose your own password")).to_have_count(0)


def letters(text: str) -> str:
    """What Markdown and its rendering have in common: a list's numbers are in one of them only."""
    return re.sub(r"[\W\d_]", "", text)


def stored_reply(page: Page, url: str, conversation: str) -> str:
    cookies = {cookie["name"]: cookie["value"] for cookie in page.context.cookies()}
    answer = httpx.get(f"{url}/v1/conversations/{conversation}", cookies=cookies, **PATIENT)
    parts = answer.json()["messages"][-1]["content"]
    return "".join(part["text"] for part in parts)


def test_a_newcomer_gets_an_answer_and_finds_it_again(
    browser: Browser, page: Page, var: Path
) -> None:
    SHOTS.mkdir(exist_ok=True)
    first = MakeRun(var, free_port())
    try:
        print(f"first start: {first.wait_ready():.1f} s")  # the figures of the journey
        email, password = first.said("admin e-mail"), first.said("one-time password")
        sign_in(page, first.url, email, password)
        choose_password(page, password)

        chat = ChatPage(page, first.url).open()
        chat.send("Write three short sentences about the sea.")
        conversation = chat.conversation
        expect(page.locator(".reply:last-child .prose")).not_to_be_empty(timeout=ANSWER_MS)
        chat.open(conversation)  # a reload in mid-answer
        chat.expect_end(ANSWER_MS)
        page.screenshot(path=str(SHOTS / "make-run-answer.png"))
        reply = stored_reply(page, first.url, conversation)
        assert len(reply) > 20
        assert letters(chat.reply()) == letters(reply)
        assert not chat.faults
    finally:
        status = first.interrupt()
    # make itself ends by the signal that it was sent.
    assert status in (0, 130, -signal.SIGINT), first.output
    assert not first.left_behind()

    second = MakeRun(var, free_port())
    try:
        print(f"second start: {second.wait_ready():.1f} s")  # the figures of the journey
        assert "one-time password" not in second.output
        # The data was kept, and with it the session: nobody signs in again.
        again = ChatPage(page, second.url).open(conversation)
        expect(page.locator(".reply:last-child .prose")).not_to_be_empty()
        assert stored_reply(page, second.url, conversation) == reply
        assert not again.faults
    finally:
        second.interrupt()
    assert not second.left_behind()
