"""The Django app `accounts`."""

from __future__ import annotations

from django.apps import AppConfig


class AccountsConfig(AppConfig):
    """Users, organisations, API tokens; the ground floor, which imports no other app of ours."""

    name = "accounts"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from django.contrib.auth.signals import user_logged_in

        from accounts import addresses, audit, checks  # noqa: F401 — registers the checks

        addresses.connect()
        user_logged_in.connect(audit.note_sign_in, dispatch_uid="accounts.audit.note_sign_in")
