"""What is shown of texts that nobody can open, and how plain ones are sealed later."""

from __future__ import annotations

import io
import json
import logging
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from django.conf import settings as live_settings
from django.core.management import call_command
from django.test import Client

from accounts import keys
from accounts.ids import external_id, new_id
from accounts.key_ring import new_entry
from accounts.models import User
from accounts.sealing import KeysUnavailable
from conversations import selectors, services
from conversations.content import text_content
from conversations.models import Conversation, Message
from generation.management.commands import seal_texts
from generation.management.commands.seal_texts import PLACES, seal_all
from tests.integration.conversation_rows import make_thread
from tests.people import Person, bearer, make_person

NEW = new_entry("new")


@pytest.fixture(autouse=True)
def fresh_cache() -> Iterator[None]:
    keys.forget_all()
    yield
    keys.forget_all()


def _ring_text() -> str:
    return str(live_settings.MASTER_KEYS)


def output_of(*command: str, **options: Any) -> str:
    out = io.StringIO()
    call_command(*command, stdout=out, **options)
    return out.getvalue()


@pytest.mark.django_db
class TestUnreadableInTheApi:
    def test_what_a_destroyed_user_sees(self) -> None:
        person = make_person()
        conversation, ids = make_thread(person.user, 3)
        services.rename(conversation, "Planted title")
        keys.destroy(person.user.pk)
        detail = ask(person, f"/v1/conversations/{external_id('c', conversation.pk)}").json()
        assert detail["title"] == ""
        assert [external_id("m", one) for one in ids] == [one["id"] for one in detail["messages"]]
        assert [(one["content"], one["readable"]) for one in detail["messages"]] == [
            ([], False)
        ] * 3
        items = ask(person, "/v1/conversations").json()["items"]
        assert [item["title"] for item in items] == [""]

    def test_a_destroyed_user_can_write_nothing(self) -> None:
        person = make_person()
        keys.destroy(person.user.pk)
        answer = post(person, "/v1/conversations", {"title": "New"})
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "text_destroyed")
        assert not Conversation.objects.exists()

    def test_an_answer_under_way_ends_without_its_text(self) -> None:
        conversation, ids = make_thread(make_person().user, 1)
        keys.destroy(conversation.owner_id)
        reply_id = new_id()
        assert services.add_reply(
            reply_id=reply_id,
            conversation_id=conversation.pk,
            owner_id=conversation.owner_id,
            parent_id=ids[0],
            text="Planted",
            token_count=1,
        )
        assert bytes(Message.objects.get(pk=reply_id).content) == b""
        assert selectors.message_text(conversation.pk, reply_id) == ""

    def test_changed_bytes_hide_one_message_and_not_the_others(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        person = make_person()
        conversation, ids = make_thread(person.user, 3)
        moved = Message.objects.get(pk=ids[0]).content
        Message.objects.filter(pk=ids[1]).update(content=moved)
        with caplog.at_level(logging.ERROR):
            detail = ask(person, f"/v1/conversations/{external_id('c', conversation.pk)}").json()
        assert [message["readable"] for message in detail["messages"]] == [True, False, True]
        assert str(ids[1]) in caplog.text

    @pytest.mark.parametrize("ring", [NEW, NEW.replace("new:", "tests:"), "", "tests:***"])
    def test_without_the_right_master_key_nothing_is_read_or_written(
        self, settings: Any, caplog: pytest.LogCaptureFixture, ring: str
    ) -> None:
        person = make_person()
        conversation, ids = make_thread(person.user, 2)
        before = bytes(Message.objects.get(pk=ids[0]).content)
        keys.forget_all()
        settings.MASTER_KEYS = ring
        path = f"/v1/conversations/{external_id('c', conversation.pk)}"
        answers = [ask(person, path), post(person, "/v1/conversations", {"title": "Planted"})]
        assert [answer.status_code for answer in answers] == [503, 503]
        assert all(answer.headers["Retry-After"] for answer in answers)
        assert Conversation.objects.count() == 1
        with pytest.raises(KeysUnavailable):
            services.add_user_message(conversation, ids[1], text_content("Planted"))
        assert bytes(Message.objects.get(pk=ids[0]).content) == before
        assert "Planted" not in caplog.text
        assert ring.partition(":")[2] not in caplog.text or not ring
        settings.MASTER_KEYS = _TESTS_RING
        assert ask(person, path).status_code == 200


_TESTS_RING = _ring_text()


def ask(person: Person, path: str) -> Any:
    return Client().get(path, headers=bearer(person))


def post(person: Person, path: str, body: object) -> Any:
    return Client().post(
        path, json.dumps(body), content_type="application/json", headers=bearer(person)
    )


# --- what the first version wrote -----------------------------------------------------------------


@pytest.mark.django_db
class TestSealingWhatWasPlain:
    def plain_thread(self, user: User, length: int) -> tuple[Conversation, list[uuid.UUID]]:
        conversation, ids = make_thread(user, length)
        for one in ids:
            raw = json.dumps(text_content(f"plain {one}")).encode()
            Message.objects.filter(pk=one).update(content=b"\x00" + raw)
        Conversation.objects.filter(pk=conversation.pk).update(title=b"\x00Plain title")
        conversation.refresh_from_db()
        return conversation, ids

    def formats(self) -> set[int]:
        rows = [*Message.objects.values_list("content", flat=True)]
        rows += Conversation.objects.exclude(title=b"").values_list("title", flat=True)
        return {bytes(row)[0] for row in rows}

    def test_everything_is_sealed_and_reads_as_before(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("generation.management.commands.seal_texts.BATCH", 3)
        threads = [self.plain_thread(make_person().user, 4) for _ in range(2)]
        read = [selectors.message_text(row.pk, one) for row, ids in threads for one in ids]
        assert (self.formats(), services.title_of(threads[0][0])) == ({0}, "Plain title")
        assert "content: 8" in output_of("seal_texts")
        assert self.formats() == {1}
        again = [selectors.message_text(row.pk, one) for row, ids in threads for one in ids]
        assert again == read
        stored = Conversation.objects.get(pk=threads[0][0].pk)
        assert (services.title_of(stored), stored.revision) == (
            "Plain title",
            threads[0][0].revision,
        )
        assert output_of("seal_texts") == ""

    def test_a_title_changed_meanwhile_stays_changed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Read plain, then renamed, then written: the old title must not come back."""
        conversation, _ids = self.plain_thread(make_person().user, 1)
        find = seal_texts._plain_rows

        def find_then_renamed(*args: Any) -> Any:
            found = find(*args)
            services.rename(conversation, "New title")
            return found

        monkeypatch.setattr(seal_texts, "_plain_rows", find_then_renamed)
        assert seal_all(PLACES[0]) == 0
        assert services.title_of(Conversation.objects.get(pk=conversation.pk)) == "New title"
