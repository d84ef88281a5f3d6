"""Sign in, sign out, sign up, change the password: pages that work without JavaScript.

django-allauth does what follows the password (confirmed address, second factor, session list); the
pages, their words and their limits are ours.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlencode, urlsplit

from allauth.account import signals
from allauth.account.internal.flows import signup as sign_up_flow
from allauth.account.utils import perform_login, setup_user_email
from django.conf import settings
from django.contrib import admin
from django.contrib.auth.hashers import make_password
from django.contrib.auth.views import (
    LoginView,
    LogoutView,
    PasswordChangeView,
    RedirectURLMixin,
    redirect_to_login,
)
from django.core.exceptions import PermissionDenied
from django.db import IntegrityError, transaction
from django.http import HttpRequest, HttpResponse, HttpResponseBase, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse, reverse_lazy
from django.utils.decorators import method_decorator
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_protect
from django.views.decorators.debug import sensitive_post_parameters
from django.views.generic import FormView

from accounts import api_errors, passwords, rate_limits
from accounts.adapters import AccountAdapter, SocialAdapter
from accounts.errors import RateLimited
from accounts.forms import ChangePasswordForm, SignInForm, SignUpForm
from accounts.models import User
from accounts.rate_limits import Limit
from accounts.requests import user_of_page

View = Callable[..., HttpResponseBase]
# Below /accounts/, what may follow a sign-in: pages of somebody who is signed in.
MAY_FOLLOW = (
    "email/",
    "change-password/",
    "set-password/",
    "security/",
    "sessions/",
    "connections/",
    "tokens/",
    "look/",
    "usage/",
)
NOT_OF_SECURITY = ("security/authenticate/", "security/webauthn/login/")

# Django's views are generic in its stubs only.
if TYPE_CHECKING:
    _SignUpFormView = FormView[SignUpForm]
else:
    _SignUpFormView = FormView


class LocalNextMixin(RedirectURLMixin):
    """`next` is kept where it leads to a page of ours that is no way in or out."""

    request: HttpRequest

    def get_redirect_url(self, request: HttpRequest | None = None) -> str:
        wanted: str = super().get_redirect_url()
        return wanted if _may_follow(wanted) else ""


def _may_follow(wanted: str) -> bool:
    """Back to sign-in after signing in would be a circle; to sign-out, a trap."""
    path, root = urlsplit(wanted).path, reverse("accounts:root")
    if not wanted.startswith(root) and not path.startswith(root):
        return True
    below = path.removeprefix(root)
    return not below or (below.startswith(MAY_FOLLOW) and not below.startswith(NOT_OF_SECURITY))


def typed_address(request: HttpRequest) -> str:
    """The account that a form names."""
    return request.POST.get("email", "")


def own_account(request: HttpRequest) -> str:
    """The account of whoever is signed in."""
    return user_of_page(request).external_id if request.user.is_authenticated else ""


def is_post(request: HttpRequest) -> bool:
    return request.method == "POST"


def answers_by_passkey(request: HttpRequest) -> bool:
    """Whether the form holds what a passkey answered; costly to read, and open to anybody."""
    return is_post(request) and "credential" in request.POST


def asks_for_challenge(request: HttpRequest) -> bool:
    return request.method in ("GET", "HEAD")


def limited(
    limits: tuple[Limit, ...],
    account_of: Callable[[HttpRequest], str],
    counts: Callable[[HttpRequest], bool] = is_post,
) -> Callable[[View], View]:
    """Each request that `counts` is a try at the account that `account_of` the request names."""

    def decorate(view: View) -> View:
        @wraps(view)
        def counted(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
            if counts(request):
                try:
                    rate_limits.count(request, limits, account_of(request))
                except RateLimited as error:
                    return rate_limited(request, error)
            return view(request, *args, **kwargs)

        return counted

    return decorate


class SignInView(LocalNextMixin, LoginView):
    """Signs in by address and password, within `rate_limits.SIGN_IN`; then on to `next`."""

    template_name = "accounts/sign_in.html"
    authentication_form = SignInForm
    redirect_authenticated_user = True

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        account = request.POST.get("username", "")
        try:
            rate_limits.count(request, rate_limits.SIGN_IN, account)
        except RateLimited as error:
            return rate_limited(request, error)
        return super().post(request, *args, **kwargs)

    def form_valid(self, form: SignInForm) -> HttpResponse:  # type: ignore[override]
        """The password is right; a confirmed address and the second factor come next."""
        user = form.get_user()
        response: HttpResponse = perform_login(self.request, user, redirect_url=self._after(user))
        return response

    def get_success_url(self) -> str:
        return self._after(user_of_page(self.request))

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        providers = SocialAdapter(self.request).list_apps(self.request)
        return super().get_context_data(
            next=self.get_redirect_url(), identity_providers=providers, **kwargs
        )

    def _after(self, user: User) -> str:
        after: str = super().get_success_url()
        if passwords.must_be_changed(user):
            return f"{reverse('accounts:change_password')}?{urlencode({'next': after})}"
        return after


class SignOutView(LocalNextMixin, LogoutView):
    """POST ends the session; GET shows the button, for those who typed the address."""

    http_method_names = ["get", "head", "post", "options"]
    template_name = "accounts/sign_out.html"


@method_decorator([sensitive_post_parameters(), csrf_protect, never_cache], name="dispatch")
class SignUpView(LocalNextMixin, _SignUpFormView):
    """Makes an account and mails a link to confirm its address, while SIGN_UP_OPEN.

    Whether an address is taken is told to its owner alone, by another mail: the answer, its time
    and what can go wrong are the same.
    """

    template_name = "accounts/sign_up.html"
    form_class = SignUpForm
    next_page = settings.LOGIN_REDIRECT_URL

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        if request.user.is_authenticated:
            return HttpResponseRedirect(self.get_success_url())
        if not settings.SIGN_UP_OPEN:
            status = 403 if request.method == "POST" else 200
            return render(request, "accounts/sign_up_closed.html", status=status)
        return super().dispatch(request, *args, **kwargs)

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        account = request.POST.get("email", "")
        try:
            rate_limits.count(request, rate_limits.SIGN_UP, account)
        except RateLimited as error:
            return rate_limited(request, error)
        return super().post(request, *args, **kwargs)

    def form_valid(self, form: SignUpForm) -> HttpResponse:
        email = form.cleaned_data["email"].lower()
        try:
            User.objects.get_by_natural_key(email)
        except User.DoesNotExist:
            return self._make(form, email)
        # As slow as making one: a password's hash is what takes the time.
        make_password(form.cleaned_data["password1"])
        return self._as_if_made(email)

    def _make(self, form: SignUpForm, email: str) -> HttpResponse:
        try:
            with transaction.atomic():
                user = form.save()
                setup_user_email(self.request, user, [])
        except IntegrityError:  # somebody took the address since we looked
            return self._as_if_made(email)
        response: HttpResponse = sign_up_flow.complete_signup(
            self.request, user=user, redirect_url=self.get_success_url()
        )
        if response.status_code >= 500:  # no mail: without its link the account is of no use
            user.delete()
        return response

    def _as_if_made(self, email: str) -> HttpResponse:
        response: HttpResponse = sign_up_flow.prevent_enumeration(self.request, email=email)
        return response

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        return super().get_context_data(next=self.get_redirect_url(), **kwargs)


@method_decorator(never_cache, name="dispatch")
class ChangePasswordView(LocalNextMixin, PasswordChangeView):
    """Changes one's own password, by the present one; ends all other sessions of the person."""

    template_name = "accounts/change_password.html"
    form_class = ChangePasswordForm
    success_url = reverse_lazy("accounts:password_changed")

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        user = cast("User", request.user)
        try:
            rate_limits.count(request, rate_limits.CHANGE_PASSWORD, user.external_id)
        except RateLimited as error:
            return rate_limited(request, error)
        return super().post(request, *args, **kwargs)

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        if request.user.is_authenticated and not request.user.has_usable_password():
            return HttpResponseRedirect(reverse("account_set_password"))
        return super().dispatch(request, *args, **kwargs)

    def form_valid(self, form: ChangePasswordForm) -> HttpResponse:  # type: ignore[override]
        response = super().form_valid(form)
        user = user_of_page(self.request)
        # This session has a new key: the list of sessions learns it.
        signals.password_changed.send(sender=User, request=self.request, user=user)
        AccountAdapter(self.request).send_notification_mail("account/email/password_changed", user)
        return response

    def get_default_redirect_url(self) -> str:
        return str(self.success_url)

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        user = cast("User", self.request.user)
        return super().get_context_data(
            next=self.get_redirect_url(), temporary=passwords.must_be_changed(user), **kwargs
        )


