"""The first pages of one's own account: profile, look and language. They work without scripts."""

from __future__ import annotations

from typing import Any, cast

from allauth.account.models import EmailAddress
from allauth.mfa.models import Authenticator
from allauth.socialaccount.models import SocialAccount
from django import forms
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.utils import translation
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _
from django.views.decorators.http import require_http_methods

from accounts import preferences
from accounts.adapters import SocialAdapter
from accounts.models import User
from accounts.requests import user_of_page

THEMES = (
    ("system", _("As this device")),
    ("light", _("Light")),
    ("dark", _("Dark")),
)


class ProfileForm(forms.Form):
    """What a person is called."""

    name = forms.CharField(
        label=_("Name"),
        required=False,
        max_length=150,
        help_text=_("Shown beside your conversations. It may stay empty."),
        widget=forms.TextInput(attrs={"autocomplete": "name", "dir": "auto"}),
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{"label_suffix": "", **kwargs})


class LookForm(forms.Form):
    """Theme and language of the pages; an empty language is the browser's."""

    theme = forms.ChoiceField(label=_("Colours"), choices=THEMES, widget=forms.RadioSelect)
    language = forms.ChoiceField(label=_("Language"), required=False, widget=forms.RadioSelect)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{"label_suffix": "", **kwargs})
        field = cast("forms.ChoiceField", self.fields["language"])
        field.choices = [("", _("As this browser")), *preferences.languages().items()]

    def changes(self) -> dict[str, str | None]:
        """For `preferences.change_preferences`."""
        chosen = self.cleaned_data
        return {"theme": chosen["theme"], "language": chosen["language"] or None}


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def profile(request: HttpRequest) -> HttpResponse:
    """`/accounts/`: the name, which POST changes, and how one signs in."""
    user = user_of_page(request)
    form = ProfileForm(
        request.POST if request.method == "POST" else None, initial={"name": user.name}
    )
    if form.is_bound and form.is_valid():
        user.name = form.cleaned_data["name"]
        user.save(update_fields=["name"])
        messages.success(request, gettext("Saved."))
        return HttpResponseRedirect(reverse("accounts:root"))
    return render(request, "accounts/overview.html", {"form": form, **_ways_in(request, user)})


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def look(request: HttpRequest) -> HttpResponse:
    """`/accounts/look/`: theme and language; the answer to a POST is in the new language."""
    user = user_of_page(request)
    now = preferences.preferences_of(user)
    initial = {"theme": now.theme, "language": now.language or ""}
    form = LookForm(request.POST if request.method == "POST" else None, initial=initial)
    if not form.is_bound or not form.is_valid():
        return render(request, "accounts/look.html", {"form": form})
    chosen = preferences.change_preferences(user, form.changes())
    with translation.override(chosen.language or translation.get_language_from_request(request)):
        messages.success(request, gettext("Saved."))
    answer = HttpResponseRedirect(reverse("accounts:look"))
    preferences.keep_in_browser(answer, chosen)
    return answer


def _ways_in(request: HttpRequest, user: User) -> dict[str, Any]:
    kinds = list(Authenticator.objects.filter(user=user).values_list("type", flat=True))
    return {
        "pending_address": EmailAddress.objects.filter(user=user, verified=False).first(),
        "has_app": Authenticator.Type.TOTP in kinds,
        "passkeys": kinds.count(Authenticator.Type.WEBAUTHN),
        "connections": SocialAccount.objects.filter(user=user).count(),
        "identity_providers": SocialAdapter(request).list_apps(request),
    }
