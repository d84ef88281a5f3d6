"""Which e-mail addresses count as confirmed: those that somebody proved, or vouched for.

A sign-up begins with an unconfirmed address (django-allauth keeps it, `EmailAddress`). Whoever was
made by `create_user`, a command or an administrator has a confirmed one: somebody with the right to
make users named it. The same when an administrator changes an address.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from allauth.account.models import EmailAddress
from django.db import transaction
from django.db.models.signals import post_save

from accounts.models import User


def vouch(user: User) -> None:
    """The user's address is theirs and the only one; no mail is needed."""
    address = user.email.lower()
    if EmailAddress.objects.filter(user=user, email=address, primary=True).exists():
        return  # kept in step by the flows themselves, which know whether it is confirmed
    with transaction.atomic():
        EmailAddress.objects.filter(user=user).delete()
        EmailAddress.objects.create(user=user, email=address, primary=True, verified=True)


def on_saved(
    sender: type[User],
    instance: User,
    *,
    raw: bool,
    update_fields: Collection[str] | None,
    **_: Any,
) -> None:
    """Receiver of post_save: new users, and users whose address was changed."""
    changed = update_fields is None or "email" in update_fields
    if changed and not raw and not instance.confirms_address_later:
        vouch(instance)


def connect() -> None:
    """Called once, when the apps are ready."""
    post_save.connect(on_saved, sender=User, dispatch_uid="accounts.addresses")
