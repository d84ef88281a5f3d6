"""The page of one's own sessions: the browsers that are signed in."""

from __future__ import annotations

from typing import Any

from allauth.usersessions.models import UserSession
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.utils.translation import ngettext
from django.views.decorators.http import require_http_methods

from accounts.models import User
from accounts.requests import user_of_page


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
        text = ngettext("That browser is signed out.", "%(count)s browsers are signed out.", ended)
        messages.success(request, text % {"count": ended})
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
