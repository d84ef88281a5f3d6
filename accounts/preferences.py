"""What people chose for themselves: look, language, default model. Kept in `User.preferences`.

That object holds other things too (`accounts.passwords`): a change touches the keys named here and
no other, in the row as it is at that moment.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Final

from django.conf import settings
from django.contrib.auth.models import AnonymousUser
from django.db import transaction
from django.http import HttpRequest
from django.http.response import HttpResponseBase

from accounts.models import User

SYSTEM: Final = "system"
THEMES: Final = (SYSTEM, "light", "dark")
MODEL_CHARACTERS: Final = 64
"""As long as a model's slug may be."""
THEME_COOKIE: Final = "theme"
YEAR_S: Final = 365 * 24 * 60 * 60


@dataclass(frozen=True, slots=True)
class Preferences:
    """`language` None: the browser's. `default_model` None: the service's."""

    theme: str = SYSTEM
    language: str | None = None
    default_model: str | None = None

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


NAMES: Final = frozenset(field.name for field in fields(Preferences))


def languages() -> dict[str, str]:
    """The codes of the pages' languages, with their own names for themselves."""
    return dict(settings.LANGUAGES)


def preferences_of(user: User | AnonymousUser) -> Preferences:
    """What is chosen; the default for all that is missing, or was written wrongly by hand."""
    stored = user.preferences if isinstance(user, User) else {}
    if not isinstance(stored, Mapping):
        return Preferences()
    theme, language, model = (stored.get(n) for n in ("theme", "language", "default_model"))
    return Preferences(
        theme=theme if theme in THEMES else SYSTEM,
        language=language if isinstance(language, str) and language in languages() else None,
        default_model=model if isinstance(model, str) and model else None,
    )


def change_preferences(user: User, changes: Mapping[str, Any]) -> Preferences:
    """Store the changes to NAMES, which somebody has validated, and nothing else of the row.

    The row is locked: two tabs, or an administrator, may change others of its keys at once.
    """
    with transaction.atomic():
        now = User.objects.select_for_update(no_key=True).only("preferences").get(pk=user.pk)
        before = now.preferences if isinstance(now.preferences, dict) else {}
        ours = {name: changes[name] for name in NAMES & set(changes)}
        user.preferences = {**before, **ours}
        user.save(update_fields=["preferences"])
    return preferences_of(user)


def theme_of(request: HttpRequest) -> str:
    """The theme of the page that answers: the person's; before they sign in, this browser's."""
    user = getattr(request, "user", None)
    if isinstance(user, User) or (user is not None and user.is_authenticated):
        return preferences_of(user).theme
    return theme_of_browser(request)


def theme_of_browser(request: HttpRequest) -> str:
    """The theme that was chosen here last; needs no database."""
    theme = request.COOKIES.get(THEME_COOKIE)
    return theme if theme in THEMES else SYSTEM


def keep_in_browser(response: HttpResponseBase, chosen: Preferences) -> None:
    """So that the pages before the sign-in look and speak as the last person here wished."""
    theme = None if chosen.theme == SYSTEM else chosen.theme
    for name, value in ((THEME_COOKIE, theme), (settings.LANGUAGE_COOKIE_NAME, chosen.language)):
        if value is None:
            response.delete_cookie(name, samesite="Lax")
            continue
        response.set_cookie(
            name,
            value,
            max_age=YEAR_S,
            secure=settings.SESSION_COOKIE_SECURE,
            httponly=True,
            samesite="Lax",
        )
