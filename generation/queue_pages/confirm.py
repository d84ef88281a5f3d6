"""Pages that say what will happen, ask, and then do it: each a verb of queue_actions with its audit
entry in one transaction, told to Redis after the commit."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

from django import forms
from django.contrib import admin, messages
from django.db import transaction
from django.db.models import Model as Row
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.views import View
from redis.exceptions import RedisError

from accounts import audit
from accounts.ids import InvalidId, parse_id
from generation import queue_actions
from generation.catalogue import served_among
from generation.models import Pool, Replica, Run
from generation.queue_pages.live import CHANGES, refuse_unless
from generation.run_state import LIVE
from quotas.models import WEIGHT_MAX, Plan

log = logging.getLogger(__name__)

R = TypeVar("R", bound=Row)


@dataclass(frozen=True, slots=True)
class Question:
    """What the page says, and the button's words; without a button there is nothing to be done."""

    title: str
    lines: tuple[str, ...]
    button: str = ""


@dataclass(frozen=True, slots=True)
class Done:
    """What was changed, for the audit (field → before, after), and what tells everybody else."""

    changes: Mapping[str, list[object]]
    tell: Callable[[], object] = lambda: None


class Confirm(View, Generic[R]):
    """GET asks, POST does it. Subclasses say what; `kind` names the permission."""

    kind: ClassVar[str]
    action: ClassVar[str]
    done: ClassVar[str]
    not_done: ClassVar[str]

    def find(self, name: str) -> R:
        """The row. Raises Http404."""
        raise NotImplementedError

    def question(self, row: R) -> Question:
        raise NotImplementedError

    def form(self, row: R, data: Any = None) -> forms.Form:
        """What is asked beside yes or no."""
        return forms.Form(data)

    def do(self, row: R, given: Mapping[str, Any]) -> Done | None:
        """None: the row was not as the page had shown it."""
        raise NotImplementedError

    def get(self, request: HttpRequest, name: str) -> HttpResponse:
        refuse_unless(request, CHANGES[self.kind])
        row = self.find(name)
        return self._ask(request, row, self.form(row), 200)

    def post(self, request: HttpRequest, name: str) -> HttpResponse:
        refuse_unless(request, CHANGES[self.kind])
        row = self.find(name)
        form = self.form(row, request.POST)
        if not form.is_valid():
            return self._ask(request, row, form, 400)
        with transaction.atomic():
            done = self.do(row, form.cleaned_data)
            if done is not None:
                audit.record(request, self.action, row, done.changes)
        self._say(request, row, done)
        return HttpResponseRedirect(reverse("queues:live"))

    def _say(self, request: HttpRequest, row: R, done: Done | None) -> None:
        of = audit.name_of(row)
        if done is None:
            messages.warning(request, f"{of}: {self.not_done} Nothing was done.")
            return
        try:
            done.tell()
        except (RedisError, OSError):
            log.warning("%s of %s not told", self.action, of, extra={"action": "not_told"})
            later = "Redis is away: it takes effect when Redis is back."
            messages.warning(request, f"{of}: {self.done} {later}")
            return
        messages.success(request, f"{of}: {self.done}")

    def _ask(self, request: HttpRequest, row: R, form: forms.Form, status: int) -> HttpResponse:
        question = self.question(row)
        context = {
            **admin.site.each_context(request),
            "title": question.title,
            "question": question,
            "form": form,
            "back": reverse("queues:live"),
        }
        page = "admin/generation/queue_confirm.html"
        return TemplateResponse(request, page, context, status=status)


def _found(row: R | None) -> R:
    if row is None:
        raise Http404
    return row


def _runs(number: int) -> str:
    return "1 run" if number == 1 else f"{number} runs"


