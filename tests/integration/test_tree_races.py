"""Two things at once in one conversation: the order is forced by locks that the test holds."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from django.db import transaction
from django.utils import timezone

from accounts.errors import NotFound
from accounts.models import User
from conversations import services
from conversations.content import text_content
from conversations.models import Conversation, Feedback, Message
from conversations.selectors import FeedbackView, feedback_of
from generation import chores, runs
from generation.deletion import delete, restore
from generation.exceptions import RunLive, RunStopping
from generation.feedback import give_feedback
from generation.models import Run
from generation.regenerate import RegenerateRequest, regenerate
from generation.stop import request_stop
from generation.switching import switch
from quotas.models import UsageEntry
from tests.integration.tree_room import (
    PATIENCE_S,
    Racers,
    answered,
    ask,
    claim,
    conversation_id,
    empty_queues,
    finish,
    leaf_of,
    locked,
    message_id,
    names,
    racing,
    stored,
)
from tests.people import make_person

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def queues() -> Iterator[None]:
    with empty_queues():
        yield


@pytest.fixture
def owner() -> User:
    return make_person().user


@pytest.fixture
def racers() -> Iterator[Racers]:
    with racing() as found:
        yield found


class Gate:
    """Holds the first call of a function, before it does anything, until it is opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, module: Any, name: str) -> None:
        self._original = getattr(module, name)
        self.reached = threading.Event()
        self.open = threading.Event()
        monkeypatch.setattr(module, name, self._call)

    def _call(self, *args: Any, **kwargs: Any) -> Any:
        if not self.reached.is_set():
            self.reached.set()
            assert self.open.wait(PATIENCE_S)
        return self._original(*args, **kwargs)


def again(owner: User, run: Run, **fields: Any) -> Run:
    values = {"model": None, "key": None, **fields}
    return regenerate(
        owner, RegenerateRequest(conversation_id(run), message_id(run.reply_id), **values)
    )


def live(run: Run) -> list[Run]:
    return runs.live_runs_of(run.conversation_id)


# --- two devices ----------------------------------------------------------------------------------


def test_two_devices_edit_at_once(owner: User, racers: Racers) -> None:
    first = answered(owner)
    follow_up = finish(ask(owner, first.conversation, parent_id=first.reply_id))

    def edit(text: str) -> Run:
        parts = text_content(text)
        return ask(owner, first.conversation, parent_id=first.reply_id, parts=parts)

    with locked(first.conversation_id):
        one = racers.start_blocked(lambda: edit("one"), 1)
        two = racers.start_blocked(lambda: edit("two"), 2)
    edits = [one.result(PATIENCE_S), two.result(PATIENCE_S)]
    versions = Message.objects.filter(parent_id=first.reply_id, role="user")
    assert {row.id for row in versions} == {follow_up.parent_id, *(run.parent_id for run in edits)}
    assert leaf_of(first) == edits[1].parent_id, "who came last is shown"
    assert live(first) == edits
    finish(edits[0])
    assert leaf_of(first) == edits[1].parent_id, "the other device's answer pulls nobody away"
    finish(edits[1])
    assert leaf_of(first) == edits[1].reply_id


def test_regenerate_twice_at_once(owner: User, racers: Racers) -> None:
    first = answered(owner)
    with locked(first.conversation_id):
        one = racers.start_blocked(lambda: again(owner, first), 1)
        two = racers.start_blocked(lambda: again(owner, first, model="other"), 2)
    made = [one.result(PATIENCE_S), two.result(PATIENCE_S)]
    assert [run.parent_id for run in made] == [first.parent_id] * 2
    assert [run.model_used for run in made] == ["tree", "other"]
    assert live(first) == made
    assert leaf_of(first) == first.parent_id
    for run in reversed(made):
        finish(run, run.model_used)
    assert leaf_of(first) == made[1].reply_id, "the first to end is shown, and stays"
    assert [stored(run) for run in (first, *made)] == ["Answer", "tree", "other"]


