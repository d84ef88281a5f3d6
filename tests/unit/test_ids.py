from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounts.ids import InvalidId, external_id, new_id, parse_id


@given(st.uuids(), st.sampled_from(["c", "m", "g", "a", "t", "u"]))
def test_an_id_comes_back(row_id: object, prefix: str) -> None:
    assert parse_id(prefix, external_id(prefix, row_id)) == row_id  # type: ignore[arg-type]


def test_ids_rise() -> None:
    ids = [new_id() for _ in range(1000)]

    assert ids == sorted(ids)
    assert len(set(ids)) == 1000


@pytest.mark.parametrize(
    "text",
    [
        "",
        "c_",
        "m_" + "0" * 32,
        "c_" + "0" * 31,
        "c_" + "0" * 33,
        "c_" + "A" * 32,
        "c_" + "g" * 32,
        "C_" + "0" * 32,
        "c_" + "٠" * 32,
        "c_" + "0" * 31 + "\n",
        " c_" + "0" * 32,
        "c_00000000-0000-0000-0000-000000000000",
        None,
        7,
        b"c_" + b"0" * 32,
        ["c_" + "0" * 32],
    ],
)
def test_anything_else_is_refused(text: object) -> None:
    with pytest.raises(InvalidId):
        parse_id("c", text)
