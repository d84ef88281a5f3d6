"""Wiring: settings, URLs, ASGI, Celery, checks, embedded services. Nobody imports this package."""

from __future__ import annotations

from chatproject.celery import app as celery_app

__all__ = ["celery_app"]