@never_cache
def password_changed(request: HttpRequest) -> HttpResponse:
    """Where a change without `next` ends."""
    return render(request, "accounts/password_changed.html")


def rate_limited(request: HttpRequest, exception: Exception | None = None) -> HttpResponse:
    """429 with `Retry-After`: a page, or the JSON shape where Accept prefers JSON."""
    error = api_errors.to_api_error(exception) if exception else None
    if not isinstance(error, RateLimited):
        error = RateLimited(retry_after_s=api_errors.RATE_LIMITED_RETRY_S)
    if request.get_preferred_type(["text/html", "application/json"]) == "application/json":
        return api_errors.json_response(error)
    context = _wait_in_words(error.retry_after_s or 0)
    response = render(request, "429.html", context, status=error.http_status)
    for name, value in api_errors.headers_of(error).items():
        response[name] = value
    return response


def _wait_in_words(seconds: int) -> dict[str, int]:
    """Nobody counts 2,546 seconds: whole minutes, or hours where there are many; none for 0."""
    minutes = -(-seconds // 60)
    return {"wait_hours": -(-minutes // 60)} if minutes > 90 else {"wait_minutes": minutes}


@never_cache
def admin_sign_in(request: HttpRequest, extra_context: object = None) -> HttpResponse:
    """Instead of the admin's own sign-in page, which knows no rate limits.

    Who is signed in but no administrator is told so: the sign-in page would send them back here.
    """
    wanted = request.GET.get("next") or reverse("admin:index")
    if not request.user.is_authenticated:
        return redirect_to_login(wanted)
    if not admin.site.has_permission(request):
        raise PermissionDenied
    return HttpResponseRedirect(reverse("admin:index"))


def admin_change_password(request: HttpRequest, extra_context: object = None) -> HttpResponse:
    """Instead of the admin's own page, which knows neither rate limits nor one-time passwords."""
    wanted = urlencode({"next": reverse("admin:index")})
    return HttpResponseRedirect(f"{reverse('accounts:change_password')}?{wanted}")
