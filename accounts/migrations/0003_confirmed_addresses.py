"""Everybody who is there already has a confirmed address: until now none had to be confirmed."""

from __future__ import annotations

from typing import Any

from django.db import migrations

BATCH = 1000


def confirm(apps: Any, schema_editor: Any) -> None:
    users = apps.get_model("accounts", "User").objects.all()
    addresses = apps.get_model("account", "EmailAddress").objects
    rows = []
    for user_id, email in users.values_list("id", "email").iterator(BATCH):
        rows.append(
            addresses.model(user_id=user_id, email=email.lower(), primary=True, verified=True)
        )
        if len(rows) == BATCH:
            addresses.bulk_create(rows, ignore_conflicts=True)
            rows = []
    addresses.bulk_create(rows, ignore_conflicts=True)


class Migration(migrations.Migration):
    dependencies = [
        ("accounts", "0002_api_token_scopes"),
        ("account", "0009_emailaddress_unique_primary_email"),
    ]

    operations = [migrations.RunPython(confirm, migrations.RunPython.noop)]
