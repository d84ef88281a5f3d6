"""Adapters to the programs that write text. They know no runs, no logs and no Django."""

from __future__ import annotations

from generation.engines.errors import (
    EngineCutOff,
    EngineError,
    EngineRejected,
    EngineUnavailable,
)
from generation.engines.profiles import (
    EngineProfile,
    InvalidProfiles,
    build_engine,
    parse_profiles,
)
from generation.engines.protocol import (
    ChatMessage,
    Engine,
    GenerateRequest,
    Health,
    Load,
    Piece,
    Usage,
)

__all__ = [
    "ChatMessage",
    "Engine",
    "EngineCutOff",
    "EngineError",
    "EngineProfile",
    "EngineRejected",
    "EngineUnavailable",
    "GenerateRequest",
    "Health",
    "InvalidProfiles",
    "Load",
    "Piece",
    "Usage",
    "build_engine",
    "parse_profiles",
]
