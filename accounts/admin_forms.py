"""The admin's forms of users: ours, with unfold's widgets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from allauth.core import context
from django.core.exceptions import PermissionDenied

from accounts import passwords
from accounts.forms import PlainEmailMixin
from accounts.models import User

# unfold is not typed; to the type checker it is what it derives from.
if TYPE_CHECKING:
    from django.contrib.auth import forms

    _AdminPasswordChangeForm = forms.AdminPasswordChangeForm[User]
    UserChangeForm = forms.UserChangeForm[User]
    UserCreationForm = forms.AdminUserCreationForm[User]
else:
    from unfold.forms import AdminPasswordChangeForm as _AdminPasswordChangeForm
    from unfold.forms import UserChangeForm, UserCreationForm

__all__ = ["AddUserForm", "AdminPasswordChangeForm", "ChangeUserForm"]


class AddUserForm(PlainEmailMixin, UserCreationForm):
    """A new user, with a one-time password or without one."""

    class Meta:
        model = User
        fields = ("email", "name", "organisation")

    def set_password_and_save(self, user: User, commit: bool = True, **more: Any) -> User:
        """Whoever makes the user has seen the password."""
        super().set_password_and_save(user, commit=False, **more)
        if user.has_usable_password():
            passwords.mark_as_temporary(user)
        if commit:
            user.save()
        return user


class ChangeUserForm(PlainEmailMixin, UserChangeForm):
    """A user; the password is only pointed to."""

    class Meta:
        model = User
        fields = "__all__"  # the admin's fieldsets choose


class AdminPasswordChangeForm(_AdminPasswordChangeForm):
    """A password for somebody else is a one-time password; for oneself it is one's own."""

    def set_password_and_save(self, user: User, commit: bool = True, **more: Any) -> User:
        super().set_password_and_save(user, commit=False, **more)  # type: ignore[misc]
        others = user.pk != context.request.user.pk
        temporary = others and user.has_usable_password()
        if commit and not passwords.store(user, temporary=temporary, even_if_disabled=True):
            raise PermissionDenied  # deleted meanwhile
        return user
