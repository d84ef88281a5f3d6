"""What stands before the pages: one's own password first, one's own language, no caches."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

from django.conf import settings
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.urls import reverse
from django.utils import translation
from django.utils.cache import add_never_cache_headers
from django.utils.deprecation import MiddlewareMixin

from accounts import passwords
from accounts.keys import KeyDestroyed, KeysUnavailable
from accounts.preferences import preferences_of

logger = logging.getLogger(__name__)

RETRY_AFTER_S = 30
API_PREFIX = "/v1/"
OPEN_VIEWS = frozenset({"accounts:change_password", "accounts:sign_out"})


class OwnPasswordFirst(MiddlewareMixin):
    """Leads every page but the two of OPEN_VIEWS to the change of a one-time password.

    The API's views ask for themselves (`accounts.authentication`): only they know whether the
    session or an API token counts. Put it after AuthenticationMiddleware.
    """

    def process_view(
        self, request: HttpRequest, view: Callable[..., Any], args: object, kwargs: object
    ) -> HttpResponseRedirect | None:
        if _is_of_the_api(view) or not _must_change(request) or _is_open(request):
            return None
        wanted = request.get_full_path() if request.method in ("GET", "HEAD") else "/"
        change = reverse("accounts:change_password")
        return HttpResponseRedirect(f"{change}?{urlencode({'next': wanted})}")


class PreferredLanguage(MiddlewareMixin):
    """The language that the person chose, else the browser's. Not the cookie's, which is of whoever
    chose one here last: it counts on the pages before a sign-in.

    Those two are LocaleMiddleware's, which must stand before; it also ends what is begun here, with
    the next request of this thread. The API speaks to programs, and spares the look at the session.
    """

    def process_request(self, request: HttpRequest) -> None:
        signed_in = settings.SESSION_COOKIE_NAME in request.COOKIES
        if not signed_in or request.path.startswith(API_PREFIX):
            return
        if not request.user.is_authenticated:
            return
        request.COOKIES.pop(settings.LANGUAGE_COOKIE_NAME, None)
        chosen = preferences_of(request.user).language
        translation.activate(chosen or translation.get_language_from_request(request))
        request.LANGUAGE_CODE = translation.get_language()


class KeysAwayPage(MiddlewareMixin):
    """A page of second factors, whose secrets are sealed, when their keys cannot be had."""

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponse | None:
        ours = request.path.startswith(reverse("accounts:root"))
        if not ours or not isinstance(exception, KeyDestroyed | KeysUnavailable):
            return None
        logger.error(
            "a key for a second factor cannot be had: %s",
            type(exception).__name__,
            extra={"action": "second_factor_no_key"},
        )
        gone = isinstance(exception, KeyDestroyed)
        status = 409 if gone else 503
        answer = render(request, "accounts/keys_away.html", {"gone": gone}, status=status)
        if not gone:
            answer["Retry-After"] = str(RETRY_AFTER_S)
        return answer


class KeptNowhere(MiddlewareMixin):
    """No page of accounts stays in a cache: some show a secret, all show whose they are."""

    def process_response(
        self, request: HttpRequest, response: HttpResponseBase
    ) -> HttpResponseBase:
        if request.path.startswith(reverse("accounts:root")):
            add_never_cache_headers(response)
        return response


def _is_of_the_api(view: Callable[..., Any]) -> bool:
    return hasattr(view, "cls")  # as DRF marks its views


def _must_change(request: HttpRequest) -> bool:
    """Looks at the user whom the page itself will look at; Django keeps them on the request."""
    return request.user.is_authenticated and passwords.must_be_changed(request.user)


def _is_open(request: HttpRequest) -> bool:
    match = request.resolver_match
    return match is not None and match.view_name in OPEN_VIEWS
