"""The users' data keys, wrapped, in a database of their own; see docs/sealing.md."""

from __future__ import annotations
