"""A GPU worker: one Celery process that drives one replica.

pool      Celery's pool: a thread per slot, whose tasks can be ended from outside
step      the bootstep that starts and ends everything below with the worker
thread    the one thread with the one event loop
service   what lives in that loop: the context, the slots at work, the side tasks
replica   engine health, and the heartbeat of the replica's row
move      brings the replica to the pool where an administrator wants it
queues    the Celery queues that tickets come from
sweep     publishes tickets where some were lost
control   stops told directly to this worker
tasks     the Celery task that a ticket is
"""

from __future__ import annotations
