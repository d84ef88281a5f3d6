"""What is wrong is refused in the one shape, with the status that fits, and writes nothing."""

from __future__ import annotations

import asyncio
import errno
import json
import socket
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.phone import PATIENCE_S, PATIENT, Connection, Phone, call, post_message, stopped
from tests.stack import Stack, directive, wait_for

ERROR = {"code", "message", "param", "retry_after_s"}
SEND = "/v1/conversations/new/messages"
JSON = {"Content-Type": "application/json"}
HUNG_UP = (errno.ECONNRESET, errno.EPIPE, errno.ENOTCONN)
TABLES = (
    "generation_run",
    "generation_idempotencykey",
    "conversations_message",
    "conversations_conversation",
    "quotas_usageentry",
)


@pytest.fixture
def ask(stack: Stack) -> Iterator[Any]:
    """Ask as Ada; at the end nothing may have been written and no process may have stumbled."""
    live = "SELECT 1 FROM generation_run WHERE status IN ('queued', 'running')"
    wait_for(lambda: not stack.rows(live), "what earlier tests began to end")
    before, logs = _counts(stack), [len(web.log.read_bytes()) for web in stack.webs]
    headers = stack.people["ada"].headers

    def ask(method: str, path: str, content: bytes = b"", **extra: str) -> httpx.Response:
        given = {**headers, **JSON, **{k.replace("_", "-"): v for k, v in extra.items()}}
        return httpx.request(
            method,
            stack.webs[0].url + path,
            headers=given,
            content=content,
            **PATIENT,
        )

    yield ask
    assert _counts(stack) == before
    for web, seen in zip(stack.webs, logs, strict=True):
        assert b"Traceback" not in web.log.read_bytes()[seen:], web.tail()


def _counts(stack: Stack) -> Any:
    return [stack.rows(f"SELECT count(*) FROM {table}") for table in TABLES]  # noqa: S608


def _assert_refused(answer: httpx.Response, status: int, code: str, param: str | None) -> None:
    assert answer.status_code == status, answer.text[:300]
    assert answer.headers["content-type"] == "application/json"
    assert answer.json().keys() == {"error"}
    error = answer.json()["error"]
    assert error.keys() == ERROR
    assert (error["code"], error["param"]) == (code, param), error
    assert error["message"]
    assert "Traceback" not in answer.text


BODIES: dict[str, tuple[object, str, str | None]] = {
    "unknown field": ({"content": "x", "role": "system"}, "invalid_request", "role"),
    "no content": ({}, "invalid_request", "content"),
    "null content": ({"content": None}, "invalid_request", "content"),
    "empty content": ({"content": ""}, "invalid_request", "content"),
    "blank content": ({"content": " \n\t "}, "invalid_request", "content"),
    "no parts": ({"content": []}, "invalid_request", "content"),
    "empty part": ({"content": [{"type": "text", "text": ""}]}, "invalid_request", "content"),
    "number": ({"content": 7}, "invalid_request", "content"),
    "object": ({"content": {"type": "text", "text": "x"}}, "invalid_request", "content"),
    "part of no kind": ({"content": [{"text": "x"}]}, "invalid_request", "content"),
    "part of unknown kind": (
        {"content": [{"type": "image", "url": "x"}]},
        "invalid_request",
        "content",
    ),
    "part with more": (
        {"content": [{"type": "text", "text": "x", "y": 1}]},
        "invalid_request",
        "content",
    ),
    "part with a number": (
        {"content": [{"type": "text", "text": 5}]},
        "invalid_request",
        "content",
    ),
    "a list of texts": ({"content": ["x"]}, "invalid_request", "content"),
    "many parts": (
        {"content": [{"type": "text", "text": "x"}] * 33},
        "invalid_request",
        "content",
    ),
    "too long": ({"content": "x" * (128 * 1024 + 1)}, "invalid_request", "content"),
    "too long in bytes": ({"content": "\u0915" * 44_000}, "invalid_request", "content"),
    "NUL": ({"content": "a\x00b"}, "invalid_request", "content"),
    "NUL in a part": (
        {"content": [{"type": "text", "text": "\x00"}]},
        "invalid_request",
        "content",
    ),
    "lone surrogate": ({"content": "a\ud800b"}, "invalid_request", "content"),
    "other lone surrogate": ({"content": "\udfff"}, "invalid_request", "content"),
    "unknown model": ({"content": "x", "model": "gpt-9"}, "unknown_model", "model"),
    "empty model": ({"content": "x", "model": ""}, "invalid_request", "model"),
    "model of a wrong type": ({"content": "x", "model": 5}, "invalid_request", "model"),
    "long model": ({"content": "x", "model": "m" * 65}, "invalid_request", "model"),
    "NUL model": ({"content": "x", "model": "a\x00"}, "invalid_request", "model"),
    "surrogate model": ({"content": "x", "model": "\ud800"}, "invalid_request", "model"),
    "parent of a wrong type": ({"content": "x", "parent_id": 5}, "invalid_request", "parent_id"),
    "parent is a conversation": (
        {"content": "x", "parent_id": "c_" + "0" * 32},
        "invalid_request",
        "parent_id",
    ),
    "parent is a list": ({"content": "x", "parent_id": []}, "invalid_request", "parent_id"),
    "parent with NUL": ({"content": "x", "parent_id": "m_\x00"}, "invalid_request", "parent_id"),
    "parent that is not there": (
        {"content": "x", "parent_id": "m_" + "0" * 32},
        "invalid_parent",
        "parent_id",
    ),
    "unknown field with a surrogate": ({"content": "x", "a\ud800": 1}, "invalid_json", None),
    "unknown field, long": ({"content": "x", "k" * 500: 1}, "invalid_request", "k" * 200),
    "deep": ({"content": "x", "extra": [[[[[]]]]]}, "invalid_request", "extra"),
}


