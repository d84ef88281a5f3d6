"""Of the templates that we replace, unfold has the versions that ours were written against."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
import unfold

UNFOLD = Path(unfold.__file__).parent
OURS = Path(__file__).resolve().parents[2] / "templates"
DIGESTS = {
    "unfold/layouts/skeleton.html": "66af9f0bb45f98ba",
    "unfold/helpers/welcomemsg.html": "e8eab02522ba2319",
    "unfold/helpers/history.html": "ab17c2671148ca5f",
    "admin/actions.html": "b5332aace8e69192",
    "admin/change_list.html": "5885c39760f6085d",
    "admin/object_history.html": "276be0d3eb1c5eaa",
}


@pytest.mark.parametrize("name", sorted(DIGESTS))
def test_a_replaced_template_is_the_one_we_know(name: str) -> None:
    assert (OURS / name).is_file()
    theirs = (UNFOLD / "templates" / name).read_bytes()
    assert hashlib.sha256(theirs).hexdigest().startswith(DIGESTS[name])


def test_every_replaced_template_is_watched() -> None:
    replaced = {
        path.relative_to(OURS).as_posix()
        for path in OURS.rglob("*.html")
        if (UNFOLD / "templates" / path.relative_to(OURS)).exists()
    }
    assert replaced == set(DIGESTS)
