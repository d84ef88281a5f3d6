from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conversations.tree import (
    BrokenTree,
    Node,
    Versions,
    newest_leaf_below,
    path_to,
    versions,
    with_live,
)

ROLES = st.sampled_from(["user", "assistant"])


def an_id(number: int) -> UUID:
    return UUID(int=number)


@st.composite
def trees(draw: st.DrawFn) -> list[Node]:
    """Some nodes, several roots among them, each younger than its parent, in any order."""
    nodes: list[Node] = []
    for number in range(1, draw(st.integers(1, 20)) + 1):
        parent = draw(st.none() | st.sampled_from(nodes)) if nodes else None
        nodes.append(Node(an_id(number), parent.id if parent else None, draw(ROLES)))
    return draw(st.permutations(nodes))


def chain(length: int) -> list[Node]:
    return [
        Node(an_id(n), an_id(n - 1) if n > 1 else None, "user" if n % 2 else "assistant")
        for n in range(1, length + 1)
    ]


def parents_of(nodes: list[Node]) -> dict[UUID, UUID | None]:
    return {node.id: node.parent_id for node in nodes}


def is_below(nodes: list[Node], one: UUID, top: UUID) -> bool:
    parents = parents_of(nodes)
    step: UUID | None = one
    while step is not None and step != top:
        step = parents[step]
    return step == top


@settings(deadline=None, max_examples=50)
@given(trees(), st.data())
def test_a_path_leads_from_a_root_to_the_leaf_step_by_step(
    nodes: list[Node], data: st.DataObject
) -> None:
    leaf = data.draw(st.sampled_from(nodes))
    path = path_to(nodes, leaf.id)
    assert path[0].parent_id is None
    assert path[-1] == leaf
    assert [node.parent_id for node in path[1:]] == [node.id for node in path[:-1]]


@settings(deadline=None, max_examples=50)
@given(trees(), st.data())
def test_the_newest_leaf_is_the_youngest_childless_message_below(
    nodes: list[Node], data: st.DataObject
) -> None:
    top = data.draw(st.sampled_from(nodes)).id
    with_children = {node.parent_id for node in nodes}
    leaves = [n.id for n in nodes if n.id not in with_children and is_below(nodes, n.id, top)]
    assert newest_leaf_below(nodes, top) == max(leaves)


@settings(deadline=None, max_examples=50)
@given(trees())
def test_versions_are_the_sorted_siblings_of_the_same_role(nodes: list[Node]) -> None:
    found = versions(nodes)
    assert found.keys() == {node.id for node in nodes}
    for node in nodes:
        group = sorted(n.id for n in nodes if (n.parent_id, n.role) == (node.parent_id, node.role))
        own = found[node.id]
        assert own.count == len(group)
        assert group[own.index - 1] == node.id
        assert own.previous == (group[own.index - 2] if own.index > 1 else None)
        assert own.next == (group[own.index] if own.index < len(group) else None)


@settings(deadline=None, max_examples=50)
@given(trees(), st.data())
def test_live_replies_count_as_if_they_were_stored(nodes: list[Node], data: st.DataObject) -> None:
    """`with_live` on counts without the live ones gives what counting all of them gives."""
    live = data.draw(st.lists(st.sampled_from(nodes), unique=True))
    stored = [node for node in nodes if node not in live]
    whole = versions(stored, live)
    for node in nodes:
        key = (node.parent_id, node.role)
        siblings = [n.id for n in live if (n.parent_id, n.role) == key]
        without = versions([n for n in stored if (n.parent_id, n.role) == key] + [node])[node.id]
        if node in live:
            without = replace(without, count=without.count - 1)
        assert with_live(without, node.id, siblings) == whole[node.id]


def test_a_reply_given_as_stored_and_as_live_counts_once() -> None:
    question, reply = chain(2)
    assert versions([question, reply], live=[reply])[reply.id] == Versions(1, 1)


def test_roles_are_versions_of_their_own() -> None:
    nodes = [Node(an_id(1), None, "user"), Node(an_id(2), None, "assistant")]
    assert [versions(nodes)[node.id].count for node in nodes] == [1, 1]


def test_five_thousand_levels_cost_no_stack() -> None:
    nodes = chain(5_000)
    assert path_to(nodes, nodes[-1].id) == nodes
    assert newest_leaf_below(nodes, nodes[0].id) == nodes[-1].id
    assert versions(nodes)[nodes[2_500].id] == Versions(1, 1)


def test_ten_thousand_versions_of_one_message_are_placed() -> None:
    nodes = [Node(an_id(1), None, "user")]
    nodes += [Node(an_id(n), an_id(1), "assistant") for n in range(2, 10_002)]
    assert versions(nodes)[an_id(5_001)] == Versions(5_000, 10_000, an_id(5_000), an_id(5_002))
    assert newest_leaf_below(nodes, an_id(1)) == an_id(10_001)


def test_an_unknown_message_has_no_path_and_no_leaf() -> None:
    with pytest.raises(BrokenTree):
        path_to(chain(3), an_id(9))
    with pytest.raises(BrokenTree):
        newest_leaf_below(chain(3), an_id(9))


def test_a_missing_parent_is_told() -> None:
    with pytest.raises(BrokenTree):
        path_to(chain(3)[1:], an_id(3))


def test_a_circle_ends() -> None:
    circle = [Node(an_id(1), an_id(2), "user"), Node(an_id(2), an_id(1), "assistant")]
    with pytest.raises(BrokenTree):
        path_to(circle, an_id(1))
    with pytest.raises(BrokenTree):
        newest_leaf_below(circle, an_id(1))
