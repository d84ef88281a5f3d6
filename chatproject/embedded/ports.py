"""TCP ports on this machine."""

from __future__ import annotations

import errno
import socket


def free_port(host: str = "127.0.0.1") -> int:
    """A port nobody listens on now. Another process may take it before you do: be ready to
    retry.
    """
    with socket.socket(_family(host), socket.SOCK_STREAM) as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def port_problem(host: str, port: int) -> str | None:
    """Why we could not listen there: "taken", "not permitted", "not an address of ours", or
    None.
    """
    try:
        with socket.socket(_family(host), socket.SOCK_STREAM) as probe:
            # As servers do: without it a port whose connections were closed a moment ago looks
            # taken.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
            probe.listen(1)
    except OSError as error:
        return _reason(error)
    return None


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def _reason(error: OSError) -> str:
    reasons = {errno.EADDRINUSE: "taken", errno.EACCES: "not permitted"}
    return reasons.get(error.errno or 0, "not an address of this machine")
