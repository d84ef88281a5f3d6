from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from generation.prompts.packing import Turn, alternating, estimated_tokens, without_oldest

turns = st.lists(
    st.builds(Turn, st.sampled_from(["user", "assistant"]), st.text(max_size=5)), max_size=30
)


def path_of(count: int) -> list[Turn]:
    """user, assistant, user, … ending with the new message."""
    return [Turn("assistant" if i % 2 else "user", f"turn {i}") for i in range(count)]


@given(turns)
def test_roles_alternate_beginning_with_the_user(path: list[Turn]) -> None:
    roles = [turn.role for turn in alternating(path)]

    assert roles == ["assistant" if i % 2 else "user" for i in range(len(roles))]


@given(turns, st.text(min_size=1, max_size=5))
def test_the_newest_message_always_stays(path: list[Turn], text: str) -> None:
    newest = Turn("user", text)

    assert alternating([*path, newest])[-1] == newest


@given(turns)
def test_an_empty_reply_is_left_out(path: list[Turn]) -> None:
    assert not [t for t in alternating(path) if t.role == "assistant" and not t.text]


def test_a_whole_path_is_kept_as_it_is() -> None:
    assert alternating(path_of(9)) == path_of(9)


@given(st.integers(min_value=1, max_value=60))
def test_dropping_ends_at_the_newest_message(pairs: int) -> None:
    packed = path_of(2 * pairs + 1)
    newest = packed[-1]

    for _ in range(pairs):
        shorter = without_oldest(packed)
        assert shorter[-1] == newest
        assert shorter[0].role == "user"
        assert len(shorter) < len(packed) or len(packed) == 1
        packed = shorter

    assert packed == [newest]


def test_many_turns_go_at_once() -> None:
    """One turn at a time would change the start of every prompt."""
    assert len(without_oldest(path_of(81))) == 61


@given(st.text(max_size=200))
def test_the_estimate_is_low(text: str) -> None:
    assert estimated_tokens(text) <= len(text.encode("utf-8", "replace"))
