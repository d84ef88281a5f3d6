"""`/accounts/usage/`: one's plan, what is left of it and when it is back, and the default model.

Among the pages of one's account, but it shows plans and models, of which accounts know nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, cast

from django import forms
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.utils.formats import number_format
from django.utils.translation import gettext, ngettext
from django.utils.translation import gettext_lazy as _
from django.views.decorators.http import require_http_methods

from accounts import preferences
from accounts.api_errors import AWAY
from accounts.errors import Unavailable
from accounts.models import User
from accounts.requests import user_of_page
from generation.catalogue import Offer, offer_for
from generation.usage import usage
from quotas.plans import NO_PLAN

Json = Mapping[str, Any]
COUNTERS_AWAY: tuple[type[Exception], ...] = (*AWAY, Unavailable)


class DefaultModelForm(forms.Form):
    """The model that new conversations begin with."""

    default_model = forms.ChoiceField(
        label=_("New conversations begin with"), required=False, widget=forms.RadioSelect
    )

    def __init__(self, offer: Offer, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{"label_suffix": "", **kwargs})
        usual = replace(offer, preferred=None).find(None)
        name = usual[0].title if usual else ""
        field = cast("forms.ChoiceField", self.fields["default_model"])
        first = gettext("What this service suggests (%(model)s)") % {"model": name}
        field.choices = [("", first), *((model.slug, model.title) for model in offer.shown)]
        # One that is no longer to be had counts for nothing: the first is what is in force.
        slugs = {model.slug for model in offer.shown}
        field.initial = offer.preferred if offer.preferred in slugs else ""


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def usage_page(request: HttpRequest) -> HttpResponse:
    """GET shows; POST stores the default model."""
    user = user_of_page(request)
    offer = offer_for(user)
    form = DefaultModelForm(offer, request.POST if request.method == "POST" else None)
    if form.is_bound and form.is_valid():
        slug = form.cleaned_data["default_model"] or None
        preferences.change_preferences(user, {"default_model": slug})
        messages.success(request, gettext("Saved."))
        return HttpResponseRedirect(reverse("usage"))
    context = {"form": form, "has_plan": offer.terms is not NO_PLAN, **_told(user, offer)}
    context["several"] = len(offer.shown) > 1
    return render(request, "accounts/usage.html", context)


def _told(user: User, offer: Offer) -> dict[str, Any]:
    """What `GET /v1/usage` says, for people; `away` where the counters cannot be read now."""
    try:
        body = cast("dict[str, Any]", usage(user)[0])
    except COUNTERS_AWAY:
        return {"away": True, "plan": {"title": offer.terms.title}}
    titles = {model.slug: model.title for model in offer.shown}
    limits = body["limits"]
    window = [_row(titles.get(one["model"], one["model"]), one) for one in limits["messages"]]
    minute = [
        _row(name, limits[key])
        for name, key in (
            (gettext("Tokens"), "tokens_per_minute"),
            (gettext("Requests"), "requests_per_minute"),
        )
        if limits[key] is not None
    ]
    used = body["used"]["last_30_days"]["total"]
    month = {name: _number(used[name]) for name in ("messages", "prompt_tokens", "output_tokens")}
    return {
        "plan": body["plan"],
        "window": _duration(limits["window_s"]),
        "models": window,
        "minute": minute,
        "month": month,
    }


def _row(name: str, counted: Json) -> dict[str, Any]:
    """One line: a name, how much is left in words and as a share, when all of it is back."""
    row: dict[str, Any] = {"name": name, "used": _number(counted["used"]), "limited": False}
    if counted["limit"] is None:
        return row
    limit, left = counted["limit"], max(0, counted["remaining"])
    return {
        **row,
        "limited": True,
        "limit": _number(limit),
        "left": _number(left),
        "share": round(100 * left / limit) if limit else 0,
        "back": datetime.fromisoformat(counted["resets_at"]) if counted["reset_s"] else None,
        "none_left": left == 0,
    }


def _number(value: int) -> str:
    """With separators, as the active language writes them."""
    return number_format(value, use_l10n=True, force_grouping=True)


def _duration(seconds: int) -> str:
    """`3 hours`, in the largest unit that divides it."""
    if seconds % 86_400 == 0:
        days = seconds // 86_400
        return ngettext("%(count)d day", "%(count)d days", days) % {"count": days}
    if seconds % 3600 == 0:
        hours = seconds // 3600
        return ngettext("%(count)d hour", "%(count)d hours", hours) % {"count": hours}
    minutes = max(1, round(seconds / 60))
    return ngettext("%(count)d minute", "%(count)d minutes", minutes) % {"count": minutes}
