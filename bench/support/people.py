"""People who talk: users with an API token each, and models for the profiles of the environment."""

from __future__ import annotations

import os


def make_people(count: int) -> list[str]:
    """So many users; their API tokens. Django must be set up; the queues are built afterwards."""
    from django.core.management import call_command

    from accounts import tokens
    from accounts.models import User
    from generation import reaper

    with open(os.devnull, "w") as nowhere:  # noqa: PTH123 — not a file
        call_command("ensure_demo", stdout=nowhere)
    reaper.sweep()  # as a worker does when it starts
    people = [
        User.objects.create_user(f"bench-{number}@example.org", None, name="Bench")
        for number in range(count)
    ]
    return [tokens.create(user, "bench")[1] for user in people]
