"""What is refused before it is sent to Redis."""

from __future__ import annotations

import pytest

from generation.events import MAX_SEQ, Event
from generation.token_log import commands
from generation.token_log.commands import Batch
from generation.token_log.limits import MAX_BATCH_EVENTS, MAX_EVENT_BYTES

RUN = "g_" + "ab" * 16


def test_the_three_keys_of_a_run_share_one_hash_tag() -> None:
    assert commands.log_key(RUN) == b"run:{%s}" % RUN.encode()
    assert commands.meta_key(RUN) == b"run:{%s}:m" % RUN.encode()
    assert commands.watchers_key(RUN) == b"run:{%s}:w" % RUN.encode()


@pytest.mark.parametrize("run", ["", "g_1", RUN + "}", "{x}" + RUN, RUN + "\n"])
def test_no_foreign_text_gets_into_a_key(run: str) -> None:
    with pytest.raises(ValueError, match="run id"):
        commands.log_key(run)


@pytest.mark.parametrize(
    "batch",
    [
        Batch(RUN, -1, 0),
        Batch(RUN, 10**9, 0),
        Batch(RUN, 1, -1),
        Batch(RUN, 1, MAX_SEQ + 1),
        Batch(RUN, 1, 0, [Event(0, "delta", b"{}")]),
        Batch(RUN, 1, 0, [Event(2, "delta", b"{}"), Event(2, "delta", b"{}")]),
        Batch(RUN, 1, 0, [Event(2, "delta", b"{}"), Event(1, "delta", b"{}")]),
        Batch(RUN, 1, 0, [Event(1, "bogus", b"{}")]),
        Batch(RUN, 1, 0, [Event(1, "delta", b"a\nb")]),
        Batch(RUN, 1, 0, [Event(1, "delta", b"x" * (MAX_EVENT_BYTES + 1))]),
        Batch(RUN, 1, 0, [Event(n, "delta", b"x" * MAX_EVENT_BYTES) for n in (1, 2, 3)]),
        Batch(RUN, 1, 0, [Event(n + 1, "delta", b"{}") for n in range(MAX_BATCH_EVENTS + 1)]),
    ],
    ids=range(12),
)
def test_an_impossible_batch_is_refused(batch: Batch) -> None:
    with pytest.raises(ValueError, match=r"between|rise|event|bytes|line"):
        commands.append_call(batch)


@pytest.mark.parametrize("channel", ["", "x" * 201, "gatewäy"])
def test_a_bad_channel_is_refused(channel: str) -> None:
    with pytest.raises(ValueError, match="channel"):
        commands.register_call(RUN, channel)


@pytest.mark.parametrize(("after", "limit"), [(-1, 10), (MAX_SEQ + 1, 10), (0, 0), (0, 1_001)])
def test_a_bad_read_is_refused(after: int, limit: int) -> None:
    with pytest.raises(ValueError, match=r"between|entries"):
        commands.read_words(RUN, after, limit)


def test_what_redis_refused_is_told_without_the_data() -> None:
    reply = commands.parse_append(ValueError("OOM " + "x" * 10_000))
    assert reply.code is None
    assert len(reply.error) < 300
