"""What a long run has written so far, in PostgreSQL: for when its owner and its log are both lost.

Sync functions; each is one guarded statement. Only released text comes here, never held text.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from accounts import sql
from accounts.sealing import KeyDestroyed, Unreadable, open_sealed, seal
from generation.models import RunCheckpoint
from generation.run_state import ENDED

# The row is locked so that an end which happens just now decides: it is waited for, and then the
# run is no longer running. FOR SHARE, for two savers may pass at once.
_SAVE: Final = """
INSERT INTO generation_runcheckpoint
    (run_id, epoch, seq, content, output_tokens, is_whole, saved)
SELECT run.id, run.epoch, %(seq)s::bigint, %(content)s::bytea, %(tokens)s::integer,
    %(whole)s::boolean, statement_timestamp()
FROM generation_run run
WHERE run.id = %(run)s AND run.status = 'running' AND run.epoch = %(epoch)s
FOR SHARE
ON CONFLICT (run_id) DO UPDATE
SET epoch = EXCLUDED.epoch, seq = EXCLUDED.seq, content = EXCLUDED.content,
    output_tokens = EXCLUDED.output_tokens, is_whole = EXCLUDED.is_whole, saved = EXCLUDED.saved
WHERE (generation_runcheckpoint.epoch, generation_runcheckpoint.seq)
    <= (EXCLUDED.epoch, EXCLUDED.seq)
RETURNING run_id
"""


@dataclass(frozen=True, slots=True)
class Written:
    """An answer so far: its text, how many output tokens that is, and where it stood then.

    `is_whole`: its owner let go of the run with it, so that there is no more in its log.
    """

    text: str
    output_tokens: int
    epoch: int
    seq: int
    is_whole: bool = False


def save(run_id: uuid.UUID, owner_id: uuid.UUID, written: Written) -> bool:
    """Keep the text of a running run; False where its epoch no longer owns it, more is kept
    already, or its owner's key was destroyed. Raises what `seal` does while the keys are away."""
    try:
        content = seal("checkpoint", owner_id, run_id, written.text.encode())
    except KeyDestroyed:
        return False
    values = {"run": run_id, "epoch": written.epoch, "seq": written.seq, "content": content}
    more = {"tokens": written.output_tokens, "whole": written.is_whole}
    return bool(sql.rows(_SAVE, {**values, **more}))


def latest(run_id: uuid.UUID, owner_id: uuid.UUID) -> Written | None:
    """What was kept last; None where nothing was, or it cannot be read any more."""
    row = RunCheckpoint.objects.filter(run_id=run_id).first()
    if row is None:
        return None
    try:
        text = open_sealed("checkpoint", owner_id, run_id, bytes(row.content)).decode()
    except Unreadable:
        return None
    return Written(text, row.output_tokens, row.epoch, row.seq, row.is_whole)


def let_go_at(run_id: uuid.UUID, epoch: int) -> datetime | None:
    """When the owner of that epoch let go of the run with all of its text kept here; None where it
    did not, or another has kept something since."""
    kept = RunCheckpoint.objects.filter(run_id=run_id, epoch=epoch, is_whole=True)
    return kept.values_list("saved", flat=True).first()


def drop_ended() -> int:
    """Those of runs that ended under an owner which did not know of them; how many."""
    ended = RunCheckpoint.objects.filter(run__status__in=ENDED)
    return ended.delete()[0]


def drop(run_id: uuid.UUID) -> None:
    """In the transaction that ends the run, or takes its text back."""
    RunCheckpoint.objects.filter(run_id=run_id).delete()
