"""How long it takes to open a 400-message conversation, and a list page among 100,000.

One web process, one client, one request at a time over one connection, as a page does when it
opens. Beside each answer of the product stands the bare SELECT of the same rows on a connection of
its own, taken in turn with it: the ratio says what everything around PostgreSQL costs, whatever
the machine does meanwhile.

    open_400    a conversation of 400 opened as the page opens it: its newest messages
    whole_400   all 400, in pages of a hundred, from the leaf up
    list_100k   30 conversations of 100,000: the first page, and pages from anywhere below, in turn
"""

from __future__ import annotations

import http.client
import json
import random
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import psycopg

from bench.support.cli import Bench, Target
from bench.support.numbers import cpu_s, percentile
from bench.support.services import Services, Web

OPENED: Final = 50
"""Messages that the page asks for when it opens a conversation (static/js/models/api.js)."""
PAGE: Final = 100
WARM_UP: Final = 20
LIST_PAGE: Final = 30
TARGETS: Final = {"open_400_p95_ms": Target(30), "list_100k_p95_ms": Target(30)}
ROWS: Final = (
    ("open_400_p95_ms", "the newest 50 messages of 400: what a reader waits for"),
    ("open_400_p50_ms", ""),
    ("open_400_cpu_ms", "CPU of the web process for them"),
    ("open_400_select_ratio", "median, to the bare SELECT of the same rows"),
    ("whole_400_p95_ms", "all 400, in four pages"),
    ("whole_400_p50_ms", ""),
    ("whole_400_cpu_ms", ""),
    ("whole_400_select_ratio", ""),
    ("list_100k_p95_ms", "30 conversations, from anywhere in the list"),
    ("list_100k_p50_ms", ""),
    ("list_100k_cpu_ms", ""),
    ("list_100k_select_ratio", ""),
)

SELECT_PATH: Final = """
WITH RECURSIVE path AS (
    SELECT id, parent_id, content, created, 1 AS step FROM conversations_message WHERE id = %s
    UNION ALL
    SELECT above.id, above.parent_id, above.content, above.created, path.step + 1
    FROM path JOIN conversations_message above ON above.id = path.parent_id
    WHERE path.step < %s
)
SELECT * FROM path
"""
SELECT_LIST: Final = """
SELECT id, title, active_leaf_id, last_activity, created FROM conversations_conversation
WHERE owner_id = %s AND deleted_at IS NULL AND temporary_until IS NULL
  AND (last_activity, id) < (%s, %s)
ORDER BY last_activity DESC, id DESC LIMIT %s
"""


class Client:
    """One connection to the web process; every call is timed to its last byte."""

    def __init__(self, web: Web, secret: str) -> None:
        self._headers = {"Authorization": f"Bearer {secret}"}
        self._connection = http.client.HTTPConnection("127.0.0.1", web.port, timeout=60)

    def get(self, path: str) -> bytes:
        self._connection.request("GET", path, headers=self._headers)
        answer = self._connection.getresponse()
        body = answer.read()
        if answer.status != 200:
            raise RuntimeError(f"{answer.status} for {path}: {body[:300]!r}")
        return body


