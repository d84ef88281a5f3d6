"""What can go wrong between us and an engine.

The message is safe to log and to show: it never holds a prompt, an answer or a key, and what an
upstream wrote about itself is bounded and printable.
"""

from __future__ import annotations


class EngineError(Exception):
    """The engine failed. `retryable`: the same request may succeed elsewhere or later."""

    def __init__(self, message: str, retryable: bool = False) -> None:
        super().__init__(message)
        self.message = message
        self.retryable = retryable


class EngineUnavailable(EngineError):
    """Nobody answered, or the engine is full (connection refused, 429, 502, 503, 504)."""

    def __init__(self, message: str, retryable: bool = True) -> None:
        super().__init__(message, retryable)


class EngineRejected(EngineError):
    """The engine refuses this request, and would again: prompt too long, unknown model, bad key."""

    def __init__(self, message: str, retryable: bool = False) -> None:
        super().__init__(message, retryable)


class EngineCutOff(EngineError):
    """The stream ended without a finish. What was yielded is good; the answer is not whole."""

    def __init__(self, message: str, retryable: bool = True) -> None:
        super().__init__(message, retryable)
