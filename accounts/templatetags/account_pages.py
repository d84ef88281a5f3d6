"""Template tags of the account pages: the way between them, and forms that begin where it hurts."""

from __future__ import annotations

from typing import Any, Final

from django import forms, template
from django.urls import NoReverseMatch, reverse
from django.utils.translation import gettext_lazy as _

from accounts.browsers import browser_words

register = template.Library()
register.filter("browser_words", browser_words)

# (name of the page, its words, what else below /accounts/ belongs to it)
PLACES: Final = (
    (
        "accounts:root",
        _("Profile"),
        ("email/", "change-password/", "password-changed/", "set-password/", "connections/"),
    ),
    ("accounts:look", _("Look and language"), ()),
    ("usage", _("Models and usage"), ()),  # of another room, which knows plans
    ("accounts:tokens", _("API tokens"), ()),
    ("usersessions_list", _("Devices"), ()),
    ("mfa_index", _("Second step and passkeys"), ()),
)


@register.inclusion_tag("accounts/_places.html", takes_context=True)
def settings_places(context: dict[str, Any]) -> dict[str, Any]:
    """The settings pages, the one that is open marked."""
    request = context.get("request")
    path, root = getattr(request, "path", ""), reverse("accounts:root")
    places = []
    for name, words, also in PLACES:
        try:
            address = reverse(name)
        except NoReverseMatch:  # the tests of accounts alone have no such page
            continue
        here = path == address or (address != root and path.startswith(address))
        here = here or path.startswith(tuple(root + one for one in also))
        places.append({"address": address, "words": words, "here": here})
    return {"places": places}


@register.simple_tag
def begin_at_first_error(form: forms.BaseForm) -> str:
    """The keyboard begins in the first field that is wrong; works without scripts."""
    wrong = next((field for field in form.visible_fields() if field.errors), None)
    if wrong is not None:
        for field in form.fields.values():
            field.widget.attrs.pop("autofocus", None)
        wrong.field.widget.attrs["autofocus"] = True
    return ""
