"""docs/reliability.md names tests that are there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
NAMED = re.compile(r"`((?:tests/\w+/)?test_\w+\.py)::(test_\w+)`")


def test_each_promise_names_a_test_that_exists() -> None:
    named = NAMED.findall((ROOT / "docs" / "reliability.md").read_text())
    assert len(named) > 25
    for file, name in named:
        path = ROOT / (file if "/" in file else f"tests/faults/{file}")
        assert re.search(rf"^(async )?def {name}\(", path.read_text(), re.MULTILINE), (file, name)
