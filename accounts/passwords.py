"""One-time passwords: good for choosing one's own, and for nothing else."""

from __future__ import annotations

import secrets

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


def _preferences(user: User) -> dict[str, object]:
    """Empty where the row holds anything but an object: nobody is locked out by a wrong edit."""
    return user.preferences if isinstance(user.preferences, dict) else {}
