"""What lives in a worker's loop: a real Valkey and PostgreSQL, orchestrations of our own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from datetime import datetime

import pytest
from django.conf import settings
from django.db import OperationalError
from redis import Redis

from accounts import aio
from generation import orchestrator
from generation.borrow import Borrower
from generation.engines import EngineProfile, Health
from generation.models import Model, Pool, Replica
from generation.scheduler import QueueEntry, queue_name, scheduler_async, tickets
from generation.token_log import TokenLogSync
from generation.worker import borrowing
from generation.worker import replica as replica_module
from generation.worker import service as service_module
from generation.worker.replica import announce
from generation.worker.service import Running, Service, Slot
from generation.worker_context import HANDOVER, STOP, WorkerContext, reason_of

POOL = "service-test"
REPLICA = "service-test-1"
SLOTS = 3
PATIENCE_S = 30.0

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def pool() -> Pool:
    model = Model.objects.create(slug="service-test", title="Test")
    return Pool.objects.create(slug=POOL, model=model, profile="sim")


@pytest.fixture(autouse=True)
def no_reaper(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reaper has tests of its own; here it would fill and empty queues behind our back."""

    async def nothing() -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(service_module, "reap_forever", nothing)


@pytest.fixture
def redis() -> Iterator[Redis]:
    client = Redis.from_url(settings.REDIS_URL)
    client.delete(queue_name(POOL), queue_name(POOL, REPLICA))
    yield client
    scan = client.scan_iter(f"{{pool:{POOL}}}:*")
    client.delete(queue_name(POOL), queue_name(POOL, REPLICA), *scan)
    client.close()


WorkOne = Callable[[WorkerContext], Awaitable[bool]]


async def nothing_to_do(context: WorkerContext) -> bool:
    return False


@asynccontextmanager
async def running(
    work_one: WorkOne = nothing_to_do,
    on_failure: Callable[[], None] = lambda: None,
    **options: object,
) -> AsyncIterator[Service]:
    profile = EngineProfile(name="sim", kind="simulated", options=options)
    opened = await Running.open(
        pool=POOL,
        replica=REPLICA,
        profile=profile,
        slots=SLOTS,
        work_one=work_one,
        on_failure=on_failure,
    )
    try:
        yield opened.service
    finally:
        await opened.close(grace_s=0)
        # A cancelled caller's query goes on in its thread, which the test database would not like.
        if aio._threads is not None:
            aio._threads.shutdown()
            aio._threads = None


def this_task() -> asyncio.Task[bool]:
    task = asyncio.current_task()
    assert task is not None
    return task


class Answers:
    """Orchestrations that write until they are told to end, and remember why they ended."""

    def __init__(self) -> None:
        self.begun: asyncio.Queue[str] = asyncio.Queue()
        self.ended: dict[str, str] = {}
        self.finish = asyncio.Event()

    async def work_one(self, context: WorkerContext) -> bool:
        run = f"g_{self.begun.qsize() + len(context.running):032x}"
        context.running[run] = this_task()
        self.begun.put_nowait(run)
        try:
            await self.finish.wait()
            self.ended[run] = "finished"
        except asyncio.CancelledError as cancelled:
            self.ended[run] = reason_of(cancelled)
        finally:
            del context.running[run]
        return True


def start_work(service: Service) -> asyncio.Task[bool]:
    return asyncio.create_task(service.work(Slot(service, asyncio.get_running_loop())))


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.01)


async def replica_row() -> Replica:
    return await aio.in_database(Replica.objects.get, name=REPLICA)


# --- the replica's row ----------------------------------------------------------------------------


async def test_a_replica_announces_itself_and_signs_off() -> None:
    async with running() as service:
        await asyncio.wait_for(service.watch.healthy.wait(), PATIENCE_S)
        await until(lambda: service.watch._written_s > 0)
        row = await replica_row()
        assert (row.pool_id, row.slots, row.healthy) == (POOL, SLOTS, True)
    after = await replica_row()
    assert (after.healthy, after.detail, after.started) == (False, "stopped", row.started)


async def test_a_replica_that_comes_back_takes_over_its_row() -> None:
    await aio.in_database(
        Replica.objects.create, name=REPLICA, pool_id=POOL, slots=99, detail="older"
    )
    async with running() as service:
        await until(lambda: service.watch._written_s > 0)
        assert (await replica_row()).slots == SLOTS


