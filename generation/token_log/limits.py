"""The sizes and times of the token log, each with its reason."""

from __future__ import annotations

from typing import Final

LEASE_MS: Final = 6_000
"""How long an owner is taken to be alive after it renewed its lease (RENEWAL_S, HEARTBEAT_S)."""

LIVE_MS: Final = 3_600_000
"""A live run's keys expire one hour after its last append (to the minute: append.lua renews
the expiry at most once a minute)."""

ENDED_MS: Final = 60_000
"""An ended run's keys stay a minute for clients that are still reading; then PostgreSQL answers."""

UNSEEN_MS: Final = 25_000
"""A gateway that has not renewed its watching for this long is gone (it renews every 10 s)."""

FLUSH_S: Final = 0.040
"""The flusher's tick, where flushing is quick."""

FLUSH_REST: Final = 24
"""A tick lasts so many times as long as the CPU of its flush, so that flushing takes a 24th of the
worker's loop. What a flush costs Redis, web processes and clients, for each run that flows, whether
it brings one token or four, is twice as much again."""

LONGEST_FLUSH_S: Final = 0.120
"""The longest tick: eight times a second still reads as a flow."""

RENEWAL_S: Final = 0.5
"""How often appends renew the lease and ask who watches while text flows; within HEARTBEAT_S, so
that an owner which then falls silent has renewed no longer ago than that."""

HEARTBEAT_S: Final = 1.0
"""A run with nothing to say is renewed this often; well under LEASE_MS, and under the 2.5 s of
silence after which a gateway reads for itself."""

MAX_EVENT_BYTES: Final = 1_048_576
"""The largest data of one event (1 MiB): the largest is a `snapshot`, which holds a whole answer,
so this also bounds an answer (about 250,000 English tokens). Clients and Redis hold it at once."""

MAX_BATCH_BYTES: Final = 2 * MAX_EVENT_BYTES
"""The most data in one append: Redis does nothing else while the script runs."""

MAX_BATCH_EVENTS: Final = 500
"""The most events in one append, for the same reason."""

DELTA_CHARS: Final = 16_000
"""A `delta` is cut after this many characters, so that text that piled up while Redis was away
arrives in pieces a phone can take (at most 96,000 bytes of JSON, 6 for each character)."""

MAX_PUSH_BYTES: Final = 262_144
"""The largest payload published to a gateway. An event that does not fit is not pushed: its seq is
told, and the gateway reads the log."""

MAX_READ_EVENTS: Final = 1_000
"""The most entries one read may ask for."""

MAX_CHANNEL_CHARS: Final = 200
"""The longest name of a gateway's or an owner's channel."""
