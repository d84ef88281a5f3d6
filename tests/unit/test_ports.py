"""Two test runs at once are given ports of their own, none of which the kernel gives by itself."""

from __future__ import annotations

import socket
import subprocess
import sys

from tests.ports import BLOCK, FIRST, LAST, own_ports
from tests.stack import ROOT


def _ports_of_another() -> set[int]:
    program = f"from tests.ports import own_ports\nfor _ in range({2 * BLOCK}): print(own_ports())"
    told = subprocess.check_output([sys.executable, "-c", program], cwd=ROOT, text=True)
    return {int(word) for word in told.split()}


def test_two_runs_share_none() -> None:
    ours = {own_ports() for _ in range(2 * BLOCK)}
    theirs = _ports_of_another()
    assert len(ours) > 1
    assert len(theirs) > 1
    assert not ours & theirs
    assert min(ours | theirs) > FIRST
    assert max(ours | theirs) < LAST


def test_one_that_is_taken_is_not_given() -> None:
    with socket.socket() as holder:
        taken = own_ports()
        holder.bind(("127.0.0.1", taken))
        holder.listen()
        assert taken not in {own_ports() for _ in range(2 * BLOCK)}
        firsts = {own_ports(2) for _ in range(2 * BLOCK)}
    assert firsts
    assert not firsts & {taken - 1, taken}