async def test_one_that_is_replaced_does_not_sign_the_new_one_off() -> None:
    """Also where the new one's machine has a clock that is behind."""
    async with running() as old:
        await until(lambda: old.watch._started is not None)
        row = await replica_row()
        await aio.in_database(announce, row, None)
        await old.watch.sign_off("stopped")
        after = await replica_row()
        assert (after.healthy, after.detail) == (True, row.detail)
        assert old.watch._started is not None
        assert after.started > old.watch._started
    assert (await replica_row()).healthy


async def test_it_says_when_its_engine_was_last_well() -> None:
    async with running() as service:
        await until(lambda: service.watch._written_s > 0)
        row = await replica_row()
        assert row.last_healthy is not None
        await service.watch.sign_off("stopped")
        assert (await replica_row()).last_healthy == row.last_healthy
        service.watch.leave("moving")
        await service.watch.look()
        assert (await replica_row()).last_healthy is None


async def test_the_news_is_written_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two writes wait behind a slow one, whose caller has gone; the last word is the last one's."""
    gate = threading.Event()

    def slow(row: Replica, started: datetime | None) -> datetime:
        assert gate.wait(PATIENCE_S)
        return announce(row, started)

    async with running() as service:
        await until(lambda: service.watch._written_s > 0)
        monkeypatch.setattr(replica_module, "announce", slow)
        said = [Health(ok=True, detail=f"word {number}") for number in range(3)]
        writes = [asyncio.create_task(service.watch._write(health)) for health in said]
        await asyncio.sleep(0)
        writes[0].cancel()
        await asyncio.sleep(0.05)
        gate.set()
        await asyncio.gather(*writes, return_exceptions=True)
        assert (await replica_row()).detail == "word 2"


async def test_a_sick_engine_claims_nothing_and_is_told_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(service_module, "HEALTH_WAIT_S", 0.05)
    answers = Answers()
    async with running(answers.work_one, sick=True) as service:
        assert await start_work(service) is False
        assert service.count_idle() == 0
        await until(lambda: service.watch._written_s > 0)
        assert not (await replica_row()).healthy
    assert answers.begun.empty()


async def test_a_ticket_waits_for_an_engine_that_is_just_starting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers = Answers()
    async with running(answers.work_one, sick=True) as service:
        work = start_work(service)
        await until(lambda: service.watch._written_s > 0)
        assert answers.begun.empty()

        async def well() -> Health:
            return Health(ok=True)

        monkeypatch.setattr(service.context.engine, "health", well)
        await asyncio.wait_for(answers.begun.get(), PATIENCE_S)
        answers.finish.set()
        assert await work is True


