"""The reads: lists, pages of a thread, paths for prompts. Plain frozen values with opened content.

Every function costs a fixed number of queries, whatever it finds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import connection

from accounts.errors import NotFound
from accounts.models import User
from conversations.content import TextPart, plain_text
from conversations.list_cursor import Place, parse_place, write_place
from conversations.models import Conversation, Feedback
from conversations.sealed import readable_parts, readable_reason, readable_title
from conversations.tree import Node, Versions, with_live

MAX_MOVED = 1_000
"""Conversations that may move up during one walk of the list and still be found in their place."""


@dataclass(frozen=True, slots=True)
class ConversationItem:
    """A conversation as a list shows it."""

    id: UUID
    title: str
    active_leaf_id: UUID | None
    last_activity: datetime
    created: datetime


@dataclass(frozen=True, slots=True)
class ConversationsPage:
    """`next_cursor` is None on the last page."""

    items: tuple[ConversationItem, ...]
    next_cursor: str | None


@dataclass(frozen=True, slots=True)
class MessageView:
    """A message with its content in clear. `versions` counts stored and live ones.

    Not `readable`: its text is lost for good, and `content` is empty.
    """

    id: UUID
    parent_id: UUID | None
    role: str
    content: tuple[TextPart, ...]
    created: datetime
    versions: Versions
    readable: bool = True


@dataclass(frozen=True, slots=True)
class MessagesPage:
    """A part of the active branch, oldest first. `before` asks for what is above; None: nothing.

    `live` has the versions of the live replies that the caller named, by id.
    """

    messages: tuple[MessageView, ...] = ()
    before: UUID | None = None
    live: Mapping[UUID, Versions] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PathMessage:
    """A message as a prompt needs it."""

    id: UUID
    role: str
    text: str
    token_count: int | None
    created: datetime


@dataclass(frozen=True, slots=True)
class FeedbackView:
    """What the reader thinks of a reply: `rating` is `up` or `down`."""

    rating: str
    reason: str


def item_of(conversation: Conversation) -> ConversationItem:
    """One conversation as a list shows it. No query."""
    return ConversationItem(
        id=conversation.pk,
        title=readable_title(conversation.owner_id, conversation.pk, conversation.title),
        active_leaf_id=conversation.active_leaf_id,
        last_activity=conversation.last_activity,
        created=conversation.created,
    )


# --- the list -------------------------------------------------------------------------------------

_COLUMNS = "id, title, active_leaf_id, last_activity, created"
_LISTED = "owner_id = %(owner)s AND deleted_at IS NULL AND temporary_until IS NULL"

_FIRST_PAGE = f"""
SELECT {_COLUMNS}, last_activity AS place
FROM conversations_conversation
WHERE {_LISTED}
ORDER BY last_activity DESC, id DESC
LIMIT %(limit)s
"""  # noqa: S608 — constants of our own

# The second half finds what has moved up since the walk began, at the place it had then: the
# newest of its earlier activities that is not younger than the walk.
_NEXT_PAGE = f"""
SELECT * FROM (
    (SELECT {_COLUMNS}, last_activity AS place
     FROM conversations_conversation
     WHERE {_LISTED} AND (last_activity, id) < (%(place)s, %(id)s)
     ORDER BY last_activity DESC, id DESC
     LIMIT %(limit)s)
    UNION ALL
    (SELECT {_COLUMNS}, place
     FROM (SELECT {_COLUMNS}, earlier_activity
           FROM conversations_conversation
           WHERE {_LISTED} AND last_activity > %(began)s
           ORDER BY last_activity
           LIMIT {MAX_MOVED}) moved
     CROSS JOIN LATERAL (
         SELECT max(earlier) AS place
         FROM unnest(moved.earlier_activity) AS earlier
         WHERE earlier <= %(began)s) was
     WHERE (place, id) < (%(place)s, %(id)s))
) page
ORDER BY place DESC, id DESC
LIMIT %(limit)s
"""  # noqa: S608 — constants of our own


def list_conversations(owner: User, cursor: str | None, limit: int) -> ConversationsPage:
    """One page of the owner's conversations, newest activity first. One query.

    A walk through the pages meets each conversation exactly once, in the order of the moment its
    first page was read, even while conversations move to the top: those keep the place they had.
    What is created during the walk is above its beginning and not met. (At most once instead of
    exactly once: a conversation that moves more than KEPT_ACTIVITIES times during one walk, or
    one of more than MAX_MOVED that move.)

    Raises InvalidRequest (`cursor`) for a cursor that is not from this owner's list.
    """
    place = parse_place(owner.pk, cursor) if cursor is not None else None
    rows = _list_rows(owner.pk, place, limit + 1)
    began = place.began if place else rows[0][3] if rows else None
    page, more = rows[:limit], len(rows) > limit
    last = Place(at=page[-1][5], id=page[-1][0], began=began) if more and began else None
    return ConversationsPage(
        items=tuple(_item(owner.pk, row) for row in page),
        next_cursor=write_place(owner.pk, last) if last else None,
    )


def _list_rows(owner_id: UUID, place: Place | None, limit: int) -> list[tuple[Any, ...]]:
    values: dict[str, Any] = {"owner": owner_id, "limit": limit}
    if place is not None:
        values |= {"place": place.at, "id": place.id, "began": place.began}
    return _rows(_FIRST_PAGE if place is None else _NEXT_PAGE, values)


def _item(owner_id: UUID, row: Sequence[Any]) -> ConversationItem:
    row_id, title, active_leaf_id, last_activity, created, _place = row
    return ConversationItem(
        id=row_id,
        title=readable_title(owner_id, row_id, title),
        active_leaf_id=active_leaf_id,
        last_activity=last_activity,
        created=created,
    )


# --- a thread -------------------------------------------------------------------------------------

# Upwards from a message, one index look-up a step; the tree beside the path is never read. The
# depth is bounded inside, so a page of a long thread costs the page.
_PATH = """
WITH RECURSIVE path AS (
    SELECT id, parent_id, owner_id, role, content, token_count, created, 1 AS step
    FROM conversations_message
    WHERE id = %(from)s AND conversation_id = %(conversation)s
    UNION ALL
    SELECT above.id, above.parent_id, above.owner_id, above.role, above.content,
           above.token_count, above.created, path.step + 1
    FROM path
    JOIN conversations_message above ON above.id = path.parent_id
    WHERE above.conversation_id = %(conversation)s AND path.step < %(limit)s
)
SELECT id, parent_id, owner_id, role, content, token_count, created FROM path ORDER BY step
"""

# Counted from the index, without the live replies: a reply that ends between the caller's look at
# the runs and this statement would count twice. Only what has siblings comes back.
_VERSIONS = """
SELECT wanted.id, counted.before, counted.total,
    CASE WHEN counted.before > 0 THEN (
        SELECT one.id FROM conversations_message one
        WHERE one.conversation_id = %(conversation)s AND one.parent_id {parent}
          AND one.role = wanted.role AND one.id < wanted.id AND one.id <> ALL(%(live)s::uuid[])
        ORDER BY one.id DESC LIMIT 1) END,
    CASE WHEN counted.after > 0 THEN (
        SELECT one.id FROM conversations_message one
        WHERE one.conversation_id = %(conversation)s AND one.parent_id {parent}
          AND one.role = wanted.role AND one.id > wanted.id AND one.id <> ALL(%(live)s::uuid[])
        ORDER BY one.id LIMIT 1) END
