"""The paths of generation below `/v1/`; `runs/{g}/stream` is routed in chatproject.asgi."""

from __future__ import annotations

from django.urls import path

from generation import preference_views, views

MESSAGE = "conversations/<str:conversation>/messages/<str:message>"

urlpatterns = [
    path("conversations/<str:conversation>:restore", views.RestoreView.as_view()),
    path("conversations/<str:conversation>", views.ConversationView.as_view()),
    path("conversations/<str:conversation>/active_leaf", views.ActiveLeafView.as_view()),
    path("conversations/<str:conversation>/messages", views.SendView.as_view()),
    path(f"{MESSAGE}:regenerate", views.RegenerateView.as_view()),
    path(f"{MESSAGE}:continue", views.ContinueView.as_view()),
    path("messages/<str:message>/feedback", views.FeedbackView.as_view()),
    path("runs/<str:run>:stop", views.StopView.as_view()),
    path("runs/<str:run>", views.RunView.as_view()),
    path("models", views.ModelsView.as_view()),
    path("me/preferences", preference_views.PreferencesView.as_view()),
    path("usage", views.UsageView.as_view()),
]
