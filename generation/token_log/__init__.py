"""The token log: one run's events in Redis, fenced by epoch, flushed in batches, pushed on.

TokenLog / TokenLogSync are the verbs; Flusher and RunWriter are what a worker writes with;
Follower and assemble are what a reader follows with; layer.TokenChannelLayer carries the pushes.
"""

from __future__ import annotations

from generation.token_log.clients import async_client, sync_client
from generation.token_log.commands import (
    AppendReply,
    Batch,
    Code,
    LogPage,
    LogState,
    OpenReply,
    Registered,
)
from generation.token_log.errors import AnswerTooLong, Fenced, LogClosed, LogFull, TokenLogError
from generation.token_log.flusher import Flusher
from generation.token_log.follow import Assembled, Follower, Step, assemble, event_text
from generation.token_log.log import TokenLog, TokenLogSync
from generation.token_log.push import (
    PushedEvent,
    PushedRun,
    decode_push,
    decode_stop,
    encode_push,
    encode_stop,
)
from generation.token_log.writer import RecheckReply, RunWriter

__all__ = [
    "AnswerTooLong",
    "AppendReply",
    "Assembled",
    "Batch",
    "Code",
    "Fenced",
    "Flusher",
    "Follower",
    "LogClosed",
    "LogFull",
    "LogPage",
    "LogState",
    "OpenReply",
    "PushedEvent",
    "PushedRun",
    "RecheckReply",
    "Registered",
    "RunWriter",
    "Step",
    "TokenLog",
    "TokenLogError",
    "TokenLogSync",
    "assemble",
    "async_client",
    "decode_push",
    "decode_stop",
    "encode_push",
    "encode_stop",
    "event_text",
    "sync_client",
]