FROM unnest(%(ids)s::uuid[], %(parents)s::uuid[], %(roles)s::text[])
    AS wanted (id, parent_id, role)
CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE one.id < wanted.id) AS before,
           count(*) FILTER (WHERE one.id > wanted.id) AS after,
           count(*) AS total
    FROM conversations_message one
    WHERE one.conversation_id = %(conversation)s AND one.parent_id {parent}
      AND one.role = wanted.role AND one.id <> ALL(%(live)s::uuid[])
) counted
WHERE wanted.parent_id {wanted} AND counted.before + counted.after > 0
"""
# Two halves, because an index finds `= parent` and `IS NULL`, but not `IS NOT DISTINCT FROM`.
_ALL_VERSIONS = " UNION ALL ".join(
    [
        _VERSIONS.format(parent="= wanted.parent_id", wanted="IS NOT NULL"),
        _VERSIONS.format(parent="IS NULL", wanted="IS NULL"),
    ]
)

# Downwards from a message, one index look-up a step; what stands beside its subtree is never read.
_NEWEST_LEAF = """
WITH RECURSIVE below AS (
    SELECT id FROM conversations_message
    WHERE id = %(top)s AND conversation_id = %(conversation)s
    UNION ALL
    SELECT one.id FROM below
    JOIN conversations_message one
      ON one.conversation_id = %(conversation)s AND one.parent_id = below.id
)
SELECT id FROM below
WHERE NOT EXISTS (
    SELECT 1 FROM conversations_message one
    WHERE one.conversation_id = %(conversation)s AND one.parent_id = below.id)
