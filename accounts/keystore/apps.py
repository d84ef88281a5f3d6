from __future__ import annotations

from django.apps import AppConfig


class KeystoreConfig(AppConfig):
    name = "accounts.keystore"
    label = "keystore"
    default_auto_field = "django.db.models.BigAutoField"
