"""Pages under `/accounts/`.

Two lists of names for them: ours, below `accounts:`, and those by which django-allauth finds its
own pages. Where both name one, ours stands first and answers.
"""

from __future__ import annotations

from allauth.account import views as allauth_views
from allauth.mfa.base import views as mfa_views
from allauth.mfa.webauthn import views as passkey_views
from allauth.socialaccount import views as social_views
from django.urls import include, path, re_path

from accounts import (
    oidc_provider,
    rate_limits,
    security_views,
    settings_pages,
    token_pages,
    views,
)

sign_in = views.SignInView.as_view()
sign_out = views.SignOutView.as_view()
sign_up = views.SignUpView.as_view()
change_password = views.ChangePasswordView.as_view()
reset_password = views.limited(rate_limits.RESET_PASSWORD, views.typed_address)(
    allauth_views.password_reset
)
reset_by_link = views.limited(rate_limits.RESET_LINK, views.own_account)(
    allauth_views.password_reset_from_key
)
oidc_sign_in = views.limited(rate_limits.OIDC, views.own_account)(oidc_provider.sign_in)
request_code = views.limited(rate_limits.CONFIRM_ADDRESS, views.own_account)(
    allauth_views.request_reauthentication_code
)
by_passkey = views.limited(rate_limits.PASSKEY, views.own_account, views.answers_by_passkey)
passkey_sign_in = views.limited(
    rate_limits.PASSKEY_CHALLENGE, views.own_account, views.asks_for_challenge
)(by_passkey(passkey_views.login_webauthn))

own = [
    path("", settings_pages.profile, name="root"),
    path("look/", settings_pages.look, name="look"),
    path("sign-in/", sign_in, name="sign_in"),
    path("sign-out/", sign_out, name="sign_out"),
    path("sign-up/", sign_up, name="sign_up"),
    path("change-password/", change_password, name="change_password"),
    path("password-changed/", views.password_changed, name="password_changed"),
    path("tokens/", token_pages.listing, name="tokens"),
    path("tokens/<str:token>/rotate/", token_pages.rotate, name="rotate_token"),
    path("tokens/<str:token>/revoke/", token_pages.revoke, name="revoke_token"),
]

of_allauth = [
    path("sign-in/", sign_in, name="account_login"),
    path("sign-out/", sign_out, name="account_logout"),
    path("sign-up/", sign_up, name="account_signup"),
    path("inactive/", allauth_views.account_inactive, name="account_inactive"),
    path("change-password/", change_password, name="account_change_password"),
    path("set-password/", allauth_views.password_set, name="account_set_password"),
    path("email/", allauth_views.email, name="account_email"),
    path(
        "confirm-email/",
        allauth_views.email_verification_sent,
        name="account_email_verification_sent",
    ),
    re_path(
        r"^confirm-email/(?P<key>[-:\w]{1,200})/$",
        allauth_views.confirm_email,
        name="account_confirm_email",
    ),
    path("reset-password/", reset_password, name="account_reset_password"),
    path(
        "reset-password/sent/",
        allauth_views.password_reset_done,
        name="account_reset_password_done",
    ),
    path(
        "reset-password/changed/",
        allauth_views.password_reset_from_key_done,
        name="account_reset_password_from_key_done",
    ),
    re_path(
        r"^reset-password/(?P<uidb36>[0-9a-f]{32})-(?P<key>[-\w]{1,100})/$",
        reset_by_link,
        name="account_reset_password_from_key",
    ),
    path("reauthenticate/", allauth_views.reauthenticate, name="account_reauthenticate"),
    path("reauthenticate/code/", request_code, name="account_request_reauthentication_code"),
    path(
        "reauthenticate/code/confirm/",
        allauth_views.confirm_reauthentication_code,
        name="account_confirm_reauthentication_code",
    ),
    path("security/authenticate/", by_passkey(mfa_views.authenticate), name="mfa_authenticate"),
    path("security/webauthn/login/", passkey_sign_in, name="mfa_login_webauthn"),
    path("security/webauthn/add/", by_passkey(passkey_views.add_webauthn), name="mfa_add_webauthn"),
    path(
        "security/webauthn/reauthenticate/",
        by_passkey(passkey_views.reauthenticate_webauthn),
        name="mfa_reauthenticate_webauthn",
    ),
    path("security/", include("allauth.mfa.urls")),
    path("sessions/", security_views.sessions, name="usersessions_list"),
    path("connections/", social_views.connections, name="socialaccount_connections"),
    path(
        "connections/cancelled/", social_views.login_cancelled, name="socialaccount_login_cancelled"
    ),
    path("connections/error/", social_views.login_error, name="socialaccount_login_error"),
    path("connections/sign-up/", social_views.signup, name="socialaccount_signup"),
    path("oidc/<slug:provider_id>/login/", oidc_sign_in, name="openid_connect_login"),
    path(
        "oidc/<slug:provider_id>/login/callback/",
        oidc_provider.callback,
        name="openid_connect_callback",
    ),
]

urlpatterns = [path("", include((own, "accounts"))), path("", include(of_allauth))]