def main(arguments: Sequence[str] | None = None) -> int:
    bench = Bench.of_command_line(
        "history",
        "Open a long conversation, and list among many.",
        [
            ("--messages", 400, "messages of the conversation"),
            ("--conversations", 100_000, "conversations of its owner"),
            ("--rounds", 0, "rounds; 0: 400, quick 120"),
        ],
        arguments,
    )
    rounds = bench.options.rounds or (120 if bench.quick else 400)
    bench.say("starting PostgreSQL, Valkey")
    with Services() as services:
        services.set_up_django()
        from bench.history_rows import make_rows

        bench.say(f"writing {bench.options.conversations:,} conversations")
        rows = make_rows(bench.options.messages, bench.options.conversations)
        web = services.start_web()
        client = Client(web, rows.secret)
        with psycopg.connect(services.env["DATABASE_URL"], autocommit=True) as bare:
            bench.say(f"opening {bench.options.messages} messages, {rounds} times")
            _measure_open(bench, web, client, bare, rows, rounds)
            _measure_whole(bench, web, client, bare, rows, rounds // 2)
            bench.say(f"listing among {bench.options.conversations:,}, {rounds} times")
            _measure_list(bench, web, client, bare, rows, rounds)
    return bench.finish(ROWS, TARGETS)


def _measure_open(
    bench: Bench, web: Web, client: Client, bare: Any, rows: Any, rounds: int
) -> None:
    wanted = min(OPENED, bench.options.messages)

    def product() -> None:
        seen = len(_page(client, rows.conversation, OPENED)["messages"])
        if seen != wanted:
            raise RuntimeError(f"{seen} messages were read")

    _note(bench, "open_400", *_in_turn(web, product, _select(bare, rows, wanted), rounds))


def _measure_whole(
    bench: Bench, web: Web, client: Client, bare: Any, rows: Any, rounds: int
) -> None:
    wanted = bench.options.messages

    def product() -> None:
        page = _page(client, rows.conversation, PAGE)
        seen = len(page["messages"])
        while page["before"]:
            page = _page(client, rows.conversation, PAGE, page["before"])
            seen += len(page["messages"])
        if seen != wanted:
            raise RuntimeError(f"{seen} messages were read")

    _note(bench, "whole_400", *_in_turn(web, product, _select(bare, rows, wanted), rounds))


def _select(bare: Any, rows: Any, wanted: int) -> Callable[[], None]:
    def select() -> None:
        found = bare.execute(SELECT_PATH, [rows.leaf, wanted]).fetchall()
        if len(found) != wanted:
            raise RuntimeError(f"{len(found)} rows were read")

    return select


def _page(client: Client, conversation: str, limit: int, before: str = "") -> Any:
    more = f"&before={before}" if before else ""
    return json.loads(client.get(f"/v1/conversations/{conversation}?limit={limit}{more}"))


def _measure_list(
    bench: Bench, web: Web, client: Client, bare: Any, rows: Any, rounds: int
) -> None:
    dice = random.Random(1)
    places = [rows.place(dice) for _ in range(rounds + WARM_UP)]
    turn = {"product": 0, "select": 0}

    def product() -> None:
        # Every second page is the first one, which is read far more often than any other.
        turn["product"] += 1
        more = f"&cursor={places[turn['product'] - 1].cursor}" if turn["product"] % 2 else ""
        items = json.loads(client.get(f"/v1/conversations?limit={LIST_PAGE}{more}"))["items"]
        if not items:
            raise RuntimeError("an empty page")

    def select() -> None:
        turn["select"] += 1
        place = places[turn["select"] - 1] if turn["select"] % 2 else rows.top
        bare.execute(SELECT_LIST, [rows.owner, place.at, place.id, LIST_PAGE]).fetchall()

    _note(bench, "list_100k", *_in_turn(web, product, select, rounds))


def _in_turn(
    web: Web, product: Callable[[], None], select: Callable[[], None], rounds: int
) -> tuple[list[float], list[float], float]:
    """(ms of each side, CPU ms of the web process for one call of the product)."""
    sides: tuple[list[float], list[float]] = ([], [])
    used_s = 0.0
    for number in range(WARM_UP + rounds):
        if number == WARM_UP:
            used_s = cpu_s(web.pid)
        for side, act in zip(sides, (product, select), strict=True):
            began_s = time.perf_counter()
            act()
            side.append((time.perf_counter() - began_s) * 1000)
    used_ms = (cpu_s(web.pid) - used_s) * 1000 / rounds
    return sides[0][WARM_UP:], sides[1][WARM_UP:], used_ms


def _note(
    bench: Bench, name: str, product_ms: list[float], select_ms: list[float], used_ms: float
) -> None:
    bench.figures[f"{name}_p95_ms"] = round(percentile(product_ms, 95), 2)
    bench.figures[f"{name}_p50_ms"] = round(percentile(product_ms, 50), 2)
    bench.figures[f"{name}_cpu_ms"] = round(used_ms, 2)
    ratio = percentile(product_ms, 50) / percentile(select_ms, 50)
    bench.figures[f"{name}_select_ratio"] = round(ratio, 2)


if __name__ == "__main__":
    sys.exit(main())
