"""Fixtures for every kind of test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.core.cache import cache

from tests.stack import Stack


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


@pytest.fixture
def plain_static(settings: Any) -> None:
    """Pages can be rendered without a manifest of collected files."""
    backend = "django.contrib.staticfiles.storage.StaticFilesStorage"
    settings.STORAGES = {**settings.STORAGES, "staticfiles": {"BACKEND": backend}}
    # WhiteNoise warns of a root that is not there, and warnings are errors.
    Path(settings.STATIC_ROOT).mkdir(parents=True, exist_ok=True)


@pytest.fixture(scope="session")
def stack() -> Iterator[Stack]:
    """Two web processes and a worker, for tests that kill none of them (others start their own)."""
    with Stack.start() as running:
        yield running
