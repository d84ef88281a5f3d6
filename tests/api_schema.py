"""`/v1/schema` for tests: which calls there are, and whether an answer is as it says.

Answers are held against a stricter schema than the published one: a field that is not described is
an error here, while clients must be able to live with new ones.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

from jsonschema import Draft202012Validator, FormatChecker

from chatproject.openapi import schema_bytes

METHODS = ("get", "put", "post", "delete", "patch")


@cache
def schema() -> dict[str, Any]:
    """The schema as it is served."""
    document: dict[str, Any] = json.loads(schema_bytes()[0])
    return document


def calls() -> dict[str, dict[str, Any]]:
    """`"GET /v1/models"` → its operation, for every call."""
    return {
        f"{method.upper()} {path}": operation
        for path, operations in schema()["paths"].items()
        for method, operation in operations.items()
        if method in METHODS
    }


def operation_of(method: str, path: str) -> tuple[str, dict[str, Any]]:
    """The call that a concrete path belongs to; the one with the fewest holes where two match."""
    wanted = path.partition("?")[0]
    found = [
        (name, operation)
        for name, operation in calls().items()
        if name.partition(" ")[0] == method
        and re.fullmatch(re.sub(r"\\{\w+\\}", "[^/]+", re.escape(name.partition(" ")[2])), wanted)
    ]
    assert found, f"{method} {wanted} is not in the schema"
    return min(found, key=lambda one: (one[0].count("{"), -len(one[0])))


def check_answer(method: str, path: str, status: int, content_type: str, body: bytes) -> None:
    """Raises AssertionError where the schema does not describe this answer."""
    name, operation = operation_of(method, path)
    response = operation["responses"].get(str(status))
    assert response is not None, f"{name} does not tell of {status}"
    content = _resolved(response).get("content", {})
    media = content_type.partition(";")[0]
    if not content:
        assert not body, f"{name} {status} should be empty"
        return
    assert media in content, f"{name} {status} as {media}"
    if media == "application/json":
        _check(json.loads(body), content[media]["schema"], f"{name} {status}")


def check_event(name: str, data: object) -> None:
    """The same for the data of one event of a stream."""
    _check(data, {"$ref": f"#/components/schemas/{name.title()}Event"}, name)


def _check(value: object, wanted: dict[str, Any], where: str) -> None:
    problems = list(_validator(json.dumps(wanted)).iter_errors(value))
    assert not problems, f"{where}: {problems[0].message} at {list(problems[0].absolute_path)}"


@cache
def _validator(wanted: str) -> Draft202012Validator:
    whole = {**json.loads(wanted), "components": _strict_components()}
    return Draft202012Validator(whole, format_checker=FormatChecker())


@cache
def _strict_components() -> dict[str, Any]:
    components: dict[str, Any] = json.loads(json.dumps(schema()["components"]))
    for node in _nodes(components["schemas"]):
        if node.get("type") == "object" and "properties" in node:
            node["additionalProperties"] = False
    return components


def _nodes(node: object) -> Iterator[dict[str, Any]]:
    if isinstance(node, dict):
        yield node
        for child in node.values():
            yield from _nodes(child)
    elif isinstance(node, list):
        for child in node:
            yield from _nodes(child)


def _resolved(response: dict[str, Any]) -> dict[str, Any]:
    if "$ref" not in response:
        return response
    found: dict[str, Any] = schema()["components"]["responses"][response["$ref"].rpartition("/")[2]]
    return found