def test_regenerate_twice_at_once_with_one_key(owner: User, racers: Racers) -> None:
    first = answered(owner)
    with locked(first.conversation_id):
        one = racers.start_blocked(lambda: again(owner, first, key="k"), 1)
        two = racers.start_blocked(lambda: again(owner, first, key="k"), 2)
    assert one.result(PATIENCE_S) == two.result(PATIENCE_S)
    assert len(live(first)) == 1


# --- stop -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("named", [False, True], ids=["active leaf", "reply"])
def test_a_send_below_a_stopping_answer(owner: User, named: bool) -> None:
    run = ask(owner)
    claim(run)
    target = {"parent_id": run.reply_id if named else leaf_of(run)}
    with pytest.raises(RunLive) as refusal:
        ask(owner, run.conversation, **target)
    assert not isinstance(refusal.value, RunStopping), "nobody has stopped it"
    request_stop(owner, run.external_id)
    with pytest.raises(RunStopping) as waits:
        ask(owner, run.conversation, **target)
    assert (waits.value.run, waits.value.pool) == (run.external_id, run.pool_id)
    assert run.external_id in waits.value.message
    assert Message.objects.count() == 1
    finish(run, "Half an ans", "user_stopped")
    sent = ask(owner, run.conversation, parent_id=leaf_of(run))
    assert sent.parent.parent_id == run.reply_id


# --- switch ---------------------------------------------------------------------------------------


def test_switch_during_an_answer(owner: User) -> None:
    first = answered(owner)
    second = again(owner, first)
    c = conversation_id(first)
    with pytest.raises(RunLive, match=second.external_id):
        switch(owner, c, message_id(second.reply_id), None)
    claim(second)
    with pytest.raises(RunLive, match=second.external_id):
        switch(owner, c, message_id(second.reply_id), None)
    assert switch(owner, c, message_id(first.parent_id), None).active_leaf_id == first.reply_id
    finish(second)
    assert leaf_of(first) == first.reply_id, "the finish pulls nobody away"
    row = switch(owner, c, message_id(first.parent_id), None)
    assert row.active_leaf_id == second.reply_id, "the newest leaf below"


