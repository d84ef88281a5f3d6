"""What this process holds open for whom: the caps, and the closing of what nobody may see any more.

Streams and sockets enter before they open and leave when they end. Used by the process' one event
loop; views, in their threads, only count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from typing import Final, Literal
from uuid import UUID

from django.conf import settings

from accounts.live import LiveCredential
from generation.exceptions import TooManySockets, TooManyStreams

Kind = Literal["stream", "socket"]


class Why(Enum):
    """Why something is closed from here."""

    SIGNED_OUT = "signed_out"
    """Its credential has ended."""
    UNKNOWN = "unknown"
    """Nobody could say for too long whether its credential holds."""
    RESTART = "restart"
    """This process is going."""


class Entry:
    """One stream or socket. `close` is called in the event loop, once, and must not block."""

    __slots__ = ("close", "closing", "credential", "kind")

    def __init__(
        self, credential: LiveCredential, kind: Kind, close: Callable[[Why], None]
    ) -> None:
        self.credential = credential
        self.kind = kind
        self.close = close
        self.closing = False


class OpenConnections:
    """All streams and sockets of one process."""

    def __init__(self) -> None:
        self._by_credential: dict[LiveCredential, set[Entry]] = {}
        self._counts: dict[tuple[UUID, Kind], int] = {}

    def refuse_more_streams(self, user_id: UUID) -> None:
        """Raises TooManyStreams where the user has as many open as one may have in a process."""
        if self._counts.get((user_id, "stream"), 0) >= settings.MAX_STREAMS_PER_USER:
            raise TooManyStreams(retry_after_s=5)

    def refuse_more_sockets(self, user_id: UUID) -> None:
        """Raises TooManySockets."""
        if self._counts.get((user_id, "socket"), 0) >= settings.MAX_SOCKETS_PER_USER:
            raise TooManySockets(retry_after_s=5)

    def enter(self, credential: LiveCredential, kind: Kind, close: Callable[[Why], None]) -> Entry:
        """Whoever enters must leave."""
        entry = Entry(credential, kind, close)
        self._by_credential.setdefault(credential, set()).add(entry)
        key = (credential.user_id, kind)
        self._counts[key] = self._counts.get(key, 0) + 1
        return entry

    def leave(self, entry: Entry) -> None:
        there = self._by_credential.get(entry.credential)
        if there is None or entry not in there:
            return
        there.discard(entry)
        if not there:
            del self._by_credential[entry.credential]
        key = (entry.credential.user_id, entry.kind)
        self._counts[key] -= 1
        if not self._counts[key]:
            del self._counts[key]

    def credentials(self) -> list[LiveCredential]:
        """Each once."""
        return list(self._by_credential)

    def close(self, credentials: Iterable[LiveCredential], why: Why) -> int:
        """Close all that these let in; how many that were, but for those that are closing."""
        there = [entry for one in credentials for entry in self._by_credential.get(one, ())]
        entries = [entry for entry in there if not entry.closing]
        for entry in entries:
            entry.closing = True
            entry.close(why)
        return len(entries)

    def close_all(self, why: Why) -> int:
        return self.close(self.credentials(), why)


OPEN: Final = OpenConnections()
