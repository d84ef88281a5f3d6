"""The tree of messages as plain values: paths, leaves and versions. Pure.

Nothing here recurses, so depth costs no stack; every function is linear in the nodes it is given.
Ids are UUIDv7: the larger of two ids is the newer message.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from uuid import UUID


class BrokenTree(ValueError):
    """The nodes do not form a tree, or the wanted node is not among them."""


@dataclass(frozen=True, slots=True)
class Node:
    """A message, or a live reply: only its place in the tree."""

    id: UUID
    parent_id: UUID | None
    role: str


@dataclass(frozen=True, slots=True)
class Versions:
    """Where a message stands among its versions. `index` counts from 1, oldest first."""

    index: int
    count: int
    previous: UUID | None = None
    next: UUID | None = None


def path_to(nodes: Iterable[Node], leaf: UUID) -> list[Node]:
    """The thread from the root to `leaf`, oldest first.

    Raises BrokenTree for an unknown leaf, a missing parent, or a circle.
    """
    by_id = {node.id: node for node in nodes}
    path: list[Node] = []
    step: UUID | None = leaf
    while step is not None:
        node = by_id.pop(step, None)  # popped, so that a circle ends as a missing parent
        if node is None:
            raise BrokenTree(f"no message {step} on the way to the root")
        path.append(node)
        step = node.parent_id
    path.reverse()
    return path


def newest_leaf_below(nodes: Iterable[Node], top: UUID) -> UUID:
    """The newest message without children in the subtree of `top`; `top` itself if it has none.

    Raises BrokenTree when `top` is not among the nodes, or stands below itself.
    """
    children: dict[UUID | None, list[UUID]] = {}
    known = False
    for node in nodes:
        children.setdefault(node.parent_id, []).append(node.id)
        known = known or node.id == top
    if not known:
        raise BrokenTree(f"no message {top}")
    leaves: list[UUID] = []
    seen: set[UUID] = set()
    waiting = [top]
    while waiting:
        step = waiting.pop()
        if step in seen:
            raise BrokenTree(f"message {step} stands below itself")
        seen.add(step)
        below = children.get(step)
        if below is None:
            leaves.append(step)
        else:
            waiting.extend(below)
    return max(leaves)


def versions(nodes: Iterable[Node], live: Iterable[Node] = ()) -> dict[UUID, Versions]:
    """The versions of every node, live replies among them, by id.

    A reply that is given as stored and as live (it ended while the two were read) counts once.
    """
    groups: dict[tuple[UUID | None, str], set[UUID]] = {}
    for node in (*nodes, *live):
        groups.setdefault((node.parent_id, node.role), set()).add(node.id)
    found: dict[UUID, Versions] = {}
    for group in groups.values():
        found.update(_placed(sorted(group)))
    return found


def _placed(ids: Sequence[UUID]) -> Iterable[tuple[UUID, Versions]]:
    padded = [None, *ids, None]
    neighbours = zip(ids, padded, padded[2:], strict=False)
    for index, (own, previous, after) in enumerate(neighbours, start=1):
        yield own, Versions(index, len(ids), previous, after)


def with_live(stored: Versions, own: UUID, live: Iterable[UUID]) -> Versions:
    """`stored` with the live replies of the same parent and role counted in.

    `stored` was counted without any id of `live`; where `own` is live itself, `stored.index` is
    one more than the number of stored versions before it. Costs the live replies only, however
    many versions are stored.
    """
    ids = sorted(set(live))
    before = [one for one in ids if one < own]
    after = [one for one in ids if one > own]
    return Versions(
        index=stored.index + len(before),
        count=stored.count + len(ids),
        previous=max((one for one in (stored.previous, *before[-1:]) if one), default=None),
        next=min((one for one in (stored.next, *after[:1]) if one), default=None),
    )