ORDER BY id DESC LIMIT 1
"""

_TREE = """
SELECT id, parent_id, role FROM conversations_message
WHERE conversation_id = %(conversation)s
ORDER BY id
"""


def messages_page(
    conversation: Conversation,
    leaf_id: UUID | None,
    before: UUID | None,
    limit: int,
    live: Sequence[Node] = (),
) -> MessagesPage:
    """The `limit` newest messages of the thread that ends at `leaf_id`, or those above `before`.

    `live` are the replies of live runs of this conversation: they count as versions. `before` may
    be any message of the conversation: the page is what stands above it. Two queries; none for a
    conversation without messages. Raises NotFound for a message that is not in the conversation.
    """
    start = before or leaf_id
    if start is None:
        return MessagesPage(live=_versions_of(conversation.pk, live, live) if live else {})
    # One more than the page, to know whether there is more above; `before` itself is dropped.
    rows = _path_rows(conversation.pk, start, limit + 1 + bool(before))
    if not rows:
        raise NotFound
    rows = rows[1:] if before else rows
    page, more = rows[:limit], len(rows) > limit
    nodes = [Node(row[0], row[1], row[3]) for row in page]
    places = _versions_of(conversation.pk, [*nodes, *live], live)
    return MessagesPage(
        messages=tuple(_view(row, places[row[0]]) for row in reversed(page)),
        before=page[-1][0] if more else None,
        live={node.id: places[node.id] for node in live},
    )


def leaf_and_revision(conversation_id: UUID) -> tuple[UUID | None, int]:
    """Both as they are now. One query. Raises NotFound."""
    row = Conversation.objects.filter(pk=conversation_id).values_list("active_leaf_id", "revision")
    found = row.first()
    if found is None:
        raise NotFound
    return found


def path_messages(conversation_id: UUID, leaf_id: UUID, limit: int) -> list[PathMessage]:
    """The `limit` newest messages of the thread that ends at `leaf_id`, oldest first. One query.

    Raises NotFound when the message is not in the conversation.
    """
    rows = _path_rows(conversation_id, leaf_id, limit)
    if not rows:
        raise NotFound
    return [_path_message(row) for row in reversed(rows)]


def message_text(conversation_id: UUID, message_id: UUID) -> str:
    """The text of one message. One query. Raises NotFound."""
    return path_messages(conversation_id, message_id, 1)[0].text


def feedback_of(user: User, message_ids: Sequence[UUID]) -> dict[UUID, FeedbackView]:
    """The user's own feedback, by message. One query, none for no messages."""
    if not message_ids:
        return {}
    rows = Feedback.objects.filter(message_id__in=message_ids, user_id=user.pk)
    return {
        row.message_id: FeedbackView(row.rating, readable_reason(user.pk, row.pk, row.reason))
        for row in rows
    }


def newest_leaf(conversation_id: UUID, top: UUID) -> UUID:
    """The newest message without children in the subtree of `top` (`tree.newest_leaf_below`).

    One query; it costs the subtree, not the tree. Raises NotFound.
    """
    rows = _rows(_NEWEST_LEAF, {"conversation": conversation_id, "top": top})
    if not rows:
        raise NotFound
    leaf: UUID = rows[0][0]
    return leaf


def tree_nodes(conversation_id: UUID) -> list[Node]:
    """Every message of the conversation as a bare node, oldest first. One query, from an index."""
    return [Node(*row) for row in _rows(_TREE, {"conversation": conversation_id})]


def _path_rows(conversation_id: UUID, start: UUID, limit: int) -> list[tuple[Any, ...]]:
    values = {"conversation": conversation_id, "from": start, "limit": limit}
    return _rows(_PATH, values)


def _versions_of(
    conversation_id: UUID, nodes: Iterable[Node], live: Sequence[Node]
) -> dict[UUID, Versions]:
    """The versions of `nodes`, by id, with the replies of `live` counted in. One query."""
    wanted = {node.id: node for node in nodes}
    values = {
        "conversation": conversation_id,
        "ids": _uuid_array(wanted),
        "parents": _uuid_array(node.parent_id for node in wanted.values()),
        "roles": [node.role for node in wanted.values()],
        "live": _uuid_array(node.id for node in live),
    }
    found = {one: Versions(1, 1) for one in wanted} | {one.id: Versions(1, 0) for one in live}
    for row_id, before, total, previous, after in _rows(_ALL_VERSIONS, values):
        found[row_id] = Versions(before + 1, total, previous, after)
    return _with_all_live(found, wanted, live) if live else found


def _with_all_live(
    found: dict[UUID, Versions], wanted: Mapping[UUID, Node], live: Sequence[Node]
) -> dict[UUID, Versions]:
    siblings: dict[tuple[UUID | None, str], list[UUID]] = {}
    for one in live:
        siblings.setdefault((one.parent_id, one.role), []).append(one.id)
    return {
        one.id: with_live(found[one.id], one.id, siblings.get((one.parent_id, one.role), ()))
        for one in wanted.values()
    }


def _view(row: Sequence[Any], versions: Versions) -> MessageView:
    row_id, parent_id, owner_id, role, content, _token_count, created = row
    parts = readable_parts(owner_id, row_id, content)
    return MessageView(
        id=row_id,
        parent_id=parent_id,
        role=role,
        content=tuple(parts or ()),
        created=created,
        versions=versions,
        readable=parts is not None,
    )


def _path_message(row: Sequence[Any]) -> PathMessage:
    row_id, _parent_id, owner_id, role, content, token_count, created = row
    return PathMessage(
        id=row_id,
        role=role,
        text=plain_text(readable_parts(owner_id, row_id, content) or ()),
        token_count=token_count,
        created=created,
    )


def _uuid_array(ids: Iterable[UUID | None]) -> str:
    """A uuid[] literal: the driver looks at every element on its own, which took longer than the
    query itself for 400 of them."""
    return "{" + ",".join(one.hex if one else "NULL" for one in ids) + "}"


def _rows(sql: str, values: dict[str, Any]) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(sql, values)
        rows: list[tuple[Any, ...]] = cursor.fetchall()
    return rows
