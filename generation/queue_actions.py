"""What an administrator can do to queues: pause, drain, stop, move, weigh.

Each verb changes rows alone, by a guarded update: False means that they were not as the caller had
seen them, and nothing was done. It belongs into a transaction with its audit entry; what it returns
beside tells Redis and the workers, and comes after the commit. Where Redis is away then, the sweep
says the same again within seconds.
"""

from __future__ import annotations

from collections.abc import Callable

from generation import stopping
from generation.catalogue import Choice
from generation.fallback import follow_move, move_row
from generation.models import Pool, Replica, Run
from generation.regions import Residence
from generation.scheduler import scheduler_sync
from quotas.models import Plan

Tell = Callable[[], object]


def pause(pool: Pool, *, is_paused: bool) -> Tell | None:
    """Begin no run there, or begin them again; what is at work goes on. None: it is so already."""
    other = Pool.objects.filter(slug=pool.slug).exclude(is_paused=is_paused)
    if other.update(is_paused=is_paused) != 1:
        return None

    def tell() -> None:
        # As PostgreSQL has it by then: another may have resumed what this one has paused.
        now = Pool.objects.filter(slug=pool.slug).values_list("is_paused", flat=True).first()
        if now is not None:
            scheduler_sync().configure(pool.slug, paused=now)

    return tell


def drain(replica: Replica, *, is_draining: bool) -> bool:
    """Have it begin no run, or again; its worker looks every two seconds. False: it is so."""
    other = Replica.objects.filter(name=replica.name).exclude(is_draining=is_draining)
    return other.update(is_draining=is_draining) == 1


def stop(run: Run) -> Tell | None:
    """End a live run as its owner's stop does; None: it has ended, or was asked before."""
    return (lambda: stopping.stop_run(run)) if stopping.record_stop(run) else None


def pools_for(run: Run) -> list[Pool]:
    """Where a queued run may be moved: the other pools of the model that is to answer it, in the
    region that its owner's organisation must not leave, if there is one."""
    others = Pool.objects.select_related("model").filter(model=run.model_used)
    organisation = run.owner.organisation
    residence = Residence(organisation.residency if organisation else "")
    return residence.sort(others.exclude(slug=run.pool_id).order_by("slug"))


def move(run: Run, pool: Pool) -> Tell | None:
    """Put a queued run into another pool's queue, at its end; None: it waits no more, or not
    there, or may not be in that region any more. `pool` is one of `pools_for`."""
    left = run.pool_id
    if not move_row(run, Choice(pool.model, (pool,))):
        return None
    return lambda: follow_move(run, left, "by an administrator")


def weigh(plan: Plan, weight: int) -> Tell | None:
    """Give a plan another weight, for the runs of it that wait too; None: it has been changed since
    `plan` was read, or is so already."""
    same = Plan.objects.filter(slug=plan.slug, weight=plan.weight).exclude(weight=weight)
    if same.update(weight=weight) != 1:
        return None

    def tell() -> None:
        pools = list(Pool.objects.values_list("slug", flat=True))
        now = Plan.objects.filter(slug=plan.slug).values_list("weight", flat=True).first()
        if now is not None:
            scheduler_sync().weigh(pools, plan.slug, now)

    return tell
