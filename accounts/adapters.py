"""How django-allauth meets this product: its hooks, filled with our rules.

Its own rate limits are off (`accounts.rate_limits` counts, and works without Redis where it may);
its authentication backend is not used (Django's own finds people without regard to case).
"""

from __future__ import annotations

import base64
import binascii
import io
import logging
import secrets
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import qrcode
from allauth.account.adapter import DefaultAccountAdapter
from allauth.account.models import EmailAddress
from allauth.core import context
from allauth.core.exceptions import ImmediateHttpResponse
from allauth.mfa.adapter import DefaultMFAAdapter
from allauth.mfa.models import Authenticator
from allauth.socialaccount.adapter import DefaultSocialAccountAdapter, _build_apps_from_settings
from allauth.usersessions.models import UserSession
from django.conf import settings
from django.contrib import messages
from django.core.exceptions import ValidationError
from django.db.models.functions import Lower
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.urls import reverse
from django.utils import translation
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.translation import gettext_lazy as _
from qrcode.image.svg import SvgPathImage

from accounts import mail, passwords, rate_limits, sealing, site
from accounts.errors import RateLimited
from accounts.models import User
from accounts.preferences import preferences_of

logger = logging.getLogger(__name__)

MAX_SESSIONS = 50
"""A script that signs in without end would else make each sign-in of its person slower: the list is
gone through at each."""
NOT_PLAIN = _(
    "Only plain letters, digits and signs are possible here. Write a domain such as "
    "bücher.example in its xn-- form."
)
BY = {
    "reauthenticate": _("your password"),
    "reauthenticate_by_code": _("a code by mail"),
    "mfa_reauthenticate": _("your authenticator app, or a recovery code"),
    "mfa_reauthenticate:webauthn": _("a passkey or security key"),
}
# Said by the page itself, or the same whether an address is taken or not.
UNSAID = frozenset(
    {
        "account/messages/logged_in.txt",
        "account/messages/logged_out.txt",
        "account/messages/email_confirmation_sent.txt",
    }
)


def end_oldest_sessions(user: User) -> None:
    """At most MAX_SESSIONS of one person; the oldest end first."""
    for session in UserSession.objects.filter(user=user).order_by("-id")[MAX_SESSIONS:]:
        session.end()