async def test_an_engine_that_never_answers_is_sick(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running() as service:
        await asyncio.wait_for(service.watch.healthy.wait(), PATIENCE_S)

        async def silent() -> Health:
            await asyncio.Event().wait()
            raise AssertionError

        monkeypatch.setattr(service.context.engine, "health", silent)
        monkeypatch.setattr("generation.worker.replica.ASK_S", 0.05)
        await service.watch.look()
        assert not service.watch.healthy.is_set()
        assert "no answer" in (await replica_row()).detail


async def test_a_row_that_cannot_be_written_stops_nothing(pool: Pool) -> None:
    async with running() as service:
        await asyncio.wait_for(service.watch.healthy.wait(), PATIENCE_S)
        service.watch._pool = "gone"
        await service.watch.sign_off("no such pool")
        assert (await replica_row()).detail != "no such pool"


# --- slots ----------------------------------------------------------------------------------------


async def test_a_ticket_is_one_claim_and_one_run() -> None:
    answers = Answers()
    async with running(answers.work_one) as service:
        work = start_work(service)
        await asyncio.wait_for(answers.begun.get(), PATIENCE_S)
        assert service.count_idle() == SLOTS - 1
        answers.finish.set()
        assert await work is True
        assert service.count_idle() == SLOTS
        assert answers.begun.empty()


async def test_what_breaks_a_run_is_raised_to_its_ticket() -> None:
    async def broken(context: WorkerContext) -> bool:
        raise RuntimeError("broken")

    async with running(broken) as service:
        with pytest.raises(RuntimeError, match="broken"):
            await start_work(service)
        assert service.count_idle() == SLOTS


async def test_a_stop_told_directly_ends_that_run_alone(redis: Redis) -> None:
    answers = Answers()
    async with running(answers.work_one) as service:
        first, second = start_work(service), start_work(service)
        stopped = await asyncio.wait_for(answers.begun.get(), PATIENCE_S)
        other = await asyncio.wait_for(answers.begun.get(), PATIENCE_S)
        assert stopped != other
        redis.publish(service.context.channel, b"what is this")
        log = TokenLogSync(redis)
        # The subscription may not stand yet; a stop is at most once, and a repeated one harmless.
        for _ in range(int(PATIENCE_S * 20)):
            await asyncio.to_thread(log.tell_stop, service.context.channel, stopped)
            done, _rest = await asyncio.wait([first, second], timeout=0.05)
            if done:
                break
        assert answers.ended == {stopped: STOP}
        assert len(service.context.running) == 1
        answers.finish.set()
        await asyncio.gather(first, second)
    assert answers.ended[other] == "finished"


async def test_celery_can_end_one_slot_from_another_thread() -> None:
    answers = Answers()
    async with running(answers.work_one) as service:
        slot = Slot(service, asyncio.get_running_loop())
        work = asyncio.create_task(service.work(slot))
        run = await asyncio.wait_for(answers.begun.get(), PATIENCE_S)
        thread = threading.Thread(target=slot.hand_over)
        thread.start()
        assert await asyncio.wait_for(work, PATIENCE_S) is True
        thread.join()
        assert answers.ended == {run: HANDOVER}


async def test_a_slot_given_up_before_its_run_began_is_handed_over() -> None:
    answers = Answers()
    async with running(answers.work_one) as service:
        await asyncio.wait_for(service.watch.healthy.wait(), PATIENCE_S)
        slot = Slot(service, asyncio.get_running_loop())
        slot.hand_over()
        await asyncio.wait_for(service.work(slot), PATIENCE_S)
    assert list(answers.ended.values()) == [HANDOVER]


# --- the end --------------------------------------------------------------------------------------


async def test_a_drain_lets_runs_finish() -> None:
    answers = Answers()
    async with running(answers.work_one) as service:
        work = start_work(service)
        await asyncio.wait_for(answers.begun.get(), PATIENCE_S)
        drain = asyncio.create_task(service.drain(PATIENCE_S))
        await until(lambda: service._closing)
        # Told to end: a ticket that still comes finds a closed door.
        assert await start_work(service) is False
        assert service.count_idle() == 0
        assert not drain.done()
        answers.finish.set()
        await drain
        assert await work is True
        assert not service.context.handover.is_set()
    assert list(answers.ended.values()) == ["finished"]


async def test_what_the_grace_time_does_not_see_end_is_handed_over() -> None:
    answers = Answers()
    async with running(answers.work_one) as service:
        works = [start_work(service) for _ in range(2)]
        for _ in works:
            await asyncio.wait_for(answers.begun.get(), PATIENCE_S)
        await service.drain(grace_s=0)
        assert service.context.handover.is_set()
        assert await asyncio.gather(*works) == [True, True]
    assert list(answers.ended.values()) == [HANDOVER, HANDOVER]


async def test_a_handover_never_cuts_a_claim_or_a_finish() -> None:
    """It comes while a run is being claimed: the claim goes through, and only the run that came
    out of it is handed over, once."""
    claiming, claimed = asyncio.Event(), asyncio.Event()
    answers = Answers()

    async def slow_claim(context: WorkerContext) -> bool:
        claiming.set()
        await claimed.wait()
        return await answers.work_one(context)

    async with running(slow_claim) as service:
        work = start_work(service)
        await asyncio.wait_for(claiming.wait(), PATIENCE_S)
        drain = asyncio.create_task(service.drain(grace_s=0))
        await until(service.context.handover.is_set)
        assert not work.done()
        claimed.set()
        await drain
        assert await work is True
    assert list(answers.ended.values()) == [HANDOVER]


async def test_a_handover_is_told_once() -> None:
    """A worker that drains is told to end at once: the run that leaves is left in peace."""
    told: list[str] = []
    begun, let_go = asyncio.Event(), asyncio.Event()

    async def slow_to_leave(context: WorkerContext) -> bool:
        context.running["g_1"] = this_task()
        begun.set()
        while not let_go.is_set():
            try:
                await let_go.wait()
            except asyncio.CancelledError as cancelled:
                told.append(reason_of(cancelled))
                del context.running["g_1"]
        return True

    async with running(slow_to_leave) as service:
        slot = Slot(service, asyncio.get_running_loop())
        work = asyncio.create_task(service.work(slot))
        await asyncio.wait_for(begun.wait(), PATIENCE_S)
        drain = asyncio.create_task(service.drain(grace_s=0))
        await until(lambda: bool(told))
        slot.hand_over()
        await asyncio.sleep(0)  # let the loop run what hand_over gave it
        await asyncio.sleep(0)
        let_go.set()
        await asyncio.gather(drain, work)
    assert told == [HANDOVER]


async def test_a_handover_that_was_not_heard_is_told_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python 3.11's `wait_for` swallows a cancellation when what it waits for has just ended."""
    monkeypatch.setattr(service_module, "REPEAT_S", 0.01)
    answers, begun = Answers(), asyncio.Event()

    async def hard_of_hearing(context: WorkerContext) -> bool:
        context.running["g_1"] = this_task()
        begun.set()
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        del context.running["g_1"]
        return await answers.work_one(context)

    async with running(hard_of_hearing) as service:
        work = start_work(service)
        await asyncio.wait_for(begun.wait(), PATIENCE_S)
        await service.drain(grace_s=0)
        assert await work is True
    assert list(answers.ended.values()) == [HANDOVER]


async def test_side_tasks_end_even_if_one_does_not_hear(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_module, "REPEAT_S", 0.01)
    heard: list[str] = []

    async def hard_of_hearing() -> None:
        for _ in range(2):
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
            heard.append("cancelled")

    async with running() as service:
        service.start_side_task("deaf", hard_of_hearing())
        await asyncio.sleep(0)  # let it begin
    assert heard == ["cancelled", "cancelled"]


async def test_a_worker_without_its_flusher_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    failed = asyncio.Event()

    async def broken(self: object) -> None:
        raise RuntimeError("no flusher")

    monkeypatch.setattr("generation.token_log.flusher.Flusher.run_forever", broken)
    async with running(on_failure=failed.set):
        await asyncio.wait_for(failed.wait(), PATIENCE_S)


# --- the sweep ------------------------------------------------------------------------------------


@pytest.fixture
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another test may have seen the broker away a moment ago."""
    monkeypatch.setattr(tickets, "_pause", tickets._Pause())


async def fill_queue(service: Service, redis: Redis, count: int) -> None:
    """`count` runs wait, and all their tickets are lost."""

    async def read() -> list[object]:
        return []

    scheduler = scheduler_async(service.context.redis)
    assert await scheduler.rebuild(POOL, read)  # type: ignore[arg-type]
    for number in range(count):
        await scheduler.enqueue(QueueEntry(f"g_{number:032x}", "u_1", 1), pool=POOL)
    await asyncio.to_thread(redis.delete, queue_name(POOL))


@pytest.mark.parametrize(("waiting", "published"), [(0, 0), (1, 1), (SLOTS, SLOTS), (9, SLOTS)])
async def test_the_sweep_publishes_what_idle_slots_could_take(
    redis: Redis, no_pause: None, monkeypatch: pytest.MonkeyPatch, waiting: int, published: int
) -> None:
    monkeypatch.setattr("generation.worker.sweep.SWEEP_S", 1_000)
    async with running() as service:
        await asyncio.wait_for(service.watch.healthy.wait(), PATIENCE_S)
        await fill_queue(service, redis, waiting)
        assert await service.sweep.look() == published
        assert redis.llen(queue_name(POOL, REPLICA)) == published


async def test_a_slot_that_is_freed_looks_at_the_queue_at_once(
    redis: Redis, no_pause: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("generation.worker.sweep.SWEEP_S", 1_000)
    answers = Answers()
    async with running(answers.work_one) as service:
        works = [start_work(service) for _ in range(SLOTS)]
        for _ in works:
            await asyncio.wait_for(answers.begun.get(), PATIENCE_S)
        await fill_queue(service, redis, 5)
        assert await service.sweep.look() == 0  # nobody is idle
        answers.finish.set()
        await asyncio.gather(*works)
        await until(lambda: redis.llen(queue_name(POOL, REPLICA)) == SLOTS)


async def test_a_full_replica_is_pressed_only_by_those_whom_a_slot_could_serve(
    redis: Redis, no_pause: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("generation.worker.sweep.SWEEP_S", 1_000)
    answers = Answers()
    async with running(answers.work_one) as service:
        works = [start_work(service) for _ in range(SLOTS)]
        for _ in works:
            await asyncio.wait_for(answers.begun.get(), PATIENCE_S)
        await fill_queue(service, redis, 2)
        for paused in (False, True):
            await service.context.scheduler.configure(POOL, paused=paused)
            await service.sweep.look()
            assert service.context.is_pressed is not paused
        answers.finish.set()
        await asyncio.gather(*works)


async def test_what_a_worker_that_ends_owes_goes_to_the_pools_others(
    redis: Redis, no_pause: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("generation.worker.sweep.SWEEP_S", 1_000)
    async with running() as service:
        await asyncio.wait_for(service.watch.healthy.wait(), PATIENCE_S)
        await fill_queue(service, redis, 3)
        context = service.context
        for number in range(2):
            # A full one: the ticket is owed.
            assert (await context.scheduler.pop(POOL, REPLICA, slots=SLOTS)).entry is not None
            await context.scheduler.pop(POOL, REPLICA, at_work=SLOTS, slots=SLOTS)
            if number:
                service.stop_claiming()
            await orchestrator._free_place(context, POOL, f"g_{number:032x}", 1)
            queues = (queue_name(POOL, REPLICA), queue_name(POOL))
            assert [redis.llen(name) for name in queues] == [1, number]


async def test_a_queue_that_cannot_be_read_is_looked_at_again(
    redis: Redis, no_pause: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running() as service:
        await asyncio.wait_for(service.watch.healthy.wait(), PATIENCE_S)
        await asyncio.to_thread(redis.set, f"{{pool:{POOL}}}:replicas", "no replicas at all")
        assert await service.sweep.look() == 0


# --- borrowing ------------------------------------------------------------------------------------


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """For how many runs other regions were asked; each time all are taken over."""
    counts: list[int] = []

    def borrow(by: Borrower, most: int) -> int:
        counts.append(most)
        return most

    monkeypatch.setattr(borrowing, "borrow", borrow)
    return counts


def another_region(region: str) -> None:
    Pool.objects.filter(slug=POOL).update(region="eu")
    other = Pool.objects.get(slug=POOL)
    Pool.objects.create(slug="other", model=other.model, profile="sim", region=region)


async def test_idle_slots_ask_other_regions_once_for_each_look(
    redis: Redis, no_pause: None, monkeypatch: pytest.MonkeyPatch, asked: list[int]
) -> None:
    monkeypatch.setattr("generation.worker.sweep.SWEEP_S", 1_000)
    monkeypatch.setattr(borrowing, "BORROW_S", 1_000)
    await aio.in_database(another_region, "us")
    async with running() as service:
        watch = borrowing.BorrowingWatch(service.context, service, service.sweep)
        await asyncio.wait_for(service.watch.healthy.wait(), PATIENCE_S)
        assert await watch.look() == 0, "the sweep has not looked yet"
        await fill_queue(service, redis, 0)
        await service.sweep.look()
        assert await watch.look() == SLOTS
        assert await watch.look() == 0, "they may not have been claimed yet"
        await fill_queue(service, redis, 1)
        await service.sweep.look()
        assert await watch.look() == 0, "its own people come first"
    assert asked == [SLOTS]


@pytest.mark.parametrize("why", ["alone", "paused"])
async def test_who_has_nobody_to_borrow_from_does_not_ask(
    redis: Redis, no_pause: None, monkeypatch: pytest.MonkeyPatch, asked: list[int], why: str
) -> None:
    monkeypatch.setattr("generation.worker.sweep.SWEEP_S", 1_000)
    monkeypatch.setattr(borrowing, "BORROW_S", 1_000)
    await aio.in_database(another_region, "eu" if why == "alone" else "us")
    if why == "paused":
        await aio.in_database(Pool.objects.filter(slug=POOL).update, is_paused=True)
    async with running() as service:
        watch = borrowing.BorrowingWatch(service.context, service, service.sweep)
        await asyncio.wait_for(service.watch.healthy.wait(), PATIENCE_S)
        await fill_queue(service, redis, 0)
        await service.sweep.look()
        assert service.sweep.spare == SLOTS
        assert await watch.look() == 0
    assert asked == []


async def test_a_database_that_is_away_stops_no_worker(
    redis: Redis, no_pause: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(pool: str) -> None:
        raise OperationalError

    monkeypatch.setattr(borrowing, "borrower", away)
    async with running() as service:
        watch = borrowing.BorrowingWatch(service.context, service, service.sweep)
        await asyncio.wait_for(service.watch.healthy.wait(), PATIENCE_S)
        service.sweep.spare = 1
        assert await watch.look() == 0
