"""What may enter a queue's keys and entries, and how replies are read. Pure."""

from __future__ import annotations

from typing import Any

import pytest

from generation.scheduler import Limits, QueueEntry, Room, calls
from generation.scheduler.entries import pool_keys

RUN = "g_" + "0" * 31 + "1"
USER = "u_" + "a" * 32


def test_the_keys_of_a_pool_share_one_hash_tag() -> None:
    keys = pool_keys("small-model")
    assert keys.jobs == "{pool:small-model}:jobs"
    everything = keys.all()
    assert len(set(everything)) == len(everything) == 12
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
        QueueEntry(RUN, USER, 512, plan="pro", weight=8, is_paid=True, cap=3, conversation="c_1"),
        QueueEntry(RUN, USER, kind="chore"),
        QueueEntry(RUN, USER, is_pinned=True),
    ],
)
def test_an_entry_survives_packing(entry: QueueEntry) -> None:
    assert QueueEntry.unpack(entry.run.encode(), entry.pack().encode()) == entry


@pytest.mark.parametrize(
    "wrong",
    [
        {"run": "g_1"},
        {"run": RUN + "\n"},
        {"user": "u|x"},
        {"user": ""},
        {"cost_tokens": -1},
        {"cost_tokens": 2**53},
        {"plan": "a|b"},
        {"plan": "~"},
        {"plan": "x" * 65},
        {"weight": 0},
        {"weight": 1_000_001},
        {"cap": 0},
        {"cap": 1_000_001},
        {"kind": "title"},
        {"conversation": "c|1"},
    ],
)
def test_an_entry_that_could_be_read_as_another_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        QueueEntry(**{"run": RUN, "user": USER, **wrong})


@pytest.mark.parametrize("name", ["", "a|b", "a b", "x" * 101])
def test_a_replica_that_could_be_read_as_another_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="not a replica"):
        calls.pop("p", name, (0, 1, 0), "")


@pytest.mark.parametrize(
    ("replies", "room"),
    [
        ([0, 0, None], Room.NOT_BUILT),
        ([0, 99, b"99"], Room.NOT_BUILT),
        ([1, 0, None], Room.FREE),
        ([1, 77, b"2"], Room.FREE),
        ([1, 78, b"3"], Room.USER_FULL),  # twelve places are left of 90, and a quarter is theirs
        ([1, 77, b"3"], Room.USER_FULL),
        ([1, 89, None], Room.FREE),
        ([1, 89, b"1"], Room.USER_FULL),
        ([1, 90, None], Room.POOL_FULL),
        ([1, 90, b"20"], Room.USER_FULL),
    ],
)
def test_room_is_asked_of_the_queue_and_of_the_user(
    replies: list[bytes | int | None], room: Room
) -> None:
    assert Limits(per_pool=100, per_user=20).room([*replies, 1]) is room


def test_a_rebuild_goes_in_parts_and_marks_last() -> None:
    entries = [QueueEntry(f"g_{n:032x}", USER) for n in range(calls.REBUILD_ENTRIES * 2 + 1)]
    made = list(calls.rebuild("p", iter(entries), "token", ""))
    assert [call.args[1] for call in made] == ["first", "more", "more", "more", "last"]
    assert [text for call in made for text in call.args[3::3]] == [entry.run for entry in entries]
    assert len(made[1].args) == 3 + 3 * calls.REBUILD_ENTRIES
