"""The forms of the account pages: Django's, in our words and with our limits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from allauth.account import forms as allauth_forms
from allauth.account.models import EmailAddress
from allauth.core import context
from allauth.socialaccount import forms as allauth_social_forms
from django import forms
from django.contrib.auth.forms import (
    AuthenticationForm,
    BaseUserCreationForm,
    PasswordChangeForm,
)
from django.core.exceptions import ValidationError
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from accounts import passwords, rate_limits
from accounts.adapters import NOT_PLAIN, AccountAdapter
from accounts.errors import ApiError
from accounts.models import User
from accounts.rate_limits import Limit
from accounts.requests import user_of_page

# Django's forms are generic in its stubs only.
if TYPE_CHECKING:
    from django_stubs_ext import StrOrPromise

    _UserCreationForm = BaseUserCreationForm[User]
else:
    _UserCreationForm = BaseUserCreationForm

MAX_PASSWORD_CHARACTERS = 1000
NOT_TOGETHER = _("This address and password do not belong together. Check both and try again.")


class SignInForm(AuthenticationForm):
    """Says the same of an unknown address, a wrong password and a disabled account."""

    password = forms.CharField(
        label=_("Password"),
        strip=False,
        max_length=MAX_PASSWORD_CHARACTERS,
        widget=forms.PasswordInput(attrs={"autocomplete": "current-password"}),
    )
    error_messages = {
        "invalid_login": NOT_TOGETHER,
        "inactive": NOT_TOGETHER,
    }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, label_suffix="", **kwargs)
        username = self.fields["username"]
        username.label = _("E-mail address")
        username.widget = forms.EmailInput(
            attrs={
                "autocomplete": "username",
                "autocapitalize": "none",
                "autofocus": True,
                "maxlength": 254,
            }
        )


class PlainEmailMixin:
    """Refuses addresses in letters that look like others.

    Some become equal to an ASCII letter when case is ignored (U+0131 and i), so that one person's
    address could be taken for another's.
    """

    cleaned_data: dict[str, Any]

    def clean_email(self) -> str:
        email: str = self.cleaned_data["email"]
        if not email.isascii():
            raise ValidationError(NOT_PLAIN)
        return email


class SignUpForm(PlainEmailMixin, _UserCreationForm):
    """A new account with an address and a password of one's own.

    It never says that an address is taken: the view answers the same to both, and mails differ.
    """

    class Meta:
        model = User
        fields = ("email", "name")
        labels = {"email": _("E-mail address"), "name": _("Name (may stay empty)")}
        widgets = {
            "email": forms.EmailInput(attrs={"autocomplete": "email", "autocapitalize": "none"}),
            "name": forms.TextInput(attrs={"autocomplete": "name"}),
        }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, label_suffix="", **kwargs)
        bound_passwords(self)
        self.fields["password2"].label = _("Password again")
        self.fields["password2"].help_text = ""

    def _get_validation_exclusions(self) -> set[str]:
        """The field itself checks the address; whether it is free is not told."""
        return {*super()._get_validation_exclusions(), "email"}  # type: ignore[misc]

    def save(self, commit: bool = True) -> User:
        self.instance.confirms_address_later = True
        user: User = super().save(commit)
        return user


class ChangePasswordForm(PasswordChangeForm):
    """The old password, the new one twice; ends the life of a one-time password."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, label_suffix="", **kwargs)
        bound_passwords(self)
        self.fields["old_password"].label = _("Present password")
        self.fields["new_password2"].label = _("New password again")
        self.fields["new_password2"].help_text = ""
        if passwords.must_be_changed(self.user):
            self.fields["old_password"].label = _("One-time password")

    def clean_new_password1(self) -> str:
        new: str = self.cleaned_data["new_password1"]
        if self.user.check_password(new):
            raise ValidationError(_("Choose another password than the present one."))
        return new

    def save(self, commit: bool = True) -> User:
        """Saves at once. Raises ImmediateHttpResponse where they were disabled meanwhile."""
        new: str = self.cleaned_data["new_password1"]
        AccountAdapter(context.request).set_password(self.user, new)
        return self.user