def _live(pool: str) -> str:
    """ "3 runs wait there, 2 runs are at work"."""
    live = Run.objects.filter(pool=pool, status__in=LIVE)
    waiting = live.filter(status="queued").count()
    running = live.filter(status="running").count()
    waits, works = "waits" if waiting == 1 else "wait", "is" if running == 1 else "are"
    return f"{_runs(waiting)} {waits} there, {_runs(running)} {works} at work."


# --- pools ----------------------------------------------------------------------------------------


class _OfPool(Confirm[Pool]):
    kind = "pool"
    is_paused: ClassVar[bool]

    def find(self, name: str) -> Pool:
        return _found(Pool.objects.filter(slug=name).first())

    def do(self, row: Pool, given: Mapping[str, Any]) -> Done | None:
        tell = queue_actions.pause(row, is_paused=self.is_paused)
        return tell and Done({"is_paused": [not self.is_paused, self.is_paused]}, tell)


class PausePool(_OfPool):
    is_paused = True
    action, done, not_done = "pause", "paused.", "it was paused already."

    def question(self, row: Pool) -> Question:
        return Question(
            f"Pause the pool {row.slug}?",
            (
                _live(row.slug),
                "No run is begun there from now on. What is at work goes on to its end.",
                "What waits keeps its place, and what is sent meanwhile waits behind it.",
                "People see their position; nobody is told why it stands still.",
            ),
            "Pause it",
        )


class ResumePool(_OfPool):
    is_paused = False
    action, done, not_done = "resume", "resumed.", "it was not paused."

    def question(self, row: Pool) -> Question:
        lines = (_live(row.slug), "Its replicas begin runs again within a second or two.")
        return Question(f"Resume the pool {row.slug}?", lines, "Resume it")


# --- replicas -------------------------------------------------------------------------------------


class _OfReplica(Confirm[Replica]):
    kind = "replica"
    is_draining: ClassVar[bool]

    def find(self, name: str) -> Replica:
        return _found(Replica.objects.filter(name=name).first())

    def do(self, row: Replica, given: Mapping[str, Any]) -> Done | None:
        if not queue_actions.drain(row, is_draining=self.is_draining):
            return None
        return Done({"is_draining": [not self.is_draining, self.is_draining]})


class Drain(_OfReplica):
    is_draining = True
    action, done, not_done = "drain", "asked to drain.", "it drains already."

    def question(self, row: Replica) -> Question:
        healthy = Replica.objects.filter(pool=row.pool_id, healthy=True, is_draining=False)
        others = healthy.exclude(name=row.name).count()
        rest = f"Other replicas there that are healthy: {others}."
        if not others:
            rest += " What waits goes to the model's other pools or its fallback, if there are any."
        return Question(
            f"Drain the replica {row.name}?",
            (
                f"It is in the pool {row.pool_id}. {_live(row.pool_id)}",
                "Within seconds it begins no run any more. Its running answers go on to their end.",
                "Then its health says “drained”, and its engine can be looked after.",
                "It stays so, also after a restart, until somebody ends the draining here.",
                rest,
            ),
            "Drain it",
        )


class Undrain(_OfReplica):
    is_draining = False
    action, done, not_done = "undrain", "asked to take runs again.", "it does not drain."

    def question(self, row: Replica) -> Question:
        line = "Within seconds it begins runs again, as soon as its engine is healthy."
        return Question(f"Let the replica {row.name} take runs again?", (line,), "Take runs again")


# --- runs -----------------------------------------------------------------------------------------


class _OfRun(Confirm[Run]):
    kind = "run"

    def find(self, name: str) -> Run:
        try:
            run_id = parse_id("g", name)
        except InvalidId:
            raise Http404 from None
        return _found(Run.objects.filter(id=run_id).first())


