from __future__ import annotations

from django.apps import AppConfig


class ChatProjectConfig(AppConfig):
    name = "chatproject"
    verbose_name = "Hearth"