def bound_passwords(form: forms.BaseForm) -> None:
    """Hashing time grows with a password's length; nobody's own is longer than this."""
    for field in form.fields.values():
        if isinstance(field.widget, forms.PasswordInput):
            field.widget.attrs["maxlength"] = MAX_PASSWORD_CHARACTERS
            field.validators.append(_short_enough)


def _short_enough(password: str) -> None:
    if len(password) > MAX_PASSWORD_CHARACTERS:
        raise ValidationError(
            _("At most %(count)s characters, please.") % {"count": MAX_PASSWORD_CHARACTERS}
        )


# --- forms of django-allauth, in our words and with our limits ----------------------------------


class PlainLook:
    """Labels instead of placeholders, which vanish when they are needed."""

    labels: dict[str, StrOrPromise] = {}
    fields: dict[str, forms.Field]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{"label_suffix": "", **kwargs})
        for name, field in self.fields.items():
            field.widget.attrs.pop("placeholder", None)
            field.label = self.labels.get(name, field.label)
        bound_passwords(cast("forms.BaseForm", self))


def count_try(limits: tuple[Limit, ...], account: str, *, needs_redis: bool = False) -> None:
    """Count one try of the request at hand. Raises ValidationError where it was one too many."""
    try:
        rate_limits.count(context.request, limits, account, needs_redis=needs_redis)
    except ApiError as error:
        raise ValidationError(gettext(error.message)) from error


class ChangeAddressForm(PlainLook, allauth_forms.AddEmailForm):
    """Another e-mail address, which replaces the present one once it is confirmed."""

    labels = {"email": _("New e-mail address")}

    def clean_email(self) -> str:
        count_try(rate_limits.CHANGE_ADDRESS, user_of_page(context.request).external_id)
        email: str = super().clean_email()
        return email


class ReauthenticateForm(PlainLook, allauth_forms.ReauthenticateForm):
    """The password once more, before something that could lock its owner out."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["password"].help_text = ""

    def clean_password(self) -> str:
        count_try(rate_limits.REAUTHENTICATE, user_of_page(context.request).external_id)
        password: str = super().clean_password()
        return password


class ConfirmReauthenticationCodeForm(PlainLook, allauth_forms.ConfirmReauthenticationCodeForm):
    """The code that was mailed to somebody who has no password."""


class ResetPasswordForm(PlainLook, allauth_forms.ResetPasswordForm):
    """The address of an account whose password is forgotten; never says whether there is one."""

    labels = {"email": _("E-mail address")}

    def clean_email(self) -> str:
        """Only the confirmed login counts: a link goes to no address that is yet to be proved."""
        email = self.cleaned_data["email"]
        if not email.isascii():
            raise ValidationError(NOT_PLAIN)
        try:
            user = User.objects.get_by_natural_key(email)
        except User.DoesNotExist:
            self.users = []
        else:
            self.users = [user] if user.is_active else []
        return str(email)


class ResetLinkForm(allauth_forms.UserTokenForm):
    """The link of a mail: of somebody who is there and not disabled."""

    def _get_user(self, uidb36: str) -> User | None:
        user: User | None = super()._get_user(uidb36)
        return user if user is not None and user.is_active else None


class NewPasswordForm(PlainLook, allauth_forms.ResetPasswordKeyForm):
    """The new password twice. Whoever has the link reads that mailbox: the address is confirmed."""

    labels = {"password1": _("New password"), "password2": _("New password again")}

    def save(self) -> None:
        super().save()
        own = EmailAddress.objects.filter(
            user=self.user, primary=True, email=self.user.email.lower()
        )
        own.update(verified=True)


class SetPasswordForm(PlainLook, allauth_forms.SetPasswordForm):
    """The first password of somebody who signs in without one."""

    labels = {"password1": _("Password"), "password2": _("Password again")}


class ProviderSignUpForm(PlainLook, allauth_social_forms.SignupForm):
    """What an identity provider did not tell: the address."""

    labels = {"email": _("E-mail address")}
