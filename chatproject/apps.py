from __future__ import annotations

from django.apps import AppConfig


class ChatProjectConfig(AppConfig):
    name = "chatproject"
    verbose_name = "Hearth"

    def ready(self) -> None:
        # Registers the system checks; models must be loaded first.
        from chatproject import checks  # noqa: F401
