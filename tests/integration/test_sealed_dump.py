"""What a dump of the content database tells, and what is left of it when a key is destroyed."""

from __future__ import annotations

import base64
import json
import os
import subprocess
from collections.abc import Iterator
from itertools import pairwise
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest
import zstandard
from psycopg import sql

from accounts.ids import parse_id
from chatproject.embedded import postgres as postgres_server
from tests.phone import call, get_run, get_thread, post_message, stored_reply, text_of
from tests.stack import Person, Stack, directive, wait_for

BIN = postgres_server._installed() / "bin"
TITLE, ASKED, ANSWERED = "Zwetschgenknödel", "Rhabarberbarbara", "Quittengeleeglas"
PLANTED = (TITLE, ASKED, ANSWERED)


def postgres(program: str, *arguments: str, given: bytes = b"") -> bytes:
    done = subprocess.run(
        [str(BIN / program), *arguments],
        input=given,
        capture_output=True,
        check=False,
        env={"PATH": os.environ["PATH"]},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def dump(url: str) -> bytes:
    return postgres("pg_dump", "--no-owner", url)


def traces(word: str) -> set[bytes]:
    """How a word may stand in a dump: as text or bytea, plain, encoded or packed, at any offset."""
    raw = {word.encode(), word.encode("utf-16-le"), json.dumps(word)[1:-1].encode()}
    found = set(raw)
    for one in raw:
        for lead in range(3):  # where in base64's groups of three the word begins
            text = base64.b64encode(b"\0" * lead + one + b"\0" * 3)
            found.add(text[4 if lead else 0 : len(text) // 4 * 4 - 8])
        # Packed on its own the word stands nearly whole in the packed bytes.
        found.add(zstandard.compress(one)[10:-2])
    found |= {one.hex().encode() for one in found}
    # Half a word is a leak, too.
    found |= {one[: len(one) // 2] for one in found if len(one) >= 16}
    return {one for one in found if len(one) >= 8}


def leaks(dumped: bytes, words: tuple[str, ...] = PLANTED) -> set[str]:
    return {word for word in words if any(trace in dumped for trace in traces(word))}


def plant(url: str, person: Person) -> dict[str, str]:
    """A conversation with the planted words, made through the real API; its run has ended."""
    made: dict[str, str] = post_message(url, person.headers, f"{ASKED} {directive(text=ANSWERED)}")
    wait_for(lambda: get_run(url, person.headers, made["id"])["finish"], "the end of the run")
    assert stored_reply(url, person.headers, made) == ANSWERED
    path = f"{url}/v1/conversations/{made['conversation']}"
    assert call("PATCH", path, person.headers, {"title": TITLE}).status_code == 200
    return made


@pytest.fixture(scope="module")
def ada(stack: Stack) -> Person:
    return stack.people["ada"]


@pytest.fixture(scope="module")
def run(stack: Stack, ada: Person) -> dict[str, str]:
    """A conversation through the real API that holds the planted words."""
    url = stack.webs[0].url
    return plant(url, ada)


@pytest.fixture
def elsewhere(stack: Stack) -> Iterator[str]:
    """A third database, for a copy."""
    name = urlsplit(stack.env["DATABASE_URL"]).path.lstrip("/") + "_copy"
    url = urlunsplit(urlsplit(stack.env["DATABASE_URL"])._replace(path=f"/{name}"))
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as admin:
        admin.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        yield url
        admin.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


_READ = """
from uuid import UUID
from conversations.models import Conversation, Message
from conversations.sealed import readable_parts, readable_title
rows = Message.objects.filter(conversation_id=UUID({conversation!r})).order_by("id")
print([readable_parts(row.owner_id, row.pk, row.content) for row in rows])
row = Conversation.objects.get(pk=UUID({conversation!r}))
print(repr(readable_title(row.owner_id, row.pk, row.title)))
"""


def read_copy(stack: Stack, url: str, conversation: str) -> str:
    """What a fresh process reads in the copy, with the present keys database and master keys."""
    there = Stack(stack.directory, {**stack.env, "DATABASE_URL": url})
    code = _READ.format(conversation=str(parse_id("c", conversation)))
    return _shell(there, code)


# Somebody of their own: the stack's people are needed by other tests.
_MAKE_EVE = """
import json
from accounts import tokens
from accounts.models import User
user = User.objects.create_user("eve-sealed@example.org", name="Eve")
print(json.dumps({"email": user.email, "token": tokens.create(user, "tests")[1]}))
"""


def _shell(stack: Stack, code: str) -> str:
    return stack.manage("shell", "--verbosity", "0", "-c", code)


def test_a_dump_shows_no_planted_word_and_the_finder_finds_what_is_plain(
    stack: Stack, ada: Person, run: dict[str, str]
) -> None:
    assert leaks(dump(stack.env["DATABASE_URL"])) == set()
    # The premise: stored as it was before, the same words are found; sealed again, they are not.
    plain = [{"type": "text", "text": f"Was ist {ASKED}?"}]
    with psycopg.connect(stack.env["DATABASE_URL"]) as connection:
        connection.execute(
            "UPDATE conversations_message SET content = %s WHERE id = %s",
            [b"\0" + json.dumps(plain).encode(), parse_id("m", run["user_msg"])],
        )
    assert leaks(dump(stack.env["DATABASE_URL"])) == {ASKED}
    assert "content: 1" in stack.manage("seal_texts")
    assert leaks(dump(stack.env["DATABASE_URL"])) == set()
    thread = get_thread(stack.webs[0].url, ada.headers, run["conversation"])
    assert text_of(thread["messages"][0]) == f"Was ist {ASKED}?"


@pytest.mark.parametrize("packed", [base64.b64encode, zstandard.compress])
def test_the_finder_finds_packed_words(packed: object) -> None:
    for word in PLANTED:
        for text in (word, f'[{{"type":"text","text":"{word}"}}]'):
            hidden = packed(text.encode())  # type: ignore[operator]
            assert leaks(b"\\x" + hidden.hex().encode(), (word,)) or leaks(hidden, (word,))


def test_no_word_and_no_key_in_the_logs(stack: Stack, run: dict[str, str]) -> None:
    logs = b"".join(path.read_bytes() for path in stack.directory.glob("*.log"))
    assert run["id"].encode() in logs  # the logs of this very run
    assert leaks(logs) == set()
    for entry in stack.env["MASTER_KEYS"].split(","):
        assert entry.partition(":")[2].encode() not in logs


def test_the_keys_database_holds_no_word_and_no_bare_key(stack: Stack, run: dict[str, str]) -> None:
    dumped = dump(stack.env["KEYS_DATABASE_URL"])
    assert b"keystore_datakey" in dumped
    assert leaks(dumped) == set()
    assert b"keystore_datakey" not in dump(stack.env["DATABASE_URL"])


def test_destroying_a_key_makes_a_copy_restored_elsewhere_unreadable(
    stack: Stack, elsewhere: str
) -> None:
    """The back-up was made while the key lived; it is read with the keys of today."""
    eve, url = Person(**json.loads(_shell(stack, _MAKE_EVE))), stack.webs[0].url
    made = plant(url, eve)
    back_up = dump(stack.env["DATABASE_URL"])
    postgres("psql", "-q", "-v", "ON_ERROR_STOP=1", elsewhere, given=back_up)

    before = read_copy(stack, elsewhere, made["conversation"])
    assert all(word in before for word in PLANTED)

    stack.manage("destroy_user_key", eve.email, "--yes")
    after = read_copy(stack, elsewhere, made["conversation"])
    assert after.splitlines() == ["[None, None]", "''"]


def test_hexadecimal_pairs_are_not_taken_for_words() -> None:
    """A finder that finds everything would be as useless as one that finds nothing."""
    noise = "".join(first + second for first, second in pairwise("0123456789abcdef" * 200))
    assert leaks(noise.encode()) == set()