@pytest.mark.parametrize("case", BODIES)
def test_bodies_of_a_send(ask: Any, case: str) -> None:
    body, code, param = BODIES[case]
    _assert_refused(ask("POST", SEND, json.dumps(body).encode()), 400, code, param)


RAW: dict[str, bytes] = {
    "no JSON": b"hello",
    "half": b'{"content": "x"',
    "two": b'{"content": "x"} {}',
    "a list": b'[{"content": "x"}]',
    "a text": b'"x"',
    "null": b"null",
    "NaN": b'{"content": NaN}',
    "infinite": b'{"content": 1e999}',
    "huge integer": b'{"content": ' + b"9" * 5_000 + b"}",
    "twice the same key": b'{"content": "x", "content": "y"}',
    "not UTF-8": b'{"content": "\xff"}',
    "UTF-16": '{"content": "x"}'.encode("utf-16"),
    "nested": b'{"content": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "nested objects": b'{"a":' * 65 + b"1" + b"}" * 65,
    "bare control character": b'{"content": "a\x01b"}',
    "form": b"content=x",
}


@pytest.mark.parametrize("case", RAW)
def test_bodies_that_are_no_json_object(ask: Any, case: str) -> None:
    answer = ask("POST", SEND, RAW[case])
    param = "content" if case == "twice the same key" else None
    _assert_refused(answer, 400, "invalid_json", param)


@pytest.mark.parametrize("content_type", ["text/plain", "application/xml", "multipart/form-data"])
def test_other_media_types(ask: Any, content_type: str) -> None:
    answer = ask("POST", SEND, b'{"content": "x"}', Content_Type=content_type)
    _assert_refused(answer, 415, "unsupported_media_type", None)


@pytest.mark.parametrize(
    "path", [SEND, "/v1/conversations", "/v1/runs/g_0:stop", "/v1/conversations/c_0", "/healthz"]
)
def test_five_megabytes_with_a_length(ask: Any, path: str) -> None:
    body = b'{"content": "' + b"x" * 5_000_000 + b'"}'
    try:
        answer = ask("POST", path, body)
    except (httpx.WriteError, httpx.ReadError, httpx.RemoteProtocolError):
        return  # refused before all of it was written
    _assert_refused(answer, 413, "body_too_large", None)


@pytest.mark.parametrize("path", [SEND, "/v1/conversations", "/v1/runs/g_0/stream"])
async def test_five_megabytes_without_a_length(ask: Any, stack: Stack, path: str) -> None:
    """Chunked, and written slowly enough to see that the refusal does not wait for the end."""
    url = stack.webs[0].url + path
    connection = await Connection.connect(url)
    headers = {**stack.people["ada"].headers, **JSON, "Transfer-Encoding": "chunked"}
    method = "GET" if path.endswith("stream") else "POST"
    lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    connection.writer.write("\r\n".join([*lines, "", ""]).encode())
    chunk = b"10000\r\n" + b" " * 65_536 + b"\r\n"
    refused = asyncio.ensure_future(connection.read_head())
    for _ in range(20):
        connection.writer.write(chunk)
        # Read all the while: a write that fails would throw the answer away with the connection.
        if (await asyncio.wait([refused], timeout=0.05))[0]:
            break
    await refused
    assert connection.status == (404 if method == "GET" else 413)
    assert json.loads(await connection.body())["error"].keys() == ERROR
    await connection.drop()


@pytest.mark.parametrize("key", ["", "x" * 201, "caf\u00e9", "a\tb"])
async def test_idempotency_keys(ask: Any, stack: Stack, key: str) -> None:
    url = stack.webs[0].url + SEND
    headers = {**stack.people["ada"].headers, "Idempotency-Key": key}
    connection = await Connection.open("POST", url, headers, {"content": "x"})
    body = json.loads(await connection.body())
    assert (connection.status, body["error"]["param"]) == (400, "Idempotency-Key")
    await connection.drop()


METHODS = [
    ("GET", SEND),
    ("PUT", SEND),
    ("PUT", "/v1/conversations/c_" + "0" * 32),
    ("PUT", "/v1/conversations"),
    ("POST", "/v1/runs/g_" + "0" * 32),
    ("GET", f"/v1/runs/g_{'0' * 32}:stop"),
    ("POST", f"/v1/runs/g_{'0' * 32}/stream"),
    ("POST", "/v1/models"),
    ("PROPFIND", "/v1/models"),
]


@pytest.mark.parametrize(("method", "path"), METHODS)
def test_wrong_methods(ask: Any, method: str, path: str) -> None:
    _assert_refused(ask(method, path), 405, "method_not_allowed", None)


@pytest.mark.parametrize(
    "path",
    ["/v1/", "/v1/nothing", "/v1/runs", "/v1/runs/g_0/stream/more", "/v1/conversations/c_0/x/y"],
)
def test_addresses_that_are_not_there(ask: Any, path: str) -> None:
    _assert_refused(ask("GET", path), 404, "not_found", None)


QUERIES = [
    ("/v1/conversations?limit=0", "limit"),
    ("/v1/conversations?limit=1000000", "limit"),
    ("/v1/conversations?limit=x", "limit"),
    ("/v1/conversations?cursor=%00", "cursor"),
    ("/v1/conversations?cursor=" + "A" * 3_000, "cursor"),
    ("/v1/conversations?other=1", "other"),
]


@pytest.mark.parametrize(("path", "param"), QUERIES)
def test_queries(ask: Any, path: str, param: str) -> None:
    _assert_refused(ask("GET", path), 400, "invalid_request", param)


def test_a_parent_that_is_the_users_own_message(stack: Stack) -> None:
    """Roles alternate: a user message stands below a reply, or at the root."""
    ada, url = stack.people["ada"], stack.webs[0].url
    sent = post_message(url, ada.headers, directive(tokens=1))
    stopped(url, ada.headers, sent["id"])
    path = f"{url}/v1/conversations/{sent['conversation']}/messages"
    refused = call("POST", path, ada.headers, {"content": "x", "parent_id": sent["user_msg"]})
    _assert_refused(refused, 400, "invalid_parent", "parent_id")


CLIENTS = 12
"""More than a process has threads (WEB_THREADS is 6 here)."""


async def test_slow_senders_do_not_hold_up_the_others(stack: Stack) -> None:
    """Many clients announce a body and do not send it."""
    url = stack.webs[0].url
    slow = [await Connection.connect(url) for _ in range(CLIENTS)]
    head = [f"POST {SEND} HTTP/1.1", "Host: 127.0.0.1", "Content-Length: 100"]
    head += [f"{name}: {value}" for name, value in stack.people["ada"].headers.items()]
    for connection in slow:
        connection.writer.write("\r\n".join([*head, "", '{"co']).encode())
    await _assert_answers(stack, slow)


async def test_slow_readers_do_not_hold_up_the_others(stack: Stack) -> None:
    """Many clients ask for a conversation too large for the kernel's buffers, and do not read."""
    ada, url = stack.people["ada"], stack.webs[0].url
    conversation = "new"
    for _ in range(3):
        phone = Phone(ada.headers)
        await phone.send(url, directive(text="x" * 125_000), conversation=conversation)
        conversation = phone.start["conversation"]
    path = f"{url}/v1/conversations/{conversation}"
    slow = [await Connection.connect(url, receive_buffer_bytes=2_048) for _ in range(CLIENTS)]
    for connection in slow:
        connection.ask("GET", path, ada.headers)
        await connection.read_head()
        assert connection.status == 200
    await _assert_answers(stack, slow)


async def _assert_answers(stack: Stack, slow: list[Connection]) -> None:
    url, bob = stack.webs[0].url, stack.people["bob"]
    answer = await asyncio.to_thread(call, "GET", f"{url}/v1/models", bob.headers)
    assert answer.status_code == 200
    for connection in slow:
        await connection.drop()


def test_garbage_on_the_socket(stack: Stack) -> None:
    """What is no HTTP at all gets an answer from the server itself, and harms nobody."""
    web = stack.webs[0]
    for garbage in (b"\x16\x03\x01\x02\x00", b"GET\r\n\r\n", b"\x00" * 1_000, b"A" * 200_000):
        with socket.create_connection(("127.0.0.1", web.port), PATIENCE_S) as raw:
            try:
                raw.sendall(garbage)
                raw.shutdown(socket.SHUT_WR)
                raw.recv(65_536)
            except OSError as error:
                # To have hung up already is an answer too; to keep it and say nothing, is not.
                if error.errno not in HUNG_UP:
                    raise
    assert call("GET", f"{web.url}/healthz", {}).status_code == 200
