"""What tokens cost."""

from __future__ import annotations

from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from quotas.pricing import COST_PLACES, Prices

prices = st.decimals(min_value=0, max_value=10_000, places=6)
tokens = st.integers(0, 10_000_000)


def test_each_kind_of_token_has_its_price() -> None:
    one = Prices(Decimal(1), Decimal(10), Decimal(100), Decimal(1000))
    cost = one.cost(prompt_tokens=9, cached_tokens=2, output_tokens=3, written_tokens=4)
    assert cost == Decimal(3 * 1 + 2 * 10 + 4 * 100 + 3 * 1000) / 1_000_000


def test_more_cached_than_asked_is_no_reason_to_pay_back() -> None:
    one = Prices(Decimal(1), Decimal(0), Decimal(0), Decimal(0))
    assert one.cost(prompt_tokens=5, cached_tokens=9, output_tokens=1) == 0


@given(prices, prices, prices, prices, tokens, tokens, tokens)
def test_costs_are_exact_and_fit_their_column(
    asked: Decimal,
    cached: Decimal,
    write: Decimal,
    output: Decimal,
    prompt_tokens: int,
    cached_tokens: int,
    output_tokens: int,
) -> None:
    cost = Prices(asked, cached, write, output).cost(
        prompt_tokens=prompt_tokens, cached_tokens=cached_tokens, output_tokens=output_tokens
    )
    assert cost >= 0
    assert cost == round(cost, COST_PLACES)
