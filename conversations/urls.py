"""Paths below `/v1/`."""

from __future__ import annotations

from django.urls import path

from conversations.views import ConversationsView

urlpatterns = [path("conversations", ConversationsView.as_view(), name="conversations")]