class AccountAdapter(DefaultAccountAdapter):
    """Sign-up, sign-in, mails."""

    error_messages = {
        **DefaultAccountAdapter.error_messages,
        "incorrect_password": _("This is not your password."),
        "incorrect_code": _("This code is not right, or was used before."),
        "invalid_password_reset": _("This link has been used, or is too old."),
        "duplicate_email": _("This is your address already."),
        "rate_limited": _("Too many tries in a short time. Wait a moment and try again."),
        "too_many_login_attempts": _(
            "Too many tries in a short time. Wait a moment and try again."
        ),
    }

    def is_open_for_signup(self, request: HttpRequest) -> bool:
        return bool(settings.SIGN_UP_OPEN)

    def clean_email(self, email: str) -> str:
        """Refuses letters that look like others; see `forms.PlainEmailMixin`."""
        if not email.isascii():
            raise ValidationError(NOT_PLAIN)
        return email

    def save_user(self, request: HttpRequest, user: User, form: Any, commit: bool = True) -> User:
        user.confirms_address_later = True
        saved: User = super().save_user(request, user, form, commit)
        return saved

    def set_password(self, user: User, password: str) -> None:
        """Whoever chose it knows it alone: the life of a one-time password ends.

        Who has been disabled since the request began is told so, and nothing is saved.
        """
        user.set_password(password)
        if not passwords.store(user):
            request = context.request
            raise ImmediateHttpResponse(self.respond_user_inactive(request, user))

    def login(self, request: HttpRequest, user: User) -> None:
        """The last step of every way in. Somebody may have been disabled since the first one."""
        if not User.objects.filter(id=user.id, is_active=True).exists():
            raise ImmediateHttpResponse(self.respond_user_inactive(request, user))
        super().login(request, user)

    def post_login(self, request: HttpRequest, user: User, **kwargs: Any) -> HttpResponseBase:
        response: HttpResponseBase = super().post_login(request, user, **kwargs)
        end_oldest_sessions(user)
        return response

    def reauthenticate(self, user: User, password: str) -> bool:
        """Whether this is the password; counted by the form."""
        return user.is_active and user.check_password(password)

    def confirm_email(self, request: HttpRequest, email_address: EmailAddress) -> bool:
        """False also where another account holds the address and has not confirmed it."""
        others = User.objects.exclude(id=email_address.user_id).annotate(lower=Lower("email"))
        if others.filter(lower=email_address.email.lower()).exists():
            self.add_message(
                request, messages.ERROR, "account/messages/email_confirmation_failed.txt"
            )
            return False
        return bool(super().confirm_email(request, email_address))

    def should_send_confirmation_mail(
        self, request: HttpRequest, email_address: EmailAddress, signup: bool
    ) -> bool:
        """Each sign-in with an unconfirmed address sends a mail; not without end."""
        try:
            rate_limits.count(request, rate_limits.CONFIRM_ADDRESS, email_address.email)
        except RateLimited:
            return False
        return True

    def get_reauthentication_methods(self, user: User) -> list[dict[str, Any]]:
        """In our words. A mailed code is for who has nothing else: it is worth a mailbox only."""
        found = super().get_reauthentication_methods(user)
        others = [method for method in found if method["id"] != "reauthenticate_by_code"]
        return [
            {**method, "description": BY.get(method["id"], method["description"])}
            for method in others or found
        ]

    # --- where to ---------------------------------------------------------------------------------

    def is_safe_url(self, url: str | None) -> bool:
        """Only paths of this service, whatever names it has."""
        return url_has_allowed_host_and_scheme(url, allowed_hosts=None)

    def get_password_change_redirect_url(self, request: HttpRequest) -> str:
        return reverse("accounts:password_changed")

    def get_client_ip(self, request: HttpRequest) -> str:
        return rate_limits.exact_address(request)

    # --- mails ------------------------------------------------------------------------------------

    def send_mail(self, template_prefix: str, email: str, context: dict[str, Any]) -> None:
        """In the language that its reader has chosen: whoever asks for it may be somebody else.
        Raises MailNotSent, which carries a page."""
        where = SimpleNamespace(name=settings.PRODUCT_NAME, domain=site.site_url())
        whole = {"email": email, "current_site": where, **context}
        with translation.override(_language_of(email)):
            mail.send(self.render_mail(template_prefix, email, whole))

    def send_notification_mail(self, *args: Any, **kwargs: Any) -> None:
        """What it tells of has happened already: without the mail it has happened as well."""
        try:
            super().send_notification_mail(*args, **kwargs)
        except mail.MailNotSent:
            return

    def send_account_already_exists_mail(self, email: str) -> None:
        links = {
            "signup_url": site.absolute(reverse("account_signup")),
            "password_reset_url": site.absolute(reverse("account_reset_password")),
        }
        self.send_mail("account/email/account_already_exists", email, links)

    def get_email_confirmation_url(self, request: HttpRequest, emailconfirmation: Any) -> str:
        return site.absolute(reverse("account_confirm_email", args=[emailconfirmation.key]))

    def get_reset_password_from_key_url(self, key: str) -> str:
        uid, _, secret = key.partition("-")
        kwargs = {"uidb36": uid, "key": secret}
        return site.absolute(reverse("account_reset_password_from_key", kwargs=kwargs))

    def add_message(
        self,
        request: HttpRequest,
        level: int,
        message_template: str | None = None,
        *args: Any,
        **kwargs: Any,
    ) -> None:
        if message_template not in UNSAID:
            super().add_message(request, level, message_template, *args, **kwargs)


def _language_of(email: str) -> str | None:
    """None, where they have not chosen one: the page's."""
    reader = User.objects.filter(email__iexact=email).only("preferences").first()
    return (preferences_of(reader).language if reader else None) or translation.get_language()


