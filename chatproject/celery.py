"""Celery delivers and supervises; the fair queue decides. See docs/decisions.md."""

from __future__ import annotations

import os

from celery import Celery
from kombu.transport import TRANSPORT_ALIASES

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "chatproject.settings")

# Under kombu's own names, not by a setting: by the name kombu decides whether to speak TLS.
_TRANSPORT = "generation.scheduler.broker:TicketTransport"
TRANSPORT_ALIASES.update(redis=_TRANSPORT, rediss=_TRANSPORT)

app = Celery("chatproject", amqp="generation.scheduler.broker:TicketAMQP")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
# By name: models cannot be imported yet. It takes part in GPU workers only.
app.steps["worker"].add("generation.worker.step:GpuStep")
