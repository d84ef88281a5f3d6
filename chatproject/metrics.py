"""`/metrics` for Prometheus: request figures (django-prometheus) and those of all queues.

Read by who has METRICS_TOKEN, or by staff in a browser. A scrape takes no longer than SCRAPE_S,
whatever is away, and keeps no database connection.
"""

from __future__ import annotations

import hmac
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass
from typing import Final

from django.conf import settings
from django.db import connections
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe
from prometheus_client import (
    CONTENT_TYPE_LATEST,
    REGISTRY,
    CollectorRegistry,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import Metric
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector
from redis.exceptions import RedisError

from accounts.api_errors import AWAY
from generation import queue_figures
from generation.queue_figures import Stand
from generation.queue_metrics import families, seconds, up
from generation.scheduler import observer

# When a counter was made is a series more for each, and told to nobody.
disable_created_metrics()  # type: ignore[no-untyped-call]  # of prometheus_client

PATH: Final = "/metrics"
SCRAPE_S: Final = 2.0


class Metrics:
    """Middleware that answers who brings a token, before anybody looks at sessions or at the Host
    header: a scraper asks by address."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        if request.path == PATH and "Authorization" in request.headers:
            return _by_token(request)
        return self._get_response(request)


@require_safe
@never_cache
def _by_token(request: HttpRequest) -> HttpResponse:
    token = settings.METRICS_TOKEN
    if token and hmac.compare_digest(
        request.headers["Authorization"].encode(), f"Bearer {token}".encode()
    ):
        return _page()
    return _refusal()


@require_safe
@never_cache
def metrics(request: HttpRequest) -> HttpResponse:
    """For who brings no token: staff, signed in."""
    user = request.user
    return _page() if user.is_active and user.is_staff else _refusal()


def _refusal() -> HttpResponse:
    """Without a token in the environment there is nothing here."""
    if not settings.METRICS_TOKEN:
        return HttpResponse("Not found.\n", status=404, content_type="text/plain")
    challenge = {"WWW-Authenticate": 'Bearer realm="metrics"'}
    text = "Send METRICS_TOKEN as a bearer token.\n"
    return HttpResponse(text, status=401, content_type="text/plain", headers=challenge)


def _page() -> HttpResponse:
    text = generate_latest(_requests()) + generate_latest(_of(_figures()))
    return HttpResponse(text, content_type=CONTENT_TYPE_LATEST)


def _requests() -> CollectorRegistry:
    """What this process has counted; or all of them, where they share PROMETHEUS_MULTIPROC_DIR."""
    if "PROMETHEUS_MULTIPROC_DIR" not in os.environ:
        return REGISTRY
    registry = CollectorRegistry()
    MultiProcessCollector(registry)  # type: ignore[no-untyped-call]  # of prometheus_client
    return registry


class _Told(Collector):
    def __init__(self, told: list[Metric]) -> None:
        self._told = told

    def collect(self) -> Iterable[Metric]:
        return self._told


def _of(told: Iterable[Metric]) -> CollectorRegistry:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Told(list(told)))
    return registry


# --- the figures, in time -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Reading:
    """`stand` None: PostgreSQL is away, or nobody answered in time."""

    stand: Stand | None
    has_redis: bool


class Reader:
    """Reads in a thread of its own, once at a time: who scrapes waits for it, and not for ever. A
    second scrape while the first one hangs waits for the same reading."""

    def __init__(self, read: Callable[[], Reading]) -> None:
        self._read = read
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="metrics")
        self._lock = threading.Lock()
        self._running: Future[Reading] | None = None

    def read(self, timeout_s: float) -> Reading:
        with self._lock:
            if self._running is None or self._running.done():
                self._running = self._threads.submit(self._read)
            running = self._running
        try:
            return running.result(timeout_s)
        except FutureTimeout:
            return Reading(None, has_redis=False)


def read() -> Reading:
    """Whatever is away. Gives its connection back."""
    try:
        stand = queue_figures.read()
        return Reading(stand, stand.has_redis)
    except AWAY:
        return Reading(None, has_redis=_has_redis())
    finally:
        connections.close_all()


def _has_redis() -> bool:
    try:
        observer().ping()
    except (RedisError, OSError):
        return False
    return True


_reader: Final = Reader(read)


def _figures() -> Iterator[Metric]:
    begun_s = time.monotonic()
    reading = _reader.read(SCRAPE_S)
    words = "1 while it answers in time"
    yield up("database", words, is_up=reading.stand is not None)
    yield up("redis", words, is_up=reading.has_redis)
    if reading.stand is not None:
        yield from families(reading.stand)
    yield seconds("scrape_duration", "Reading these figures", time.monotonic() - begun_s)
