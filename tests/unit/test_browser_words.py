"""The list of one's sessions names browsers as people know them."""

from __future__ import annotations

import pytest

from accounts.browsers import browser_words

WEBKIT = "AppleWebKit/537.36 (KHTML, like Gecko)"


@pytest.mark.parametrize(
    ("agent", "words"),
    [
        (
            f"Mozilla/5.0 (Windows NT 10.0; Win64; x64) {WEBKIT} Chrome/131.0.0.0 Safari/537.36",
            "Chrome on Windows",
        ),
        (
            f"Mozilla/5.0 (Windows NT 10.0) {WEBKIT} Chrome/131.0 Safari/537.36 Edg/131.0",
            "Edge on Windows",
        ),
        (
            "Mozilla/5.0 (X11; Linux x86_64; rv:133.0) Gecko/20100101 Firefox/133.0",
            "Firefox on Linux",
        ),
        (
            f"Mozilla/5.0 (Linux; Android 10; K) {WEBKIT} SamsungBrowser/27.0 Chrome/125.0 Mobile",
            "Samsung Internet on Android",
        ),
        (
            f"Mozilla/5.0 (iPhone; CPU iPhone OS 18_1 like Mac OS X) {WEBKIT} Mobile Safari/604.1",
            "Safari on iPhone",
        ),
        (
            f"Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) {WEBKIT} Version/18.1 Safari/605.1",
            "Safari on Mac",
        ),
        ("Lynx/2.9", ""),
        ("", ""),
    ],
)
def test_words_for_a_header(agent: str, words: str) -> None:
    assert browser_words(agent) == words