class StopRun(_OfRun):
    action, done, not_done = "stop", "asked to stop.", "it has ended, or was asked to stop before."

    def question(self, row: Run) -> Question:
        title = f"Stop the run {row.external_id}?"
        if row.status not in LIVE:
            return Question(title, (f"It has ended: {row.status}, {row.finish}.",))
        if row.status == "queued":
            lines = (f"It waits in the pool {row.pool_id}, and leaves the queue at once.",)
        else:
            lines = (f"It is at work at {row.replica or row.pool_id}, and ends within a second.",)
        rest = "It ends as if its owner had pressed stop: the text so far is kept, and charged."
        return Question(title, (*lines, rest), "Stop it")

    def do(self, row: Run, given: Mapping[str, Any]) -> Done | None:
        tell = queue_actions.stop(row)
        if tell is None:
            return None
        asked = Run.objects.values_list("stop_requested_at", flat=True).get(id=row.id)
        return Done({"stop_requested_at": [None, str(asked)]}, tell)


class PoolForm(forms.Form):
    pool = forms.ChoiceField(label="To the pool")


class MoveRun(_OfRun):
    action, done, not_done = "move", "moved.", "it waits no more, or not there."

    def question(self, row: Run) -> Question:
        title = f"Move the run {row.external_id}?"
        if row.status != "queued":
            return Question(title, (f"It does not wait any more: it is {row.status}.",))
        here = f"It waits in the pool {row.pool_id} for the model {row.model_used}."
        if not queue_actions.pools_for(row):
            return Question(title, (here, "The model has no other pool where it may be."))
        there = "It goes to the end of its owner's line in the other pool, with the same model."
        return Question(title, (here, there), "Move it")

    def form(self, row: Run, data: Any = None) -> forms.Form:
        form = PoolForm(data)
        pools = queue_actions.pools_for(row)
        served = served_among([pool.slug for pool in pools])
        form.fields["pool"].choices = [  # type: ignore[attr-defined]  # of a Field it does not know
            (pool.slug, _pool_words(pool, is_served=pool.slug in served)) for pool in pools
        ]
        return form

    def do(self, row: Run, given: Mapping[str, Any]) -> Done | None:
        left = row.pool_id
        pool = next(one for one in queue_actions.pools_for(row) if one.slug == given["pool"])
        tell = queue_actions.move(row, pool)
        return tell and Done({"pool": [left, pool.slug]}, tell)


def _pool_words(pool: Pool, *, is_served: bool) -> str:
    state = "paused" if pool.is_paused else "healthy" if is_served else "no healthy replica"
    return f"{pool.slug} ({pool.region}, {state})"


# --- plans ----------------------------------------------------------------------------------------


class WeightForm(forms.Form):
    """`seen` is the weight that the page has shown: of two administrators one changes it."""

    weight = forms.IntegerField(label="New weight", min_value=1, max_value=WEIGHT_MAX)
    seen = forms.IntegerField(widget=forms.HiddenInput)


class WeighPlan(Confirm[Plan]):
    kind = "plan"
    action, done = "weigh", "has its new weight."
    not_done = "it has that weight already, or somebody else has changed it."

    def find(self, name: str) -> Plan:
        return _found(Plan.objects.filter(slug=name).first())

    def question(self, row: Plan) -> Question:
        others = Plan.objects.exclude(slug=row.slug).order_by("-weight", "slug")
        shares = ", ".join(f"{plan.title} {plan.weight}" for plan in others[:20])
        return Question(
            f"Change the weight of the plan {row.title}?",
            (
                f"It is {row.weight} now. Others: {shares or 'none'}.",
                "In a busy pool plans share the tokens by their weights.",
                "The new weight holds in every pool at once, for the runs that wait too.",
            ),
            "Change it",
        )

    def form(self, row: Plan, data: Any = None) -> forms.Form:
        return WeightForm(data, initial={"weight": row.weight, "seen": row.weight})

    def do(self, row: Plan, given: Mapping[str, Any]) -> Done | None:
        seen, weight = given["seen"], given["weight"]
        tell = queue_actions.weigh(row, weight) if row.weight == seen else None
        return tell and Done({"weight": [seen, weight]}, tell)
