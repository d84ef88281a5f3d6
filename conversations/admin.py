"""Conversations and messages for administrators: who, how many, when. Never a word of text."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, ClassVar

from django.contrib import admin
from django.db.models import Count, IntegerField, OuterRef, QuerySet, Subquery
from django.db.models.functions import Coalesce
from django.http import HttpRequest

from accounts.admin_base import ReadOnlyAdmin
from accounts.admin_filters import MadeSince
from accounts.ids import external_id
from conversations.models import Conversation, Feedback, Message


class StateFilter(admin.SimpleListFilter):
    """Each state from an index of its own; all the others are the list itself."""

    title = "state"
    parameter_name = "state"
    STATES: ClassVar[dict[str, tuple[str, Callable[[QuerySet[Any]], QuerySet[Any]]]]] = {
        "temporary": (
            "temporary",
            lambda rows: rows.filter(temporary_until__isnull=False, purged_at__isnull=True),
        ),
        "deleted": (
            "deleted, can be restored",
            lambda rows: rows.filter(deleted_at__isnull=False, purged_at__isnull=True),
        ),
        "purged": ("purged", lambda rows: rows.filter(purged_at__isnull=False)),
    }

    def lookups(self, request: HttpRequest, model_admin: Any) -> Iterable[tuple[str, str]]:
        return [(key, label) for key, (label, _) in self.STATES.items()]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        state = self.STATES.get(self.value() or "")
        return queryset if state is None else state[1](queryset)


@admin.register(Conversation)
class ConversationAdmin(ReadOnlyAdmin):
    list_display = ("external_id", "owner", "message_count", "created", "last_activity", "state")
    list_filter = (MadeSince, StateFilter)
    list_select_related = ("owner",)
    ordering = ("-id",)
    search_ids = {"c": "id", "u": "owner_id"}
    search_user = "owner"
    search_help_text = "c_… or u_… id, or the owner's whole e-mail address."
    fields = readonly_fields = (
        "external_id",
        "owner",
        "message_count",
        "title_source",
        "revision",
        "created",
        "last_activity",
        "temporary_until",
        "deleted_at",
        "purged_at",
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[Conversation]:
        # A subquery, so that only the rows of the page are counted.
        messages = Message.objects.filter(conversation=OuterRef("pk")).order_by()
        counted = messages.values("conversation").annotate(n=Count("pk")).values("n")
        rows: QuerySet[Conversation] = super().get_queryset(request).defer("title")
        count = Coalesce(Subquery(counted, output_field=IntegerField()), 0)
        return rows.annotate(message_count=count)

    @admin.display(description="id", ordering="id")
    def external_id(self, conversation: Conversation) -> str:
        return external_id("c", conversation.pk)

    @admin.display(description="messages")
    def message_count(self, conversation: Any) -> int:
        return int(conversation.message_count)

    @admin.display(description="state")
    def state(self, conversation: Conversation) -> str:
        if conversation.purged_at:
            return "purged"
        if conversation.deleted_at:
            return "deleted"
        return "temporary" if conversation.temporary_until else ""


@admin.register(Message)
class MessageAdmin(ReadOnlyAdmin):
    list_display = ("external_id", "owner", "in_conversation", "role", "token_count", "created")
    list_filter = (MadeSince,)
    list_select_related = ("owner",)
    ordering = ("-id",)
    search_ids = {"m": "id", "c": "conversation_id", "u": "owner_id"}
    search_user = "owner"
    search_help_text = "m_…, c_… or u_… id, or the owner's whole e-mail address."
    fields = readonly_fields = (
        "external_id",
        "owner",
        "in_conversation",
        "answers",
        "role",
        "token_count",
        "created",
        "tombstoned_at",
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[Message]:
        rows: QuerySet[Message] = super().get_queryset(request)
        return rows.defer("content")

    @admin.display(description="id", ordering="id")
    def external_id(self, message: Message) -> str:
        return external_id("m", message.pk)

    @admin.display(description="conversation")
    def in_conversation(self, message: Message) -> str:
        return external_id("c", message.conversation_id)

    @admin.display(description="parent")
    def answers(self, message: Message) -> str:
        return external_id("m", message.parent_id) if message.parent_id else ""


@admin.register(Feedback)
class FeedbackAdmin(ReadOnlyAdmin):
    """The ratings. Their reasons are text, and stay sealed."""

    list_display = ("updated", "user", "rating", "of_message")
    list_filter = (MadeSince, "rating")
    list_select_related = ("user",)
    ordering = ("-id",)
    search_ids = {"m": "message_id", "u": "user_id"}
    search_user = "user"
    search_help_text = "m_… or u_… id, or the person's whole e-mail address."
    fields = readonly_fields = ("user", "rating", "of_message", "created", "updated")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Feedback]:
        rows: QuerySet[Feedback] = super().get_queryset(request)
        return rows.defer("reason")

    @admin.display(description="reply")
    def of_message(self, feedback: Feedback) -> str:
        return external_id("m", feedback.message_id)
