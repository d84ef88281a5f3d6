"""What the documentation must not forget."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from accounts import api_errors, parsers, tokens  # noqa: F401 - their errors are looked at
from accounts.errors import ApiError
from chatproject import handler  # noqa: F401
from generation import exceptions  # noqa: F401
from generation.events import EVENT_NAMES
from generation.payloads import ERRORS
from generation.queue_figures import Stand
from generation.queue_metrics import families
from generation.run_state import STATUS_OF_FINISH, STATUSES

ROOT = Path(__file__).resolve().parents[2]
API = (ROOT / "docs" / "api.md").read_text()
OPERATIONS = (ROOT / "docs" / "operations.md").read_text()


def kinds(of: type[ApiError]) -> Iterator[type[ApiError]]:
    for kind in of.__subclasses__():
        yield kind
        yield from kinds(kind)


@pytest.mark.parametrize("code", sorted({kind.code for kind in kinds(ApiError)} | set(ERRORS)))
def test_every_error_code_is_in_the_api_page(code: str) -> None:
    assert f"`{code}`" in API


@pytest.mark.parametrize(
    "code",
    sorted(
        set(
            re.findall(
                r'code="(\w+)"',
                "".join(
                    path.read_text()
                    for path in ROOT.glob("[a-z]*/**/*.py")
                    if path.parts[len(ROOT.parts)]
                    in ("accounts", "conversations", "generation", "chatproject")
                ),
            )
        )
    ),
)
def test_every_code_given_at_a_raise_is_in_the_api_page(code: str) -> None:
    assert f"`{code}`" in API


@pytest.mark.parametrize("name", EVENT_NAMES)
def test_every_event_is_in_the_api_page(name: str) -> None:
    assert f"| `{name}` |" in API


@pytest.mark.parametrize("word", STATUSES)
def test_every_status_is_in_the_api_page(word: str) -> None:
    assert f"`{word}`" in API


@pytest.mark.parametrize("word", sorted(set(STATUS_OF_FINISH) - {"moderation", "unwatched"}))
def test_every_finish_there_is_yet_is_in_the_api_page(word: str) -> None:
    assert f"`{word}`" in API


@pytest.mark.parametrize(
    "variable",
    sorted(
        set(
            re.findall(
                r'env\.\w+\(\s*"([A-Z_]+)"', (ROOT / "chatproject" / "settings.py").read_text()
            )
        )
    ),
)
def test_every_setting_is_in_the_operations_page(variable: str) -> None:
    assert f"`{variable}`" in OPERATIONS


@pytest.mark.parametrize("name", sorted(one.name for one in families(Stand(0, True, ()))))
def test_every_metric_is_in_the_operations_page(name: str) -> None:
    assert f"`{name}`" in OPERATIONS or f"`{name}_total`" in OPERATIONS