def test_switch_to_the_message_while_its_answer_is_stored(
    owner: User, racers: Racers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The finish is inside its transaction; the switch waits for it and sees the reply."""
    first = answered(owner)
    second = ask(owner, first.conversation, parent_id=None)
    claim(second)
    switch(owner, conversation_id(first), message_id(first.reply_id), None)
    gate = Gate(monkeypatch, services, "touch_and_follow")
    finishing = racers.start(lambda: finish(second))
    assert gate.reached.wait(PATIENCE_S)
    switching = racers.start_blocked(
        lambda: switch(owner, conversation_id(first), message_id(second.parent_id), None)
    )
    gate.open.set()
    finishing.result(PATIENCE_S)
    assert switching.result(PATIENCE_S).active_leaf_id == second.reply_id
    assert leaf_of(first) == second.reply_id


def test_an_answer_ends_while_its_message_is_being_chosen(
    owner: User, racers: Racers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other order: the finish waits for the switch, and then follows the reader."""
    first = answered(owner)
    second = ask(owner, first.conversation, parent_id=None)
    claim(second)
    switch(owner, conversation_id(first), message_id(first.reply_id), None)
    gate = Gate(monkeypatch, services, "set_active_leaf")
    switching = racers.start(
        lambda: switch(owner, conversation_id(first), message_id(second.parent_id), None)
    )
    assert gate.reached.wait(PATIENCE_S)
    finishing = racers.start_blocked(lambda: finish(second))
    gate.open.set()
    assert switching.result(PATIENCE_S).active_leaf_id == second.parent_id
    finishing.result(PATIENCE_S)
    assert leaf_of(first) == second.reply_id


# --- the end --------------------------------------------------------------------------------------


@pytest.mark.parametrize("same", [True, False], ids=["a commit not heard of", "two owners"])
def test_two_processes_finish_the_same_run(owner: User, racers: Racers, same: bool) -> None:
    run = ask(owner)
    claimed = claim(run)
    outcomes = [runs.Outcome("stop", "One", 5), runs.Outcome("stop", "Two", 5 if same else 6)]
    with locked(run.conversation_id):
        first, second = (
            racers.start_blocked(partial(runs.finish, claimed, outcome), waiting)
            for waiting, outcome in enumerate(outcomes, 1)
        )
    done = first.result(PATIENCE_S)
    assert done is not None
    assert second.result(PATIENCE_S) == (done if same else None)
    assert stored(run) == "One"
    assert Message.objects.filter(role="assistant").count() == 1
    assert UsageEntry.objects.filter(run_id=run.id).count() == 1


def test_an_owner_and_a_reaper_end_the_same_run(owner: User, racers: Racers) -> None:
    """The takeover waits for the finish and finds the run ended."""
    run = ask(owner)
    claimed = claim(run)
    with locked(run.conversation_id):
        finishing = racers.start_blocked(
            lambda: runs.finish(claimed, runs.Outcome("stop", "Whole", 5)), 1
        )
        taking = racers.start_blocked(lambda: runs.take_over(run.id, 1, "reaper"), 2)
    assert finishing.result(PATIENCE_S) is not None
    assert taking.result(PATIENCE_S) is None
    assert stored(run) == "Whole"


# --- delete ---------------------------------------------------------------------------------------


def test_delete_during_an_answer_and_undo(owner: User) -> None:
    run = ask(owner)
    claim(run)
    delete(owner, conversation_id(run), None)
    run.refresh_from_db()
    assert run.stop_requested_at is not None
    with pytest.raises(NotFound):
        runs.access_run(owner, run.external_id)
    finish(run, "Half an ans", "user_stopped")
    restore(owner, conversation_id(run))
    assert stored(run) == "Half an ans"
    assert leaf_of(run) == run.reply_id


def test_delete_of_a_conversation_whose_answer_waits(owner: User) -> None:
    run = ask(owner)
    delete(owner, conversation_id(run), None)
    run.refresh_from_db()
    assert (run.status, run.finish) == ("stopped", "user_stopped")
    assert names(run) == [(1, "start"), (2, "done")]


def test_a_finish_and_a_delete_at_once_do_not_wait_for_each_other(
    owner: User, racers: Racers
) -> None:
    run = ask(owner)
    claimed = claim(run)
    with locked(run.conversation_id):
        deleting = racers.start_blocked(lambda: delete(owner, conversation_id(run), None), 1)
        outcome = runs.Outcome("stop", "Whole", 5)
        finishing = racers.start_blocked(lambda: runs.finish(claimed, outcome), 2)
    deleting.result(PATIENCE_S)
    assert finishing.result(PATIENCE_S) is not None
    restore(owner, conversation_id(run))
    assert stored(run) == "Whole"


def test_regenerate_then_delete(owner: User, racers: Racers) -> None:
    """The run that was made is stopped with the others."""
    first = answered(owner)
    with locked(first.conversation_id):
        one = racers.start_blocked(lambda: again(owner, first), 1)
        two = racers.start_blocked(lambda: delete(owner, conversation_id(first), None), 2)
    run = one.result(PATIENCE_S)
    two.result(PATIENCE_S)
    run.refresh_from_db()
    assert (run.status, run.finish) == ("stopped", "user_stopped")
    assert live(first) == []


def _regenerate(owner: User, run: Run) -> Run:
    return again(owner, run)


def _send(owner: User, run: Run) -> Run:
    return ask(owner, run.conversation, parent_id=run.reply_id)


def _switch(owner: User, run: Run) -> Conversation:
    return switch(owner, conversation_id(run), message_id(run.parent_id), None)


@pytest.mark.parametrize("act", [_regenerate, _send, _switch])
def test_what_comes_a_moment_after_a_delete(
    owner: User, racers: Racers, act: Callable[[User, Run], object]
) -> None:
    """It had seen the conversation, and finds it gone once it has the lock."""
    first = answered(owner)
    with locked(first.conversation_id):
        one = racers.start_blocked(lambda: delete(owner, conversation_id(first), None), 1)
        two = racers.start_blocked(lambda: act(owner, first), 2)
    one.result(PATIENCE_S)
    with pytest.raises(NotFound):
        two.result(PATIENCE_S)
    assert live(first) == []
    assert Message.objects.count() == 2


# --- feedback -------------------------------------------------------------------------------------


def test_two_devices_give_feedback_at_once(owner: User, racers: Racers) -> None:
    run = answered(owner)
    reply = message_id(run.reply_id)
    with transaction.atomic():
        Message.objects.select_for_update(no_key=True).get(id=run.reply_id)
        said = [
            racers.start_blocked(partial(give_feedback, owner, reply, rating, rating), waiting)
            for waiting, rating in enumerate(("up", "down"), 1)
        ]
    for one in said:
        one.result(PATIENCE_S)
    assert feedback_of(owner, [run.reply_id]) == {run.reply_id: FeedbackView("down", "down")}


def test_an_answer_ends_while_feedback_looks_for_it(
    owner: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between its two look-ups: it is live for the first one, or there for the second."""
    run = ask(owner)
    claim(run)
    look = runs.live_run_of_own

    def then_it_ends(*args: Any) -> Run | None:
        found = look(*args)
        finish(run)
        return found

    monkeypatch.setattr(runs, "live_run_of_own", then_it_ends)
    with pytest.raises(RunLive):
        give_feedback(owner, message_id(run.reply_id), "up", "")


# --- purge ----------------------------------------------------------------------------------------

NOW = timedelta(days=1)


def _purge(run: Run) -> bool:
    return chores.purge_one(run.conversation_id, timezone.now() + NOW)


def test_a_finish_after_the_purge(owner: User) -> None:
    run = ask(owner)
    claim(run)
    delete(owner, conversation_id(run), None)
    assert _purge(run)
    done = runs.finish(runs._claim_of(run.id), runs.Outcome("user_stopped", "secret", 5))
    assert done is not None
    assert done["finish"] == "user_stopped"
    assert stored(run) == ""
    assert UsageEntry.objects.filter(run_id=run.id).count() == 1
    end = runs.run_ends([run.external_id])[run.external_id]
    assert end is not None
    assert (end.text, end.last_seq) == ("", 5)


def test_a_purge_while_the_reply_is_being_stored(
    owner: User, racers: Racers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The purge waits, and takes the reply's text too."""
    run = ask(owner)
    claim(run)
    delete(owner, conversation_id(run), None)
    gate = Gate(monkeypatch, services, "touch_and_follow")
    finishing = racers.start(lambda: finish(run, "secret", "user_stopped"))
    assert gate.reached.wait(PATIENCE_S)
    purging = racers.start_blocked(lambda: _purge(run))
    gate.open.set()
    finishing.result(PATIENCE_S)
    assert purging.result(PATIENCE_S)
    assert stored(run) == ""


def test_a_reply_is_stored_while_the_purge_writes(
    owner: User, racers: Racers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The finish waits, and leaves no text."""
    run = ask(owner)
    claim(run)
    delete(owner, conversation_id(run), None)
    gate = Gate(monkeypatch, Feedback.objects, "filter")
    purging = racers.start(lambda: _purge(run))
    assert gate.reached.wait(PATIENCE_S)
    finishing = racers.start_blocked(lambda: finish(run, "secret", "user_stopped"))
    gate.open.set()
    assert purging.result(PATIENCE_S)
    finishing.result(PATIENCE_S)
    assert stored(run) == ""


def test_a_restore_before_the_purge_has_its_lock(owner: User, racers: Racers) -> None:
    run = answered(owner)
    delete(owner, conversation_id(run), None)
    with locked(run.conversation_id):
        restoring = racers.start_blocked(lambda: restore(owner, conversation_id(run)), 1)
        purging = racers.start_blocked(lambda: _purge(run), 2)
    restoring.result(PATIENCE_S)
    assert not purging.result(PATIENCE_S)
    assert stored(run) == "Answer"
