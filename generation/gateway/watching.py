"""What a socket asks of a run, decided in a database thread behind the access door."""

from __future__ import annotations

from accounts import scopes, tokens
from accounts.authentication import Credential
from accounts.errors import InsufficientScope, NotSignedIn
from accounts.live import live_credential
from generation import payloads, runs
from generation.events import encode_data
from generation.run_response import StreamPlan
from generation.stop import request_stop


def watch_plan(credential: Credential, run: str, after: int) -> StreamPlan | bytes:
    """What to write after the cursor; the data of `done` where it has reached the end.

    Raises NotFound.
    """
    row = runs.access_run(credential.user, run)
    if row.last_seq is not None and after >= row.last_seq:
        return encode_data(payloads.done_payload(row))
    start, lives = payloads.start_data(row), live_credential(credential)
    return StreamPlan(row.external_id, after, start, row.pool_id, lives)


def stop_run_of(credential: Credential, run: str) -> None:
    """Stop the run, if the credential may do so by now: an API token's scopes can be edited while
    the socket it opened stays. Raises InsufficientScope, NotFound.
    """
    token = None
    if credential.kind == "api_token":
        token = tokens.live(credential.user).filter(id=credential.ref).first()
        if token is None:
            raise NotSignedIn
    if not scopes.allows(token, scopes.WRITE):
        raise InsufficientScope(f"This API token may not do this: it needs {scopes.WRITE}.")
    request_stop(credential.user, run)
