"""One-time passwords: good for choosing one's own, and for nothing else."""

from __future__ import annotations

import secrets

from django.db import transaction

from accounts.errors import PasswordChangeRequired
from accounts.models import User

IS_TEMPORARY = "password_is_temporary"
"""Key in `User.preferences`."""


def one_time_password() -> str:
    """16 characters that can be read out and typed; 96 bits."""
    return secrets.token_urlsafe(12)


def must_be_changed(user: User) -> bool:
    """Whether the person still signs in with a password that somebody else has seen."""
    return bool(_preferences(user).get(IS_TEMPORARY))


def refuse_temporary(user: User) -> User:
    """The user. Raises PasswordChangeRequired while their password is a one-time password."""
    if must_be_changed(user):
        raise PasswordChangeRequired
    return user


def mark_as_own(user: User) -> None:
    """The person chose it. Changes the object only; the caller saves."""
    user.preferences = {key: v for key, v in _preferences(user).items() if key != IS_TEMPORARY}


def mark_as_temporary(user: User) -> None:
    """Somebody else chose it. Changes the object only; the caller saves."""
    user.preferences = {**_preferences(user), IS_TEMPORARY: True}


def store(user: User, *, temporary: bool = False, even_if_disabled: bool = False) -> bool:
    """Save the password that was set on the object, whose it is, and nothing else of the row.

    The object was read when its request began: administrators may have changed the row since.
    False, and nothing is saved, where the user is gone or has been disabled.
    """
    rows = User.objects.filter(id=user.id)
    with transaction.atomic():
        locked = (rows if even_if_disabled else rows.filter(is_active=True)).select_for_update(
            no_key=True
        )
        now = locked.only("preferences").first()
        if now is None:
            return False
        user.preferences = now.preferences
        if temporary:
            mark_as_temporary(user)
        else:
            mark_as_own(user)
        user.save(update_fields=["password", "preferences"])
    return True


def _preferences(user: User) -> dict[str, object]:
    """Empty where the row holds anything but an object: nobody is locked out by a wrong edit."""
    return user.preferences if isinstance(user.preferences, dict) else {}
