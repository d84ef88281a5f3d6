"""Authenticator apps and recovery codes, from turning them on to signing in with them."""

from __future__ import annotations

import base64
import hmac
import re
import struct
import time
from types import SimpleNamespace
from typing import Any

import pytest
from allauth.mfa.models import Authenticator
from cryptography.hazmat.primitives.asymmetric import ec
from django.conf import settings as django_settings
from django.contrib.sessions.models import Session
from django.core import mail
from django.core.management import CommandError, call_command
from django.test import Client, override_settings
from fido2.cose import ES256
from fido2.utils import websafe_encode
from fido2.webauthn import (
    AttestationObject,
    AttestedCredentialData,
    AuthenticatorData,
    CollectedClientData,
)

from accounts import keys, passwords
from accounts.models import User
from chatproject.embedded.ports import free_port
from tests.integration.account_room import (
    ELSEWHERE,
    SECOND_STEP,
    SIGN_IN,
    SIGN_OUT,
    is_signed_in,
    sign_in,
)
from tests.people import PASSWORD, Person, client_of, make_person

pytestmark = [
    pytest.mark.django_db,
    pytest.mark.urls("tests.integration.accounts_urls"),
    pytest.mark.usefixtures("plain_static", "clean_cache"),
]
SECURITY = "/accounts/security/"
ACTIVATE = f"{SECURITY}totp/activate/"
DEACTIVATE = f"{SECURITY}totp/deactivate/"
CODES = f"{SECURITY}recovery-codes/"
REAUTHENTICATE = "/accounts/reauthenticate/"


