from __future__ import annotations

import django.utils.timezone
from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name="Destruction",
            fields=[
                ("owner_id", models.UUIDField(editable=False, primary_key=True, serialize=False)),
                ("asked", models.DateTimeField(default=django.utils.timezone.now, editable=False)),
            ],
            options={
                "default_permissions": (),
            },
        ),
        migrations.CreateModel(
            name="DataKey",
            fields=[
                ("owner_id", models.UUIDField(editable=False, primary_key=True, serialize=False)),
                ("wrapped", models.BinaryField(max_length=60, null=True)),
                ("master_key_id", models.CharField(blank=True, editable=False, max_length=32)),
                (
                    "created",
                    models.DateTimeField(default=django.utils.timezone.now, editable=False),
                ),
                ("destroyed_at", models.DateTimeField(editable=False, null=True)),
            ],
            options={
                "default_permissions": (),
                "indexes": [
                    models.Index(fields=["master_key_id", "owner_id"], name="data_key_by_master")
                ],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(
                                ("destroyed_at__isnull", True),
                                ("wrapped__isnull", False),
                                models.Q(("master_key_id", ""), _negated=True),
                            ),
                            models.Q(
                                ("destroyed_at__isnull", False),
                                ("master_key_id", ""),
                                ("wrapped__isnull", True),
                            ),
                            _connector="OR",
                        ),
                        name="data_key_whole_or_destroyed",
                    )
                ],
            },
        ),
    ]
