"""What may enter a queue's keys and entries, and how replies are read. Pure."""

from __future__ import annotations

import pytest

from generation.scheduler import Limits, QueueEntry, Room, calls
from generation.scheduler.entries import pool_keys

RUN = "g_" + "0" * 31 + "1"
USER = "u_" + "a" * 32


def test_the_keys_of_a_pool_share_one_hash_tag() -> None:
    keys = pool_keys("small-model")
    assert keys.queue == "{pool:small-model}:queue"
    everything = [getattr(keys, name) for name in keys.__slots__]
    assert len(set(everything)) == len(everything) == 6
    assert {key.split("}")[0] for key in everything} == {"{pool:small-model"}


@pytest.mark.parametrize("slug", ["", "a}b", "{a", "a b", "a:b", "a\n", "é", "x" * 101])
def test_a_pool_that_is_no_slug_is_refused(slug: str) -> None:
    with pytest.raises(ValueError, match="not a pool"):
        pool_keys(slug)


@pytest.mark.parametrize(
    "entry",
    [
        QueueEntry(RUN, USER),
        QueueEntry(RUN, USER, cost_tokens=2**53 - 1),
        QueueEntry(RUN, USER, cost_tokens=512, preferred_replica="gpu-1"),
    ],
)
def test_an_entry_survives_packing(entry: QueueEntry) -> None:
    assert QueueEntry.unpack(entry.run.encode(), entry.pack().encode()) == entry


@pytest.mark.parametrize(
    ("run", "user", "cost_tokens", "replica"),
    [
        ("g_1", USER, 0, None),
        (RUN + "\n", USER, 0, None),
        (RUN, "u|x", 0, None),
        (RUN, "", 0, None),
        (RUN, USER, -1, None),
        (RUN, USER, 2**53, None),
        (RUN, USER, 0, "a|b"),
        (RUN, USER, 0, ""),
    ],
)
def test_an_entry_that_could_be_read_as_another_is_refused(
    run: str, user: str, cost_tokens: int, replica: str | None
) -> None:
    with pytest.raises(ValueError):
        QueueEntry(run, user, cost_tokens, replica)


@pytest.mark.parametrize(
    ("replies", "room"),
    [
        ([0, 0, None], Room.NOT_BUILT),
        ([0, 99, b"99"], Room.NOT_BUILT),
        ([1, 0, None], Room.FREE),
        ([1, 9, b"2"], Room.FREE),
        ([1, 10, b"2"], Room.POOL_FULL),
        ([1, 9, b"3"], Room.USER_FULL),
        ([1, 10, b"3"], Room.USER_FULL),
    ],
)
def test_room_is_asked_of_the_queue_and_of_the_user(
    replies: list[bytes | int | None], room: Room
) -> None:
    assert Limits(per_pool=10, per_user=3).room([*replies, 1]) is room


def test_a_rebuild_goes_in_parts_and_marks_last() -> None:
    entries = [QueueEntry(f"g_{n:032x}", USER) for n in range(calls.REBUILD_ENTRIES * 2 + 1)]
    made = list(calls.rebuild("p", iter(entries), "token"))
    assert [call.args[1] for call in made] == ["first", "more", "more", "more", "last"]
    assert [text for call in made for text in call.args[2::2]] == [entry.run for entry in entries]
    assert len(made[1].args) == 2 + 2 * calls.REBUILD_ENTRIES
