"""The HTTP doors to the list of conversations. What knows runs (detail, send) is in generation."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from django.db import transaction
from django.utils import timezone
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.models import User
from accounts.requests import query_of, signed_in_user
from conversations.access import access_conversation
from conversations.conditional import check_match
from conversations.openapi import conversations_schema
from conversations.selectors import item_of, list_conversations
from conversations.serializers import CreateBody, ListQuery, RenameBody, conversation_item
from conversations.services import create_conversation, rename

TEMPORARY_FOR = timedelta(hours=24)
"""A temporary conversation lasts a working day, so that it survives a reload and a night."""


@conversations_schema
class ConversationsView(APIView):
    """`/v1/conversations`: the list, and a new one."""

    def get(self, request: Request) -> Response:
        query = ListQuery(data=query_of(request))
        query.is_valid(raise_exception=True)
        wanted = query.validated_data
        page = list_conversations(signed_in_user(request), wanted["cursor"], wanted["limit"])
        return Response(
            {
                "items": [conversation_item(item) for item in page.items],
                "next_cursor": page.next_cursor,
            }
        )

    def post(self, request: Request) -> Response:
        body = CreateBody(data=request.data)
        body.is_valid(raise_exception=True)
        until = timezone.now() + TEMPORARY_FOR if body.validated_data["temporary"] else None
        with transaction.atomic():
            conversation = create_conversation(
                signed_in_user(request), title=body.validated_data["title"], temporary_until=until
            )
        return Response(conversation_item(item_of(conversation)), status=201)


def rename_view_body(
    user: User, conversation_id: str, data: Mapping[str, Any], if_match: str | None = None
) -> dict[str, Any]:
    """`PATCH /v1/conversations/{c}`, for the view in generation: the conversation's new item.

    Raises NotFound before it looks at anything else, then PreconditionFailed where `if_match` does
    not name its revision, then ValidationError or InvalidRequest for `data`.
    """
    with transaction.atomic():
        conversation = access_conversation(user, conversation_id, for_update=True)
        check_match(if_match, conversation.revision)
        body = RenameBody(data=data)
        body.is_valid(raise_exception=True)
        rename(conversation, body.validated_data["title"])
    return conversation_item(item_of(conversation))
