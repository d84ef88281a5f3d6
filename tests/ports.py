"""Ports that nobody else is given meanwhile: each test run on this machine has a block of its own.

`free_port` asks the kernel, which may give the same port to another process in the seconds until a
server of ours listens there, or between its death and its restart. These ports lie below those that
Linux gives by itself (from 32768 on, where nobody has changed that).
"""

from __future__ import annotations

import itertools
import socket
from functools import cache

from chatproject.embedded.ports import port_problem

FIRST, LAST = 20_000, 32_000
BLOCK = 400


def own_ports(count: int = 1) -> int:
    """The first of `count` ports in a row on which nobody listens."""
    (block, _), numbers = _block(), _numbers()
    for _ in range(BLOCK):
        first = block + 1 + next(numbers) % (BLOCK - count)
        ports = range(first, first + count)
        if all(port_problem("127.0.0.1", port) is None for port in ports):
            for _ in range(count - 1):
                next(numbers)
            return first
    raise RuntimeError(f"no free ports from {block} on")


@cache
def _numbers() -> itertools.count[int]:
    return itertools.count()


@cache
def _block() -> tuple[int, socket.socket]:
    """Its first port, and what listens there for as long as we live: that holds the block."""
    for first in range(FIRST, LAST, BLOCK):
        holder = socket.socket()
        try:
            holder.bind(("127.0.0.1", first))
            holder.listen(1)
        except OSError:
            holder.close()
        else:
            return first, holder
    raise RuntimeError("every block of ports is held")
