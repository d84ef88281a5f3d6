"""Second factors: the forms of django-allauth, in our words and with our limits.

Codes are guessed in minutes where nobody counts, so they are refused while Redis, which counts and
remembers used ones, is away. Passkeys need neither.
"""

from __future__ import annotations

from typing import Any, cast

from allauth.mfa.base import forms as base
from allauth.mfa.totp import forms as totp
from allauth.mfa.webauthn import forms as webauthn
from django import forms
from django.core.exceptions import ValidationError
from django.db import OperationalError
from django.forms.fields import InvalidJSONInput
from django.utils.translation import gettext_lazy as _
from redis.exceptions import RedisError

from accounts import rate_limits
from accounts.forms import PlainLook, count_try

AWAY = _("A part of the service is away for a moment. Try again shortly.")
NOT_RIGHT = _("This is not right, or was used before. Try again.")
MAX_CODE_CHARACTERS = 40
# What a made-up answer of a passkey does to the library that reads it.
MALFORMED = (AttributeError, LookupError, RecursionError, TypeError, ValueError)
MAX_CREDENTIAL_CHARACTERS = 16 * 1024
"""A key's certificates are the most of it: a few thousand characters."""


class CodeMixin(PlainLook):
    """A code of an authenticator app, or a recovery code."""

    labels = {"code": _("Code")}
    user: Any
    cleaned_data: dict[str, Any]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        field = cast("forms.CharField", self.fields["code"])
        field.max_length = MAX_CODE_CHARACTERS
        field.widget.attrs |= {
            "autocapitalize": "none",
            "autofocus": True,
            "maxlength": MAX_CODE_CHARACTERS,
        }

    def clean_code(self) -> str:
        count_try(rate_limits.SECOND_FACTOR, self.user.external_id, needs_redis=True)
        code = self.cleaned_data["code"]
        if len(code) > MAX_CODE_CHARACTERS or not code.isascii():
            raise ValidationError(NOT_RIGHT)
        try:
            cleaned: str = super().clean_code()  # type: ignore[misc]
        except (RedisError, OperationalError) as error:
            raise ValidationError(AWAY) from error
        return cleaned


class ActivateTotpForm(CodeMixin, totp.ActivateTOTPForm):
    """The first code of a new authenticator app."""

    labels = {"code": _("Code that the app shows")}


class SecondFactorForm(CodeMixin, base.AuthenticateForm):
    """After the password."""


class ReauthenticateByCodeForm(CodeMixin, base.ReauthenticateForm):
    """Instead of the password."""


class CredentialField(forms.JSONField):
    """What a passkey answered; anybody can post anything here, before they sign in."""

    widget = forms.HiddenInput

    def to_python(self, value: Any) -> Any:
        if isinstance(value, str) and len(value) > MAX_CREDENTIAL_CHARACTERS:
            raise ValidationError(NOT_RIGHT)
        try:
            return super().to_python(value)
        except (RecursionError, ValueError) as error:  # depths without end, numbers of any length
            raise ValidationError(NOT_RIGHT) from error

    def bound_data(self, data: Any, initial: Any) -> Any:
        """Never shown again: it was good for one challenge, and is not parsed a second time."""
        return InvalidJSONInput("")


class CredentialMixin:
    """What a passkey answered, as JSON."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        fields: dict[str, forms.Field] = self.fields  # type: ignore[attr-defined]
        fields["credential"] = CredentialField()

    def clean_credential(self) -> Any:
        try:
            return super().clean_credential()  # type: ignore[misc]
        except ValidationError:
            raise
        except MALFORMED as error:
            raise ValidationError(NOT_RIGHT) from error


class SecondPasskeyForm(CredentialMixin, webauthn.AuthenticateWebAuthnForm):
    """After the password."""


class ReauthenticateByPasskeyForm(CredentialMixin, webauthn.ReauthenticateWebAuthnForm):
    """Instead of the password."""


class PasskeySignInForm(CredentialMixin, webauthn.LoginWebAuthnForm):
    """Instead of address and password."""


class AddPasskeyForm(PlainLook, webauthn.AddWebAuthnForm):
    """A new passkey, with a name to tell it from others."""

    labels = {"name": _("Name"), "passwordless": _("Sign in with it alone")}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["credential"] = CredentialField()
        self.fields["name"].widget.attrs["maxlength"] = 100
        passwordless = self.fields["passwordless"]
        passwordless.initial = True
        passwordless.help_text = _(
            "It asks for your finger, face or PIN in place of address and password. Without it, "
            "the key is a second step after your password."
        )

    def clean_name(self) -> str:
        return str(super().clean_name())[:100]

    def clean(self) -> dict[str, Any]:
        try:
            cleaned: dict[str, Any] = super().clean()
        except ValidationError:
            raise
        except MALFORMED as error:
            raise ValidationError(NOT_RIGHT) from error
        return cleaned


class RenamePasskeyForm(PlainLook, webauthn.EditWebAuthnForm):
    """Another name for a passkey."""

    labels = {"name": _("Name")}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["name"].widget.attrs["maxlength"] = 100

    def clean_name(self) -> str:
        return str(self.cleaned_data["name"])[:100]
