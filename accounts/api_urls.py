"""The paths of accounts below `/v1/`."""

from __future__ import annotations

from django.urls import path

from accounts import token_views

urlpatterns = [
    path("tokens", token_views.TokensView.as_view()),
    path("tokens/<str:token>:rotate", token_views.RotateTokenView.as_view()),
    path("tokens/<str:token>", token_views.TokenView.as_view()),
]
