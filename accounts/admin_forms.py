"""The admin's forms of users: ours, with unfold's widgets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from accounts.forms import PlainEmailMixin
from accounts.models import User

# unfold is not typed; to the type checker it is what it derives from.
if TYPE_CHECKING:
    from django.contrib.auth import forms

    AdminPasswordChangeForm = forms.AdminPasswordChangeForm[User]
    UserChangeForm = forms.UserChangeForm[User]
    UserCreationForm = forms.AdminUserCreationForm[User]
else:
    from unfold.forms import AdminPasswordChangeForm, UserChangeForm, UserCreationForm

__all__ = ["AddUserForm", "AdminPasswordChangeForm", "ChangeUserForm"]


class AddUserForm(PlainEmailMixin, UserCreationForm):
    """A new user, with a password or without one."""

    class Meta:
        model = User
        fields = ("email", "name", "organisation")


class ChangeUserForm(PlainEmailMixin, UserChangeForm):
    """A user; the password is only pointed to."""

    class Meta:
        model = User
        fields = "__all__"  # the admin's fieldsets choose