class SocialAdapter(DefaultSocialAccountAdapter):
    """Sign-in at identity providers, which are configured in the environment alone."""

    def list_apps(
        self, request: HttpRequest, provider: str | None = None, client_id: str | None = None
    ) -> list[Any]:
        """Never from the database, where a secret would lie in every back-up."""
        found = _build_apps_from_settings(provider=provider, client_id=client_id)
        return [app for apps in found.values() for app in apps]

    def is_open_for_signup(self, request: HttpRequest, sociallogin: Any) -> bool:
        """As SIGN_UP_OPEN says, unless the provider's own `sign_up` does."""
        own = sociallogin.provider.app.settings.get("sign_up")
        return bool(settings.SIGN_UP_OPEN if own is None else own)

    def populate_user(self, request: HttpRequest, sociallogin: Any, data: dict[str, Any]) -> User:
        user = cast("User", super().populate_user(request, sociallogin, data))
        name = data.get("name") or " ".join(
            part for part in (data.get("first_name"), data.get("last_name")) if part
        )
        user.name = str(name or "").replace("\x00", "")[:150]
        return user

    def save_user(self, request: HttpRequest, sociallogin: Any, form: Any = None) -> User:
        """The provider, or a mail, confirms the address; nobody vouches for it here."""
        cast("User", sociallogin.user).confirms_address_later = True
        saved: User = super().save_user(request, sociallogin, form)
        return saved

    def on_authentication_error(
        self, request: HttpRequest, provider: Any, error: Any = None, **more: Any
    ) -> None:
        exception = more.get("exception")
        logger.warning(
            "sign-in at %s failed: %s %s",
            getattr(provider.app, "provider_id", "?"),
            error,
            type(exception).__name__ if exception else "",
            extra={"action": "oidc_failed"},
        )


class MfaAdapter(DefaultMFAAdapter):
    """Authenticator apps, recovery codes and passkeys."""

    error_messages = {
        **DefaultMFAAdapter.error_messages,
        "incorrect_code": "This is not right, or was used before. Try again.",
        "unverified_email": "Confirm your e-mail address first: the link is in your mail.",
    }

    def encrypt(self, text: str) -> str:
        """Sealed under the data key of the person who is adding it."""
        owner: UUID = context.request.user.pk
        sealed = sealing.seal("second_factor", owner, owner, text.encode())
        return f"{owner.hex}.{base64.b64encode(sealed).decode('ascii')}"

    def decrypt(self, encrypted_text: str) -> str:
        """What was sealed; where it is lost for good, a secret that fits nothing."""
        owner_hex, _, sealed = encrypted_text.partition(".")
        try:
            owner = UUID(owner_hex)
            return sealing.open_sealed(
                "second_factor", owner, owner, base64.b64decode(sealed, validate=True)
            ).decode()
        except (sealing.Unreadable, ValueError, binascii.Error) as problem:
            logger.warning(
                "a second factor cannot be opened: %s",
                type(problem).__name__,
                extra={"action": "second_factor_unreadable"},
            )
            return base64.b32encode(secrets.token_bytes(20)).decode()

    def generate_authenticator_name(self, user: User, type: Any) -> str:  # noqa: A002 — theirs
        count = Authenticator.objects.filter(user=user, type=type).count()
        return f"Passkey {count + 1}" if count else "Passkey"

    def build_totp_svg(self, url: str) -> str:
        """An `<svg>` element to stand in the page: no image of another address is allowed there."""
        image = qrcode.make(url, image_factory=SvgPathImage, box_size=10, border=2)
        buffer = io.BytesIO()
        image.save(buffer)
        text = buffer.getvalue().decode()
        return text[text.index("<svg") :]

    def get_public_key_credential_rp_entity(self) -> dict[str, str]:
        """Passkeys belong to the name in the address bar, or to SITE_URL's above it."""
        here, main = context.request.get_host().partition(":")[0], site.host()
        below = bool(main) and here.endswith(f".{main}")
        return {"id": main if below else here, "name": settings.PRODUCT_NAME}

    def get_totp_issuer(self) -> str:
        return str(settings.PRODUCT_NAME)
