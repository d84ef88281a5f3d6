"""What tokens cost. Decimal from end to end: no float ever holds money. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Final

PER_TOKENS: Final = 1_000_000
"""Prices are for a million tokens, as everywhere."""

PRICE_DIGITS, PRICE_PLACES = 14, 6
COST_DIGITS, COST_PLACES = 22, 12
"""A price has 6 places and is divided by a million: every cost of whole tokens is exact."""


@dataclass(frozen=True, slots=True)
class Prices:
    """Of one model, per million tokens, in the currency of `settings.CURRENCY`."""

    input: Decimal
    cached: Decimal
    cache_write: Decimal
    output: Decimal

    def cost(
        self, *, prompt_tokens: int, cached_tokens: int, output_tokens: int, written_tokens: int = 0
    ) -> Decimal:
        """What an answer cost. Of the prompt, `cached_tokens` came from the cache and
        `written_tokens` were written to it; the rest is at the price of input.

        Without a token of answer nothing is charged: nobody pays for what they did not get.
        """
        if output_tokens <= 0:
            return Decimal(0)
        cached = min(cached_tokens, prompt_tokens)
        written = min(written_tokens, prompt_tokens - cached)
        millionths = (
            self.input * (prompt_tokens - cached - written)
            + self.cached * cached
            + self.cache_write * written
            + self.output * output_tokens
        )
        return millionths / PER_TOKENS
