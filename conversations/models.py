"""Conversations and messages. A conversation is a tree of messages with one active leaf."""

from __future__ import annotations

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q
from django.utils import timezone

from accounts.ids import new_id
from conversations.content import ROLES

TITLE_SOURCES = ("", "first_message", "model", "user")
"""Where a title comes from. Those before a source give way to it; a user's own to nothing else."""

RATINGS = ("up", "down")

KEPT_ACTIVITIES = 8
"""Earlier activities that a conversation remembers: those of about four answers."""


class Conversation(models.Model):
    """A tree of messages with one active leaf. `revision` rises with every change (for ETags)."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="conversations"
    )
    title = models.BinaryField(default=bytes, editable=False)  # sealed; no bytes: no title
    title_source = models.CharField(
        max_length=16,
        blank=True,
        default="",
        editable=False,
        choices=[(source, source or "none") for source in TITLE_SOURCES],
    )
    # No foreign key: a leaf and its conversation point at each other, and the leaf may be moved
    # by a guarded update in which the database need not look at the message again.
    active_leaf_id = models.UUIDField(null=True, blank=True, editable=False)
    last_activity = models.DateTimeField(default=timezone.now, editable=False)
    # The values before, newest first: who walks the list in pages still finds a conversation that
    # moves up meanwhile at the place it had when the walk began (selectors.list_conversations).
    earlier_activity = ArrayField(
        models.DateTimeField(), size=KEPT_ACTIVITIES, default=list, editable=False, blank=True
    )
    temporary_until = models.DateTimeField(null=True, blank=True)
    deleted_at = models.DateTimeField(null=True, blank=True)
    purged_at = models.DateTimeField(null=True, blank=True, editable=False)
    revision = models.PositiveBigIntegerField(default=0, editable=False)
    created = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        indexes = [
            # The list, newest first, by keyset (last activity, id).
            models.Index(
                fields=["owner", "-last_activity", "-id"],
                name="conversation_list",
                condition=Q(deleted_at__isnull=True, temporary_until__isnull=True),
            ),
            # What the purge looks for; nearly always empty.
            models.Index(
                fields=["deleted_at"],
                name="conversation_deleted",
                condition=Q(deleted_at__isnull=False, purged_at__isnull=True),
            ),
            models.Index(
                fields=["temporary_until"],
                name="conversation_temporary",
                condition=Q(temporary_until__isnull=False, purged_at__isnull=True),
            ),
            # The admin's filters, newest first.
            models.Index(
                fields=["-id"],
                name="conversation_purged",
                condition=Q(purged_at__isnull=False),
            ),
        ]
        constraints = [
            models.CheckConstraint(
                condition=Q(title_source__in=TITLE_SOURCES), name="conversation_title_source_known"
            )
        ]

    def __str__(self) -> str:
        return str(self.id)


class Message(models.Model):
    """One node of the tree. Inserted once; the only later write is a tombstone."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    conversation = models.ForeignKey(
        Conversation,
        on_delete=models.CASCADE,
        related_name="messages",
        db_index=False,  # the index of versions begins with it
    )
    parent = models.ForeignKey(
        "self", on_delete=models.CASCADE, null=True, blank=True, related_name="children"
    )
    role = models.CharField(max_length=16, choices=[(role, role) for role in ROLES])
    content = models.BinaryField(editable=False)  # sealed JSON list of parts; no bytes: tombstone
    token_count = models.PositiveIntegerField(null=True, blank=True)
    created = models.DateTimeField(default=timezone.now, editable=False)
    tombstoned_at = models.DateTimeField(null=True, blank=True, editable=False)

    class Meta:
        indexes = [
            # Versions of a message, and the shape of a whole tree, from the index alone.
            models.Index(fields=["conversation", "parent", "role", "id"], name="message_versions"),
        ]
        constraints = [
            models.CheckConstraint(condition=Q(role__in=ROLES), name="message_role_known"),
        ]

    def __str__(self) -> str:
        return str(self.id)


class Feedback(models.Model):
    """What one person thinks of one reply; the newest word counts."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    message = models.ForeignKey(Message, on_delete=models.CASCADE, related_name="feedback")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    rating = models.CharField(max_length=8, choices=[(rating, rating) for rating in RATINGS])
    reason = models.BinaryField(default=bytes, editable=False)  # sealed; no bytes: no reason
    created = models.DateTimeField(default=timezone.now, editable=False)
    updated = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        verbose_name_plural = "feedback"
        constraints = [
            models.UniqueConstraint(
                fields=["message", "user"], name="feedback_of_message_and_user"
            ),
            models.CheckConstraint(condition=Q(rating__in=RATINGS), name="feedback_rating_known"),
        ]

    def __str__(self) -> str:
        return str(self.id)
