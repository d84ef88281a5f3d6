"""Sign-in by OpenID Connect, stricter than django-allauth's own.

- The signature of the id token is checked always, though it comes over a connection of ours, and
  so are issuer, audience, expiry and the nonce of this sign-in.
- The address to come back to is built from SITE_URL, never from a Host header.
- A provider that is away, or answers nonsense, is told on a page and is no 500.
- The way out is a page with a link that goes on by itself: `form-action 'self'` stops a form from
  being redirected to another host.
"""

from __future__ import annotations

import json
import logging
import secrets
from typing import Any

import jwt
import requests
from allauth.account.internal.decorators import login_not_required
from allauth.core.exceptions import ImmediateHttpResponse
from allauth.socialaccount.helpers import render_authentication_error
from allauth.socialaccount.internal import jwtkit
from allauth.socialaccount.models import SocialApp
from allauth.socialaccount.providers.base import AuthError
from allauth.socialaccount.providers.oauth2.client import OAuth2Error
from allauth.socialaccount.providers.oauth2.views import OAuth2CallbackView, OAuth2LoginView
from allauth.socialaccount.providers.openid_connect.provider import OpenIDConnectProvider
from allauth.socialaccount.providers.openid_connect.views import OpenIDConnectOAuth2Adapter
from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.cache import never_cache

from accounts import site

logger = logging.getLogger(__name__)

# What a provider's answers can make of themselves on the way through allauth.
BROKEN = (
    requests.RequestException,
    OAuth2Error,
    jwt.PyJWTError,
    json.JSONDecodeError,
    KeyError,
    TypeError,
    AttributeError,
    ValueError,
)
# allauth takes the algorithm from the token's own header; these are all that it may name.
ALGORITHMS = frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384"})
NONCES = "oidc_nonces"
MAX_NONCES = 10
"""Sign-ins that one browser may have begun and not ended: as many as allauth keeps states."""


class Adapter(OpenIDConnectOAuth2Adapter):
    """One provider as one request sees it."""

    def get_callback_url(self, request: HttpRequest, app: Any) -> str:
        path = reverse("openid_connect_callback", kwargs={"provider_id": self.provider_id})
        # Without SITE_URL the host of the request, which the provider compares with its own list.
        return site.absolute(path) if settings.SITE_URL else request.build_absolute_uri(path)

    def complete_login(self, request: HttpRequest, app: Any, token: Any, **kwargs: Any) -> Any:
        if not kwargs["response"].get("id_token"):
            raise OAuth2Error("no id token")
        login = super().complete_login(request, app, token, **kwargs)
        told = login.account.extra_data
        if told.get("userinfo") and told["userinfo"].get("sub") != told["id_token"].get("sub"):
            raise OAuth2Error("userinfo is of somebody else")
        return login

    def _decode_id_token(self, app: Any, id_token: str) -> dict[str, Any]:
        if jwt.get_unverified_header(id_token).get("alg") not in ALGORITHMS:
            raise OAuth2Error("algorithm of the id token")
        claims: dict[str, Any] = jwtkit.verify_and_decode(
            credential=id_token,
            keys_url=self.openid_config["jwks_uri"],
            issuer=self.openid_config["issuer"],
            audience=app.client_id,
            lookup_kid=jwtkit.lookup_kid_jwk,
        )
        self._use_up(claims.get("nonce"))
        return claims

    def _use_up(self, nonce: object) -> None:
        waiting = self.request.session.get(NONCES, [])
        if nonce not in waiting:
            raise OAuth2Error("nonce of the id token")
        self.request.session[NONCES] = [other for other in waiting if other != nonce]


class Provider(OpenIDConnectProvider):
    """The class that settings name as `provider_class`."""

    oauth2_adapter_class = Adapter

    def get_scope_from_request(self, request: HttpRequest) -> list[str]:
        """As configured; allauth would add what stands in the address."""
        return list(self.get_scope())

    def get_auth_params_from_request(self, request: HttpRequest, action: str) -> dict[str, Any]:
        """As configured, and a nonce; allauth would add what stands in the address."""
        nonce = secrets.token_urlsafe(24)
        waiting = request.session.get(NONCES, [])
        request.session[NONCES] = [*waiting, nonce][-MAX_NONCES:]
        return {**self.get_auth_params(), "nonce": nonce}


@never_cache
@login_not_required
def sign_in(request: HttpRequest, provider_id: str) -> HttpResponse:
    """POST begins; GET asks for it, since another site could send people here."""
    try:
        adapter = Adapter(request, provider_id)
        response: HttpResponse = OAuth2LoginView.adapter_view(adapter)(request)
    except SocialApp.DoesNotExist:
        raise Http404 from None
    except BROKEN as problem:
        return _failed(request, provider_id, problem)
    if isinstance(response, HttpResponseRedirect):
        context = {"address": response.url, "provider": adapter.get_provider()}
        return render(request, "accounts/leaving.html", context)
    return response


@never_cache
@login_not_required
def callback(request: HttpRequest, provider_id: str) -> HttpResponse:
    """Where the provider sends people back to."""
    try:
        adapter = Adapter(request, provider_id)
        response: HttpResponse = OAuth2CallbackView.adapter_view(adapter)(request)
    except SocialApp.DoesNotExist:
        raise Http404 from None
    except ImmediateHttpResponse as immediate:
        stopped: HttpResponse = immediate.response
        return stopped
    except BROKEN as problem:
        return _failed(request, provider_id, problem)
    return response


def _failed(request: HttpRequest, provider_id: str, problem: Exception) -> HttpResponse:
    provider = Adapter(request, provider_id).get_provider()
    response: HttpResponse = render_authentication_error(
        request, provider, error=AuthError.UNKNOWN, exception=problem
    )
    return response
