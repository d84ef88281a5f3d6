"""Celery tasks of the `chores` queue, all of them safe to run twice."""

from __future__ import annotations

from celery import shared_task

from accounts import session_rows


@shared_task(name="accounts.forget_sessions", ignore_result=True, time_limit=600)
def forget_sessions() -> int:
    """Delete sessions that have expired, and the list's rows of those that are gone."""
    return session_rows.forget()
