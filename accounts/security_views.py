"""Pages of somebody's own account: what there is, and the sessions that are open."""

from __future__ import annotations

from typing import Any

from allauth.account.models import EmailAddress
from allauth.mfa.models import Authenticator
from allauth.socialaccount.models import SocialAccount
from allauth.usersessions.models import UserSession
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_safe

from accounts import tokens
from accounts.adapters import SocialAdapter
from accounts.models import User
from accounts.requests import user_of_page


@require_safe
@login_required
def overview(request: HttpRequest) -> HttpResponse:
    """`/accounts/`: everything about one's account, and where to change it."""
    user = user_of_page(request)
    kinds = list(Authenticator.objects.filter(user=user).values_list("type", flat=True))
    context = {
        "pending_address": EmailAddress.objects.filter(user=user, verified=False).first(),
        "has_app": Authenticator.Type.TOTP in kinds,
        "passkeys": kinds.count(Authenticator.Type.WEBAUTHN),
        "token_count": tokens.live(user).count(),
        "session_count": len(open_sessions(request, user)),
        "connections": SocialAccount.objects.filter(user=user).count(),
        "identity_providers": SocialAdapter(request).list_apps(request),
    }
    return render(request, "accounts/overview.html", context)


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def sessions(request: HttpRequest) -> HttpResponse:
    """The browsers that are signed in; POST ends one (`session`) or all the others (`others`)."""
    user = user_of_page(request)
    found = open_sessions(request, user)
    if request.method != "POST":
        return render(request, "accounts/sessions.html", {"sessions": found})
    ended = 0
    for session in _to_end(request, found):
        session.end()  # the row in PostgreSQL goes; open streams follow within seconds
        ended += 1
    if ended:
        text = "That browser is signed out." if ended == 1 else f"{ended} browsers are signed out."
        messages.success(request, text)
    return HttpResponseRedirect(reverse("usersessions_list"))


def open_sessions(request: HttpRequest, user: User) -> list[Any]:
    """One's sessions that would still let in, this one first; the others newest first.

    This one is noted where nobody has: it began before there was a list.
    """
    key = request.session.session_key
    if not UserSession.objects.filter(session_key=key, user=user).exists():
        UserSession.objects.create_from_request(request)
    found = UserSession.objects.purge_and_list(user)
    return sorted(found, key=lambda s: (s.session_key != key, -s.created_at.timestamp()))


def _to_end(request: HttpRequest, found: list[Any]) -> list[Any]:
    others = [session for session in found if not session.is_current()]
    if "others" in request.POST:
        return others
    return [session for session in others if str(session.pk) == request.POST.get("session")]
