"""The Django app `accounts`."""

from __future__ import annotations

from django.apps import AppConfig


class AccountsConfig(AppConfig):
    """Users, organisations, API tokens; the ground floor, which imports no other app of ours."""

    name = "accounts"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from accounts import addresses, checks  # noqa: F401 — registers the checks

        addresses.connect()
