"""What can go wrong between an owner and its log."""

from __future__ import annotations


class TokenLogError(Exception):
    """The token log cannot do this."""


class Fenced(TokenLogError):
    """Somebody else owns the run now, or it has ended: nothing more may be written for it."""


class AnswerTooLong(TokenLogError, ValueError):
    """The answer has outgrown what one snapshot can hold. End the run with finish `length`."""


class LogFull(TokenLogError):
    """The epoch has used up its seqs."""


class LogClosed(TokenLogError, RuntimeError):
    """The text of the run is complete, taken back, or handed over: nothing can be added to it."""
