from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("generation", "0004_fallback_and_moves"),
    ]

    operations = [
        migrations.AddField(
            model_name="replica",
            name="last_healthy",
            field=models.DateTimeField(blank=True, null=True),
        ),
    ]