def totp(secret: str, at_s: float | None = None) -> str:
    """RFC 6238 with the usual choices: SHA-1, 30 s, six digits."""
    counter = int((time.time() if at_s is None else at_s) // 30)
    digest = hmac.digest(base64.b32decode(secret), struct.pack(">Q", counter), "sha1")
    offset = digest[-1] & 15
    number: int = struct.unpack(">I", digest[offset : offset + 4])[0] & 0x7FFFFFFF
    return f"{number % 1_000_000:06}"


def prove(client: Client, password: str = PASSWORD) -> Any:
    return client.post(REAUTHENTICATE, {"password": password})


def turn_on(person: Person) -> str:
    """The secret of an authenticator app that the person turned on as a browser does."""
    client = client_of(person)
    prove(client)
    page = client.get(ACTIVATE).content.decode()
    found = re.search(r'<code class="secret">([A-Z2-7]+)</code>', page)
    assert found
    answer = client.post(ACTIVATE, {"code": totp(found.group(1))})
    assert answer.headers["Location"] == CODES
    return found.group(1)


def recovery_codes(person: Person) -> list[str]:
    client = client_of(person)
    prove(client)
    return re.findall(r"<code>(\d{8})</code>", client.get(CODES).content.decode())


def next_code(secret: str) -> str:
    """A code that is accepted and was not used when the app was turned on."""
    return totp(secret, time.time() + 30)


def begun(person: Person, **more: Any) -> Client:
    """A browser that has given the right password."""
    client = Client()
    answer = sign_in(client, person.user.email, **more)
    assert answer.headers["Location"] == SECOND_STEP
    return client


@pytest.fixture
def owner() -> Person:
    return make_person("owner")


class TestTurningOn:
    def test_it_asks_who_it_is_first(self, owner: Person) -> None:
        for url in (
            ACTIVATE,
            CODES,
            f"{SECURITY}recovery-codes/generate/",
            f"{SECURITY}webauthn/add/",
        ):
            answer = client_of(owner).get(url)
            if answer.status_code != 404:  # no recovery codes yet
                assert answer.headers["Location"].startswith(REAUTHENTICATE)

    def test_the_picture_needs_no_image_of_elsewhere(self, owner: Person) -> None:
        client = client_of(owner)
        prove(client)
        page = client.get(ACTIVATE)
        assert "<svg" in page.content.decode()
        assert "data:" not in page.content.decode()
        assert "no-store" in page.headers["Cache-Control"]

    def test_a_wrong_code_turns_nothing_on(self, owner: Person) -> None:
        client = client_of(owner)
        prove(client)
        client.get(ACTIVATE)
        assert client.post(ACTIVATE, {"code": "000000"}).status_code == 200
        assert not Authenticator.objects.exists()

    def test_its_secret_is_sealed_and_its_person_is_told(
        self, owner: Person, django_capture_on_commit_callbacks: Any
    ) -> None:
        with django_capture_on_commit_callbacks(execute=True):
            secret = turn_on(owner)
        stored = [str(row.data) for row in Authenticator.objects.all()]
        assert len(stored) == 2  # the app, and recovery codes with it
        assert not any(secret in text for text in stored)
        assert mail.outbox[-1].to == [owner.user.email]

    @pytest.mark.parametrize(
        ("problem", "status"), [(keys.KeyDestroyed, 409), (keys.KeysUnavailable, 503)]
    )
    def test_without_a_key_nothing_is_turned_on_and_a_page_says_so(
        self,
        owner: Person,
        monkeypatch: pytest.MonkeyPatch,
        problem: type[Exception],
        status: int,
    ) -> None:
        client = client_of(owner)
        prove(client)
        page = client.get(ACTIVATE).content.decode()
        found = re.search(r'<code class="secret">([A-Z2-7]+)</code>', page)
        assert found

        def fail(owner_id: object) -> None:
            raise problem("no key")

        monkeypatch.setattr(keys, "for_sealing", fail)
        answer = client.post(ACTIVATE, {"code": totp(found.group(1))})
        assert answer.status_code == status
        assert "This cannot be done now" in answer.content.decode()
        assert not Authenticator.objects.exists()

    def test_another_s_row_opens_nothing(self, owner: Person) -> None:
        """A secret that is moved to another person's row is no secret of theirs."""
        other = make_person("other")
        secret = turn_on(owner)
        turn_on(other)
        mine = Authenticator.objects.get(user=owner.user, type="totp")
        keys.forget_all()
        moved = mine.data["secret"].replace(owner.user.id.hex, other.user.id.hex)
        Authenticator.objects.filter(user=other.user, type="totp").update(data={"secret": moved})
        client = begun(other)
        client.post(SECOND_STEP, {"code": next_code(secret)})
        assert not is_signed_in(client)


class TestSigningIn:
    def test_the_password_alone_lets_nobody_in(self, owner: Person) -> None:
        secret = turn_on(owner)
        client = begun(owner, next="/c/c_1")
        assert not is_signed_in(client)
        assert client.get("/accounts/").headers["Location"].startswith(SIGN_IN)
        assert "second step" in client.get(SECOND_STEP).content.decode()
        answer = client.post(SECOND_STEP, {"code": next_code(secret)})
        assert answer.headers["Location"] == "/c/c_1"
        assert is_signed_in(client)

    def test_a_code_works_once(self, owner: Person) -> None:
        code = next_code(turn_on(owner))
        assert begun(owner).post(SECOND_STEP, {"code": code}).status_code == 302
        client = begun(owner)
        assert client.post(SECOND_STEP, {"code": code}).status_code == 200
        assert not is_signed_in(client)

    @pytest.mark.parametrize("code", ["", "000000", "x" * 5000, "１２３４５６", "a\x00b", "'"])
    def test_wrong_codes_are_only_wrong(self, owner: Person, code: str) -> None:
        turn_on(owner)
        client = begun(owner)
        assert client.post(SECOND_STEP, {"code": code}).status_code == 200
        assert not is_signed_in(client)

    def test_a_recovery_code_works_once(self, owner: Person) -> None:
        turn_on(owner)
        codes = recovery_codes(owner)
        assert len(set(codes)) == 10
        client = begun(owner)
        assert client.post(SECOND_STEP, {"code": codes[0]}).status_code == 302
        assert is_signed_in(client)
        assert begun(owner).post(SECOND_STEP, {"code": codes[0]}).status_code == 200
        assert codes[0] not in recovery_codes(owner)

    def test_guesses_are_limited_from_wherever_they_come(self, owner: Person) -> None:
        secret = turn_on(owner)
        for number in range(9):  # turning it on was the first
            begun(owner, address=f"192.0.2.{number}").post(SECOND_STEP, {"code": "000000"})
        client = begun(owner, address="198.51.100.1")
        answer = client.post(SECOND_STEP, {"code": next_code(secret)})
        assert "Too many tries" in answer.content.decode()
        assert not is_signed_in(client)

    def test_without_redis_codes_are_refused_and_nobody_gets_in_by_guessing(
        self, owner: Person
    ) -> None:
        secret = turn_on(owner)
        client = begun(owner)
        gone = f"redis://127.0.0.1:{free_port()}/0"
        away = {"default": {**django_settings.CACHES["default"], "LOCATION": gone}}
        with override_settings(CACHES=away):
            for code in ("000000", next_code(secret)):
                page = client.post(SECOND_STEP, {"code": code})
                assert page.status_code == 200
                assert "away for a moment" in page.content.decode()
        assert not is_signed_in(client)
        assert client.post(SECOND_STEP, {"code": next_code(secret)}).status_code == 302

    def test_somebody_disabled_in_between_stays_outside(self, owner: Person) -> None:
        secret = turn_on(owner)
        client = begun(owner)
        User.objects.filter(id=owner.user.id).update(is_active=False)
        answer = client.post(SECOND_STEP, {"code": next_code(secret)})
        assert answer.headers["Location"] == "/accounts/inactive/"
        assert "disabled" in client.get("/accounts/inactive/").content.decode()
        assert not is_signed_in(client)
        assert not client.session.get("_auth_user_id")

    def test_the_page_is_of_no_use_without_a_password(self, owner: Person) -> None:
        secret = turn_on(owner)
        for client in (Client(), client_of(make_person("other"))):
            answer = client.post(SECOND_STEP, {"code": next_code(secret)})
            assert answer.status_code == 302
        assert Client().get(SECOND_STEP).headers["Location"] == SIGN_IN

    def test_turning_back_forgets_the_password(self, owner: Person) -> None:
        turn_on(owner)
        client = begun(owner)
        client.post(SIGN_OUT)
        assert client.get(SECOND_STEP).headers["Location"] == SIGN_IN

    def test_a_reset_password_does_not_go_round_it(self, owner: Person) -> None:
        turn_on(owner)
        owner.user.set_password("a quite different one")
        owner.user.save()
        client = Client()
        answer = sign_in(client, owner.user.email, "a quite different one")
        assert answer.headers["Location"] == SECOND_STEP

    def test_a_one_time_password_still_comes_first_afterwards(self, owner: Person) -> None:
        secret = turn_on(owner)
        User.objects.filter(id=owner.user.id).update(preferences={passwords.IS_TEMPORARY: True})
        answer = begun(owner).post(SECOND_STEP, {"code": next_code(secret)})
        assert answer.headers["Location"].startswith("/accounts/change-password/")

    @pytest.mark.parametrize("wanted", ELSEWHERE)
    def test_next_leads_nowhere_else(self, owner: Person, wanted: str) -> None:
        secret = turn_on(owner)
        client = begun(owner, next=wanted)
        answer = client.post(f"{SECOND_STEP}", {"code": next_code(secret), "next": wanted})
        assert answer.headers["Location"] == "/"

    @pytest.mark.urls("chatproject.urls")
    def test_the_admin_is_behind_the_same_door(self) -> None:
        boss = make_person("boss", is_staff=True, is_superuser=True)
        secret = turn_on(boss)
        client = begun(boss, next="/admin/")
        assert client.get("/admin/").status_code == 302
        answer = client.post(SECOND_STEP, {"code": next_code(secret)})
        assert answer.headers["Location"] == "/admin/"
        assert client.get("/admin/").status_code == 200

    def test_a_destroyed_key_fits_no_code(self, owner: Person) -> None:
        """Not even those of an empty secret, which anybody could compute."""
        secret = turn_on(owner)
        keys.destroy(owner.user.id)
        client = begun(owner)
        for code in (next_code(secret), totp(""), totp("", time.time() + 30)):
            assert client.post(SECOND_STEP, {"code": code}).status_code == 200
        assert not is_signed_in(client)


class TestTurningOff:
    def test_it_asks_who_it_is_first(self, owner: Person) -> None:
        turn_on(owner)
        client = client_of(owner)
        for method in (client.get, client.post):
            assert method(DEACTIVATE).headers["Location"].startswith("/accounts/reauthenticate/")
        assert Authenticator.objects.filter(user=owner.user).count() == 2

    @pytest.mark.parametrize("by", ["password", "code"])
    def test_then_the_password_is_enough_and_the_codes_are_gone(
        self, owner: Person, by: str
    ) -> None:
        secret = turn_on(owner)
        client = client_of(owner)
        if by == "password":
            prove(client)
        else:
            client.post(f"{SECURITY}reauthenticate/", {"code": next_code(secret)})
        assert client.get(DEACTIVATE).status_code == 200
        assert client.post(DEACTIVATE).headers["Location"] == SECURITY
        assert not Authenticator.objects.filter(user=owner.user).exists()
        assert sign_in(Client(), owner.user.email).headers["Location"] == "/"

    def test_another_person_s_stays(self, owner: Person) -> None:
        turn_on(owner)
        other = client_of(make_person("other"))
        prove(other)
        assert other.post(DEACTIVATE).status_code == 404
        assert Authenticator.objects.filter(user=owner.user).count() == 2

    def test_new_recovery_codes_end_the_old_ones(self, owner: Person) -> None:
        turn_on(owner)
        old = recovery_codes(owner)
        client = client_of(owner)
        prove(client)
        client.post(f"{CODES}generate/")
        assert not set(old) & set(recovery_codes(owner))
        assert begun(owner).post(SECOND_STEP, {"code": old[0]}).status_code == 200
        download = client.get(f"{CODES}download/")
        assert "attachment" in download.headers["Content-Disposition"]

    def test_an_operator_can_turn_it_off_for_somebody_who_lost_everything(
        self, owner: Person
    ) -> None:
        turn_on(owner)
        call_command("remove_second_factor", owner.user.email.upper())
        assert sign_in(Client(), owner.user.email).headers["Location"] == "/"
        with pytest.raises(CommandError, match="nobody"):
            call_command("remove_second_factor", "nobody@example.org")


def test_the_pages_are_for_people_who_are_signed_in(owner: Person) -> None:
    disabled = make_person("off", is_active=False)
    for client in (Client(), client_of(disabled)):
        for url in (SECURITY, ACTIVATE, DEACTIVATE, CODES, f"{SECURITY}webauthn/", "/accounts/"):
            answer = client.get(url)
            assert answer.status_code == 302, url
            assert answer.headers["Location"].startswith(SIGN_IN), url
    for url in (SECURITY, f"{SECURITY}webauthn/", "/accounts/"):
        assert client_of(owner).get(url).status_code == 200


def make_passkey(person: Person) -> None:
    """A row as a browser would have made it."""
    public = ec.generate_private_key(ec.SECP256R1()).public_key()
    key = ES256.from_cryptography_key(public)  # type: ignore[no-untyped-call]
    made = AttestedCredentialData.create(b"\0" * 16, b"id", key)
    flags = AuthenticatorData.FLAG.UP | AuthenticatorData.FLAG.AT
    attested = AttestationObject.create(
        "none", AuthenticatorData.create(b"\0" * 32, flags, 0, made), {}
    )
    client = CollectedClientData.create("webauthn.create", b"challenge", "https://example.org")
    credential = {
        "id": websafe_encode(b"id"),
        "rawId": websafe_encode(b"id"),
        "type": "public-key",
        "response": {
            "clientDataJSON": websafe_encode(client),
            "attestationObject": websafe_encode(attested),
        },
        "clientExtensionResults": {},
    }
    data = {"name": "key", "credential": credential}
    Authenticator.objects.create(user=person.user, type="webauthn", data=data)


PASSKEY_SIGN_IN = f"{SECURITY}webauthn/login/"


class TestMadeUpPasskeys:
    """What anybody can post before anybody knows them."""

    @pytest.mark.parametrize(
        "credential", ["[" * 100_000, "[" * 16_000, "1" * 5000, "{" * 200, "[" * 900 + "]" * 900]
    )
    def test_they_are_only_wrong_at_every_door(self, owner: Person, credential: str) -> None:
        turn_on(owner)
        make_passkey(owner)
        inside = client_of(owner)
        prove(inside)
        doors = [
            (Client(), PASSKEY_SIGN_IN),
            (begun(owner), SECOND_STEP),
            (inside, f"{SECURITY}webauthn/reauthenticate/"),
            (inside, f"{SECURITY}webauthn/add/"),
        ]
        for client, door in doors:
            answer = client.post(door, {"credential": credential, "name": "key"})
            assert answer.status_code in (200, 302), door
            assert credential[:100] not in answer.content.decode()

    @pytest.fixture(autouse=True)
    def one_window(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """All that is counted falls into the same five minutes."""
        now = time.time()
        monkeypatch.setattr("django_ratelimit.core.time", SimpleNamespace(time=lambda: now))

    def test_each_counts_whatever_it_holds(self) -> None:
        form = {"credential": "{"}
        tries = [Client().post(PASSKEY_SIGN_IN, form).status_code for _ in range(61)]
        assert tries[-2:] == [302, 429]

    def test_nobody_makes_sessions_without_end(self) -> None:
        headers = {"X-Requested-With": "XMLHttpRequest"}
        for _ in range(70):
            answer = Client().get(PASSKEY_SIGN_IN, headers=headers)
        assert answer.status_code == 429
        assert Client().head(PASSKEY_SIGN_IN, headers=headers).status_code == 429
        assert Session.objects.count() == 60
        elsewhere = Client().get(PASSKEY_SIGN_IN, headers=headers, REMOTE_ADDR="192.0.2.9")
        assert elsewhere.status_code == 200
