"""Fixtures for every kind of test."""

from __future__ import annotations

import fcntl
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from django.conf import settings
from django.core.cache import cache
from hypothesis import settings as hypothesis_settings

from chatproject import demo_model
from tests.stack import ROOT, Stack

# A busy machine is no fault of the code under test.
hypothesis_settings.register_profile("tests", deadline=None)
hypothesis_settings.load_profile("tests")


@pytest.fixture(autouse=True)
def fast_passwords() -> Iterator[None]:
    """Hash passwords cheaply: their cost is Django's business, not these tests'."""
    old = settings.PASSWORD_HASHERS
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    yield
    settings.PASSWORD_HASHERS = old


@pytest.fixture
def clean_cache() -> Iterator[None]:
    """An empty cache before and after: rate limits of other tests do not count here."""
    cache.clear()
    yield
    cache.clear()


@pytest.fixture(autouse=True)
def one_rate_limit_window(monkeypatch: pytest.MonkeyPatch) -> None:
    """All tries of a test fall into one window: slow ones may else cross its edge."""
    now_s = time.time()
    monkeypatch.setattr("django_ratelimit.core.time", SimpleNamespace(time=lambda: now_s))


@pytest.fixture
def plain_static(settings: Any) -> None:
    """Pages can be rendered without a manifest of collected files."""
    backend = "django.contrib.staticfiles.storage.StaticFilesStorage"
    settings.STORAGES = {**settings.STORAGES, "staticfiles": {"BACKEND": backend}}
    # A root that is not there is warned of, and warnings are errors.
    Path(settings.STATIC_ROOT).mkdir(parents=True, exist_ok=True)


SHARED_STACKS = pytest.StashKey[list[Stack]]()


@pytest.fixture(scope="session")
def stack(request: pytest.FixtureRequest) -> Iterator[Stack]:
    """Two web processes and a worker, for tests that kill none of them (others start their own)."""
    with Stack.start() as running:
        share(request, running)
        yield running


def share(request: pytest.FixtureRequest, stack: Stack) -> None:
    """Let `settings_stay` look after a stack that several modules use."""
    request.config.stash.setdefault(SHARED_STACKS, []).append(stack)


@pytest.fixture(scope="module", autouse=True)
def settings_stay(request: pytest.FixtureRequest) -> Iterator[None]:
    """A module leaves plans, pools and models as they were: one that came after it, in one order of
    a hundred, would else fail for it. This one begins before the module's own fixtures, and so ends
    after them."""
    yield
    for stack in request.config.stash.get(SHARED_STACKS, []):
        stack.check_settings()


@pytest.fixture(scope="session")
def demo_model_path() -> Path:
    """The demo model's file, fetched as `make run` does where it is not there yet (468 MiB)."""
    models = ROOT / "var" / "models"
    models.mkdir(parents=True, exist_ok=True)
    with models.with_suffix(".lock").open("w") as lock:
        # Two test runs at once: the second would take away what the first has fetched so far.
        fcntl.flock(lock, fcntl.LOCK_EX)
        return demo_model.ensure_weights(models, say=print)
