"""The forms of the account pages and of the admin: Django's, in our words and with our limits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django import forms
from django.contrib.auth.forms import (
    AdminUserCreationForm,
    AuthenticationForm,
    BaseUserCreationForm,
    PasswordChangeForm,
    UserChangeForm,
)
from django.core.exceptions import ValidationError

from accounts import passwords
from accounts.models import User

# Django's forms are generic in its stubs only.
if TYPE_CHECKING:
    _UserCreationForm = BaseUserCreationForm[User]
    _AdminUserCreationForm = AdminUserCreationForm[User]
    _UserChangeForm = UserChangeForm[User]
else:
    _UserCreationForm = BaseUserCreationForm
    _AdminUserCreationForm = AdminUserCreationForm
    _UserChangeForm = UserChangeForm

MAX_PASSWORD_CHARACTERS = 1000


class SignInForm(AuthenticationForm):
    """Says the same of an unknown address, a wrong password and a disabled account."""

    password = forms.CharField(
        strip=False,
        max_length=MAX_PASSWORD_CHARACTERS,
        widget=forms.PasswordInput(attrs={"autocomplete": "current-password"}),
    )
    error_messages = {
        "invalid_login": "This address and password do not belong together. Check both and try "
        "again.",
        "inactive": "This address and password do not belong together. Check both and try again.",
    }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, label_suffix="", **kwargs)
        username = self.fields["username"]
        username.label = "E-mail address"
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
            raise ValidationError(
                "Only plain letters, digits and signs are possible here. Write a domain such as "
                "bücher.example in its xn-- form."
            )
        return email


class SignUpForm(PlainEmailMixin, _UserCreationForm):
    """A new account with an address and a password of one's own."""

    class Meta:
        model = User
        fields = ("email", "name")
        labels = {"email": "E-mail address", "name": "Name (may stay empty)"}
        widgets = {
            "email": forms.EmailInput(attrs={"autocomplete": "email", "autocapitalize": "none"}),
            "name": forms.TextInput(attrs={"autocomplete": "name"}),
        }
        error_messages = {"email": {"unique": "There is an account with this address already."}}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, label_suffix="", **kwargs)
        _bound_passwords(self)
        self.fields["password2"].label = "Password again"
        self.fields["password2"].help_text = ""


class ChangePasswordForm(PasswordChangeForm):
    """The old password, the new one twice; ends the life of a one-time password."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, label_suffix="", **kwargs)
        _bound_passwords(self)
        self.fields["old_password"].label = "Present password"
        self.fields["new_password2"].label = "New password again"
        self.fields["new_password2"].help_text = ""
        if passwords.must_be_changed(self.user):
            self.fields["old_password"].label = "One-time password"

    def clean_new_password1(self) -> str:
        new: str = self.cleaned_data["new_password1"]
        if self.user.check_password(new):
            raise ValidationError("Choose another password than the present one.")
        return new

    def save(self, commit: bool = True) -> User:
        passwords.mark_as_own(self.user)
        user: User = super().save(commit)
        return user


class AdminAddUserForm(PlainEmailMixin, _AdminUserCreationForm):
    """A new user in the admin, with a password or without one."""

    class Meta:
        model = User
        fields = ("email", "name", "organisation")


class AdminChangeUserForm(PlainEmailMixin, _UserChangeForm):
    """A user in the admin; the password is only pointed to."""

    class Meta:
        model = User
        fields = "__all__"  # the admin's fieldsets choose


def _bound_passwords(form: forms.BaseForm) -> None:
    """Hashing time grows with a password's length; nobody's own is longer than this."""
    for field in form.fields.values():
        if isinstance(field.widget, forms.PasswordInput):
            field.widget.attrs["maxlength"] = MAX_PASSWORD_CHARACTERS
            field.validators.append(_short_enough)


def _short_enough(password: str) -> None:
    if len(password) > MAX_PASSWORD_CHARACTERS:
        raise ValidationError(f"At most {MAX_PASSWORD_CHARACTERS} characters, please.")
