"""Conversations and messages. A conversation is a tree of messages with one active leaf."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.utils import timezone

from accounts.ids import new_id
from conversations.content import ROLES


class Conversation(models.Model):
    """A tree of messages with one active leaf. `revision` rises with every change (for ETags)."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="conversations"
    )
    title = models.BinaryField(default=bytes, editable=False)  # sealed
    # No foreign key: a leaf and its conversation point at each other, and the leaf may be moved
    # by a guarded update in which the database need not look at the message again.
    active_leaf_id = models.UUIDField(null=True, blank=True, editable=False)
    last_activity = models.DateTimeField(default=timezone.now, editable=False)
    temporary_until = models.DateTimeField(null=True, blank=True)
    deleted_at = models.DateTimeField(null=True, blank=True)
    revision = models.PositiveBigIntegerField(default=0, editable=False)
    created = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        indexes = [
            # The list, newest first, by keyset (last activity, id).
            models.Index(
                fields=["owner", "-last_activity", "-id"],
                name="conversation_list",
                condition=Q(deleted_at__isnull=True),
            )
        ]

    def __str__(self) -> str:
        return str(self.id)


class Message(models.Model):
    """One node of the tree. Inserted once; the only later write is a tombstone."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    conversation = models.ForeignKey(
        Conversation, on_delete=models.CASCADE, related_name="messages"
    )
    parent = models.ForeignKey(
        "self", on_delete=models.CASCADE, null=True, blank=True, related_name="children"
    )
    role = models.CharField(max_length=16, choices=[(role, role) for role in ROLES])
    content = models.BinaryField(editable=False)  # sealed JSON list of parts
    token_count = models.PositiveIntegerField(null=True, blank=True)
    created = models.DateTimeField(default=timezone.now, editable=False)
    tombstoned_at = models.DateTimeField(null=True, blank=True, editable=False)

    class Meta:
        indexes = [
            models.Index(fields=["conversation", "id"], name="message_of_conversation"),
        ]
        constraints = [
            models.CheckConstraint(condition=Q(role__in=ROLES), name="message_role_known"),
        ]

    def __str__(self) -> str:
        return str(self.id)
