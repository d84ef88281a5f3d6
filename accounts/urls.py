"""Pages under `/accounts/`."""

from __future__ import annotations

from django.urls import path
from django.views.generic import RedirectView

from accounts import views

app_name = "accounts"
urlpatterns = [
    path("", RedirectView.as_view(pattern_name="accounts:sign_in"), name="root"),
    path("sign-in/", views.SignInView.as_view(), name="sign_in"),
    path("sign-out/", views.SignOutView.as_view(), name="sign_out"),
    path("sign-up/", views.SignUpView.as_view(), name="sign_up"),
    path("change-password/", views.ChangePasswordView.as_view(), name="change_password"),
    path("password-changed/", views.password_changed, name="password_changed"),
]
