"""The paths of generation below `/v1/`; `runs/{g}/stream` is routed in chatproject.asgi."""

from __future__ import annotations

from django.urls import path

from generation import views

urlpatterns = [
    path("conversations/<str:conversation>", views.ConversationView.as_view()),
    path("conversations/<str:conversation>/messages", views.SendView.as_view()),
    path("runs/<str:run>:stop", views.StopView.as_view()),
    path("runs/<str:run>", views.RunView.as_view()),
    path("models", views.ModelsView.as_view()),
]
