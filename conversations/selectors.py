"""The reads: lists, pages of a thread, paths for prompts. Plain frozen values with opened content.

Every function costs a fixed number of queries, whatever it finds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from accounts import sql
from accounts.errors import NotFound
from accounts.models import User
from conversations.content import TextPart, plain_text
from conversations.list_cursor import Place, parse_place, write_place
from conversations.models import Conversation
from conversations.sealed import parts_reader, readable_reason, readable_title, title_reader
from conversations.tree import Node, Versions, with_live

PartsOf = Callable[[UUID, bytes], Sequence[TextPart] | None]

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
    found = _list_rows(owner.pk, place, limit + 1)
    began = place.began if place else found[0][3] if found else None
    page, more = found[:limit], len(found) > limit
    last = Place(at=page[-1][5], id=page[-1][0], began=began) if more and began else None
    title_of = title_reader(owner.pk)
    return ConversationsPage(
        items=tuple(_item(title_of, row) for row in page),
        next_cursor=write_place(owner.pk, last) if last else None,
    )


def _list_rows(owner_id: UUID, place: Place | None, limit: int) -> list[tuple[Any, ...]]:
    values: dict[str, Any] = {"owner": owner_id, "limit": limit}
    if place is not None:
        values |= {"place": place.at, "id": place.id, "began": place.began}
    return sql.rows(_FIRST_PAGE if place is None else _NEXT_PAGE, values)


def _item(title_of: Callable[[UUID, bytes], str], row: Sequence[Any]) -> ConversationItem:
    row_id, title, active_leaf_id, last_activity, created, _place = row
    return ConversationItem(
        id=row_id,
        title=title_of(row_id, title),
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
# the runs and this statement would count twice. Most messages have no siblings: one pass over the
# index tells which have, and only those are asked for their place among them.
_SIBLINGS = """
FROM conversations_message one
WHERE one.conversation_id = %(conversation)s AND one.parent_id {same}
  AND one.role = wanted.role AND one.id <> ALL(%(live)s::uuid[]) AND one.id"""
_VERSIONS = f"""
(WITH groups AS MATERIALIZED (
    SELECT parent_id, role, count(*) AS total FROM conversations_message
    WHERE conversation_id = %(conversation)s AND parent_id {{among}}
      AND id <> ALL(%(live)s::uuid[])
    GROUP BY parent_id, role
)
SELECT wanted.id, groups.total,
    (SELECT count(*) {_SIBLINGS} < wanted.id),
    (SELECT one.id {_SIBLINGS} < wanted.id ORDER BY one.id DESC LIMIT 1),
    (SELECT one.id {_SIBLINGS} > wanted.id ORDER BY one.id LIMIT 1)
FROM unnest(%(ids)s::uuid[], %(parents)s::uuid[], %(roles)s::text[])
    AS wanted (id, parent_id, role)
JOIN groups ON groups.role = wanted.role AND {{both}}
WHERE groups.total > 1 OR wanted.id = ANY(%(live)s::uuid[]))
"""  # noqa: S608 — constants of our own
# Two forms, because an index finds `= parent` and `IS NULL`, but not `IS NOT DISTINCT FROM`.
_VERSIONS_BELOW = _VERSIONS.format(
    among="= ANY(%(parents)s::uuid[])",
    same="= wanted.parent_id",
    both="groups.parent_id = wanted.parent_id",
)
_VERSIONS_OF_ROOTS = _VERSIONS.format(
    among="IS NULL", same="IS NULL", both="wanted.parent_id IS NULL"
)

_FEEDBACK = """
SELECT id, message_id, rating, reason FROM conversations_feedback
WHERE user_id = %(user)s AND message_id = ANY(%(messages)s::uuid[])
"""

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
    path = _path_rows(conversation.pk, start, limit + 1 + bool(before))
    if not path:
        raise NotFound
    path = path[1:] if before else path
    page, more = path[:limit], len(path) > limit
    nodes = [Node(row[0], row[1], row[3]) for row in page]
    places = _versions_of(conversation.pk, [*nodes, *live], live)
    parts_of = parts_reader(conversation.owner_id)
    return MessagesPage(
        messages=tuple(_view(parts_of, row, places[row[0]]) for row in reversed(page)),
        before=page[-1][0] if more else None,
        live={node.id: places[node.id] for node in live},
    )


def path_messages(conversation_id: UUID, leaf_id: UUID, limit: int) -> list[PathMessage]:
    """The `limit` newest messages of the thread that ends at `leaf_id`, oldest first. One query.

    Raises NotFound when the message is not in the conversation.
    """
    path = _path_rows(conversation_id, leaf_id, limit)
    if not path:
        raise NotFound
    parts_of = parts_reader(path[0][2])
    return [_path_message(parts_of, row) for row in reversed(path)]


def message_text(conversation_id: UUID, message_id: UUID) -> str:
    """The text of one message. One query. Raises NotFound."""
    return path_messages(conversation_id, message_id, 1)[0].text


def feedback_of(user: User, message_ids: Sequence[UUID]) -> dict[UUID, FeedbackView]:
    """The user's own feedback, by message. One query, none for no messages."""
    if not message_ids:
        return {}
    values = {"user": user.pk, "messages": sql.uuid_array(message_ids)}
    return {
        message_id: FeedbackView(rating, readable_reason(user.pk, row_id, reason))
        for row_id, message_id, rating, reason in sql.rows(_FEEDBACK, values)
    }


