"""What can be wrong with a send, a stop or a resume. Pure; codes are listed in docs/api.md."""

from __future__ import annotations

from accounts.errors import Conflict, Forbidden, InvalidRequest, RateLimited
from quotas.limits import LimitName, Standing


class UnknownModel(InvalidRequest):
    """There is no such model. GET /v1/models lists those you may choose."""

    code = "unknown_model"


class NoPlan(Forbidden):
    """You have no plan, so no model may answer you. Ask your administrator."""

    code = "no_plan"


class AtLimit(RateLimited):
    """You have used what your plan allows for now. Try again later.

    `standing` is how all limits stood, `model` the one that was asked for.
    """

    code = "quota_exceeded"

    def __init__(
        self, message: str, limit: LimitName, *, standing: Standing, model: str, retry_after_s: int
    ) -> None:
        super().__init__(message, code=AT_LIMIT_CODES[limit], retry_after_s=retry_after_s)
        self.standing = standing
        self.model = model


AT_LIMIT_CODES: dict[LimitName, str] = {
    "messages": "quota_exceeded",
    "tokens": "tokens_per_minute",
    "requests": "rate_limited",
}


class NotInRegion(UnknownModel):
    """That model is not served in the region that your organisation's text must not leave."""


class InvalidParent(InvalidRequest):
    """The parent must be a reply of this conversation, or null for a new first message."""

    code = "invalid_parent"


class RunLive(Conflict):
    """An answer is being written there. Wait for its end, or stop it."""

    code = "run_live"


class RunStopping(RunLive):
    """An answer is being stopped there. Try again in a moment.

    `run` and `pool` say whose end to wait for.
    """

    def __init__(self, message: str, *, run: str, pool: str, param: str | None = None) -> None:
        super().__init__(message, param=param)
        self.run = run
        self.pool = pool


class NotContinuable(Conflict):
    """Only a reply that was cut, stopped or interrupted can be continued."""

    code = "not_continuable"


class TooManyLiveRuns(RateLimited):
    """You have too many answers waiting or being written. Wait for one to end."""

    code = "too_many_live_runs"


class Busy(RateLimited):
    """So many people are waiting just now that yours would take too long. Try again a bit later."""

    code = "busy"


class QueueFull(RateLimited):
    """Too many people are waiting for this model right now. Try again in a moment."""

    code = "queue_full"


class TooManyStreams(RateLimited):
    """You have too many streams open. Close one, and ask again."""

    code = "too_many_streams"


class TooManySockets(RateLimited):
    """You have too many sockets open. Close one, and connect again."""

    code = "too_many_sockets"


class TooManyWatches(RateLimited):
    """This socket watches too many runs. Unwatch one first."""

    code = "too_many_watches"
