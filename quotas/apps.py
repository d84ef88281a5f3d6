from __future__ import annotations

from django.apps import AppConfig
from django.db.models.signals import post_migrate


class QuotasConfig(AppConfig):
    name = "quotas"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from quotas.seeds import seed  # models are there only now

        post_migrate.connect(seed, sender=self)