def newest_leaf(conversation_id: UUID, top: UUID) -> UUID:
    """The newest message without children in the subtree of `top` (`tree.newest_leaf_below`).

    One query; it costs the subtree, not the tree. Raises NotFound.
    """
    found = sql.rows(_NEWEST_LEAF, {"conversation": conversation_id, "top": top})
    if not found:
        raise NotFound
    leaf: UUID = found[0][0]
    return leaf


def tree_nodes(conversation_id: UUID) -> list[Node]:
    """Every message of the conversation as a bare node, oldest first. One query, from an index."""
    return [Node(*row) for row in sql.rows(_TREE, {"conversation": conversation_id})]


def _path_rows(conversation_id: UUID, start: UUID, limit: int) -> list[tuple[Any, ...]]:
    values = {"conversation": conversation_id, "from": start, "limit": limit}
    return sql.rows(_PATH, values)


def _versions_of(
    conversation_id: UUID, nodes: Iterable[Node], live: Sequence[Node]
) -> dict[UUID, Versions]:
    """The versions of `nodes`, by id, with the replies of `live` counted in. One query."""
    wanted = {node.id: node for node in nodes}
    values = {
        "conversation": conversation_id,
        "ids": sql.uuid_array(wanted),
        "parents": sql.uuid_array(node.parent_id for node in wanted.values()),
        "roles": sql.name_array(node.role for node in wanted.values()),
        "live": sql.uuid_array(node.id for node in live),
    }
    found = {one: Versions(1, 1) for one in wanted} | {one.id: Versions(1, 0) for one in live}
    has_root = any(node.parent_id is None for node in wanted.values())
    statement = f"{_VERSIONS_BELOW} UNION ALL {_VERSIONS_OF_ROOTS}" if has_root else _VERSIONS_BELOW
    for row_id, total, before, previous, after in sql.rows(statement, values):
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


def _view(parts_of: PartsOf, row: Sequence[Any], versions: Versions) -> MessageView:
    row_id, parent_id, _owner_id, role, content, _token_count, created = row
    parts = parts_of(row_id, content)
    return MessageView(
        id=row_id,
        parent_id=parent_id,
        role=role,
        content=tuple(parts or ()),
        created=created,
        versions=versions,
        readable=parts is not None,
    )


def _path_message(parts_of: PartsOf, row: Sequence[Any]) -> PathMessage:
    row_id, _parent_id, _owner_id, role, content, token_count, created = row
    return PathMessage(
        id=row_id,
        role=role,
        text=plain_text(parts_of(row_id, content) or ()),
        token_count=token_count,
        created=created,
    )
