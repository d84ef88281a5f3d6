"""`/accounts/tokens/`: one's API tokens, for people. They work without JavaScript."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django import forms
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.utils.translation import gettext, gettext_noop
from django.utils.translation import gettext_lazy as _
from django.views.decorators.http import require_http_methods, require_POST

from accounts import rate_limits, tokens
from accounts.errors import ApiError, NotFound, RateLimited
from accounts.models import ApiToken
from accounts.requests import user_of_page
from accounts.scopes import ALL, READ
from accounts.token_views import expiry
from accounts.views import rate_limited

LIVES = ((30, _("30 days")), (90, _("90 days")), (365, _("A year")), (0, _("Until it is revoked")))
# What `tokens` raises in the API's English, said here in the language of the page.
TOO_MANY = gettext_noop("You have as many API tokens as one person may have. Revoke one first.")
POWERS = (("write", _("Read and write")), ("read", _("Only read")))
OVERLAPS = {"0": timedelta(0), "1h": timedelta(hours=1), "1d": timedelta(days=1)}


class MakeTokenForm(forms.Form):
    """A new API token."""

    name = forms.CharField(
        label=_("Name"),
        max_length=tokens.MAX_NAME_CHARACTERS,
        help_text=_("What it is for: a machine, a script."),
    )
    power = forms.ChoiceField(label=_("It may"), choices=POWERS)
    days = forms.TypedChoiceField(label=_("It ends after"), choices=LIVES, coerce=int, initial=90)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{"label_suffix": "", **kwargs})


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def listing(request: HttpRequest) -> HttpResponse:
    """The list and the form; POST makes one and shows its secret in the answer itself."""
    form = MakeTokenForm(request.POST if request.method == "POST" else None)
    if request.method == "POST" and form.is_valid():
        return _make(request, form)
    return _page(request, form)


@require_POST
@login_required
def rotate(request: HttpRequest, token: str) -> HttpResponse:
    """Another secret in place of this one's, after the chosen overlap."""
    old = _own(request, token)
    overlap = OVERLAPS.get(request.POST.get("overlap", "0"), timedelta(0))
    try:
        rate_limits.count(request, rate_limits.MAKE_TOKEN, user_of_page(request).external_id)
        made, secret = tokens.rotate(old, overlap)
    except ApiError as error:
        return _refused(request, error)
    return _made(request, made, secret, old_works_on=bool(overlap))


@require_POST
@login_required
def revoke(request: HttpRequest, token: str) -> HttpResponse:
    """Ends it at once."""
    old = _own(request, token)
    if tokens.revoke(old):
        messages.success(request, gettext("%(name)s is revoked.") % {"name": old.name})
    return HttpResponseRedirect(reverse("accounts:tokens"))


def _own(request: HttpRequest, text: str) -> ApiToken:
    try:
        return tokens.access(user_of_page(request), text)
    except NotFound:
        raise Http404 from None


def _make(request: HttpRequest, form: MakeTokenForm) -> HttpResponse:
    wanted = form.cleaned_data
    scopes = (READ,) if wanted["power"] == READ else ALL
    user = user_of_page(request)
    try:
        rate_limits.count(request, rate_limits.MAKE_TOKEN, user.external_id)
        made, secret = tokens.create(user, wanted["name"], expiry(wanted["days"] or None), scopes)
    except ApiError as error:
        return _refused(request, error)
    return _made(request, made, secret)


def _refused(request: HttpRequest, error: ApiError) -> HttpResponse:
    if isinstance(error, RateLimited):
        return rate_limited(request, error)
    messages.error(request, gettext(error.message))
    return HttpResponseRedirect(reverse("accounts:tokens"))


def _made(
    request: HttpRequest, made: ApiToken, secret: str, *, old_works_on: bool = False
) -> HttpResponse:
    """In the answer itself: a message would lie in a cookie or a session."""
    context = {"token": made, "secret": secret, "old_works_on": old_works_on}
    return render(request, "accounts/token_made.html", context)


def _page(request: HttpRequest, form: MakeTokenForm) -> HttpResponse:
    found = tokens.live(user_of_page(request))
    return render(request, "accounts/tokens.html", {"tokens": found, "form": form})
