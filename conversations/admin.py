"""Conversations and messages for administrators: who, how many, when. Never a word of text."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import Count, IntegerField, OuterRef, QuerySet, Subquery
from django.db.models.functions import Coalesce
from django.http import HttpRequest

from accounts.admin_base import ReadOnlyAdmin
from conversations.models import Conversation, Message


@admin.register(Conversation)
class ConversationAdmin(ReadOnlyAdmin):
    list_display = ("id", "owner", "message_count", "last_activity", "created", "deleted_at")
    list_filter = ("last_activity", "deleted_at", "temporary_until")
    list_select_related = ("owner",)
    ordering = ("-last_activity", "-id")
    search_fields = ("=id", "=owner__email")
    fields = readonly_fields = (
        "id",
        "owner",
        "message_count",
        "title_source",
        "active_leaf_id",
        "revision",
        "created",
        "last_activity",
        "temporary_until",
        "deleted_at",
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[Conversation]:
        # A subquery, so that only the rows of the page are counted.
        messages = Message.objects.filter(conversation=OuterRef("pk")).order_by()
        counted = messages.values("conversation").annotate(n=Count("pk")).values("n")
        rows: QuerySet[Conversation] = super().get_queryset(request).defer("title")
        count = Coalesce(Subquery(counted, output_field=IntegerField()), 0)
        return rows.annotate(message_count=count)

    @admin.display(description="messages")
    def message_count(self, conversation: Any) -> int:
        return int(conversation.message_count)


@admin.register(Message)
class MessageAdmin(ReadOnlyAdmin):
    list_display = ("id", "owner", "conversation", "role", "token_count", "created")
    list_filter = ("role", "created", "tombstoned_at")
    list_select_related = ("owner", "conversation")
    ordering = ("-id",)
    search_fields = ("=id", "=conversation__id", "=owner__email")
    fields = readonly_fields = (
        "id",
        "owner",
        "conversation",
        "parent",
        "role",
        "token_count",
        "created",
        "tombstoned_at",
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[Message]:
        rows: QuerySet[Message] = super().get_queryset(request)
        return rows.defer("content")
