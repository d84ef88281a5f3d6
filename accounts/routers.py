"""Which table is in which database: the users' data keys are apart from everything else."""

from __future__ import annotations

from typing import Any

KEYS = "keys"
"""The alias of the database in KEYS_DATABASE_URL."""

_KEY_TABLE = ("keystore", "datakey")


class KeysRouter:
    """Data keys live in `keys` and nothing else does."""

    def db_for_read(self, model: Any, **hints: Any) -> str | None:
        return KEYS if _is_key_table(model) else None

    def db_for_write(self, model: Any, **hints: Any) -> str | None:
        return KEYS if _is_key_table(model) else None

    def allow_relation(self, one: Any, other: Any, **hints: Any) -> bool | None:
        return False if _is_key_table(one) != _is_key_table(other) else None

    def allow_migrate(
        self, db: str, app_label: str, model_name: str | None = None, **hints: Any
    ) -> bool | None:
        if (app_label, model_name) == _KEY_TABLE:
            return db == KEYS
        return False if db == KEYS else None


def _is_key_table(model: Any) -> bool:
    return (model._meta.app_label, model._meta.model_name) == _KEY_TABLE
