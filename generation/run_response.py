"""Responses that name a run instead of holding bytes.

A view answers with one of these; `chatproject.asgi` hands its plan to the gateway once Django's
part of the request is over, so that no thread, no request and no database connection is held
while an answer streams.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from django.http import HttpResponse

from accounts.live import LiveCredential


@dataclass(frozen=True, slots=True)
class StreamPlan:
    """Write the events of `run` after the cursor `after` until `done`.

    `start_data` is the JSON of the run's `start` event, from its row: a client that has not had
    `start` yet gets it before anything is read from the log. `pool` is where a queued run waits;
    `credential` is whose stream it is: when it ends, so does the stream. `headers`: more of them.
    """

    run: str
    after: int
    start_data: bytes
    pool: str
    credential: LiveCredential
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class EndPlan:
    """Wait until `run` has ended, `wait_s` at most; then answer with it as JSON: 200, or 202."""

    run: str
    pool: str
    wait_s: float = 2.0


@dataclass(frozen=True, slots=True)
class AgainPlan:
    """Wait until `run`, which is being stopped, has ended; then ask the same view again.

    Only views that were asked with MAY_WAIT in their scope may answer so.
    """

    run: str
    pool: str


MAY_WAIT: Final = "hearth.may_wait"
"""Key of the ASGI scope: whether whoever serves this request can still wait for a run's end."""

AGAIN_WAIT_S: Final = 2.0
"""How long a request waits for stopping runs in all; an answer whose engine let go ends at once."""


class GatewayResponse(HttpResponse):
    """An empty response that carries a plan for the gateway."""

    plan: StreamPlan | EndPlan | AgainPlan


class RunStreamResponse(GatewayResponse):
    """The run's events as `text/event-stream`."""

    def __init__(self, plan: StreamPlan) -> None:
        super().__init__(content_type="text/event-stream")
        self.plan = plan


class RunEndResponse(GatewayResponse):
    """The run as JSON, once it has ended."""

    def __init__(self, plan: EndPlan) -> None:
        super().__init__(content_type="application/json")
        self.plan = plan


class AgainResponse(GatewayResponse):
    """No answer yet: the request is served again once a run has ended."""

    def __init__(self, plan: AgainPlan) -> None:
        super().__init__(content_type="application/json")
        self.plan = plan
