"""ENGINE_PROFILES: what is accepted, and what is said of what is not."""

from __future__ import annotations

import json

import pytest

from generation.engines.llamacpp import LlamaCppEngine
from generation.engines.openai import OpenAIEngine
from generation.engines.profiles import (
    EngineProfile,
    InvalidProfiles,
    build_engine,
    parse_profiles,
)
from generation.engines.simulated import SimulatedEngine
from generation.engines.vllm import VllmEngine

SECRET = "s3cr3t-api-key"


def parse_one(**entry: object) -> EngineProfile:
    return parse_profiles(json.dumps({"p": entry}))["p"]


@pytest.mark.parametrize("text", ["", "  \n", "{}"])
def test_no_profiles_are_no_error(text: str) -> None:
    assert parse_profiles(text) == {}


def test_a_full_profile_is_read() -> None:
    profile = parse_one(
        kind="llamacpp",
        url="http://127.0.0.1:8091/v1/",
        api_key=SECRET,
        model="demo",
        context_tokens=8192,
        slots=2,
        options={"silence_s": 30},
    )
    assert profile == EngineProfile(
        "p", "llamacpp", "http://127.0.0.1:8091", SECRET, "demo", 8192, 2, {"silence_s": 30}
    )


def test_defaults_are_small() -> None:
    profile = parse_one(kind="simulated")
    assert (profile.url, profile.model, profile.context_tokens, profile.slots) == ("", "", 4096, 1)


def test_a_profile_does_not_show_its_key() -> None:
    assert SECRET not in repr(parse_one(kind="openai", url="https://h", api_key=SECRET))


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        ([], "object"),
        ({}, "'kind'"),
        ({"kind": "gpt"}, "'kind'"),
        ({"kind": ["openai"]}, "'kind'"),
        ({"kind": "simulated", "slot": 1}, "'slot'"),
        ({"kind": "simulated", "slots": 0}, "'slots'"),
        ({"kind": "simulated", "slots": True}, "'slots'"),
        ({"kind": "simulated", "slots": "2"}, "'slots'"),
        ({"kind": "simulated", "context_tokens": 1.5}, "'context_tokens'"),
        ({"kind": "simulated", "context_tokens": 10**12}, "'context_tokens'"),
        ({"kind": "simulated", "options": []}, "'options'"),
        ({"kind": "simulated", "model": 7}, "'model'"),
        ({"kind": "openai"}, "'url'"),
        ({"kind": "openai", "url": "localhost:80"}, "'url'"),
        ({"kind": "openai", "url": "file:///etc/passwd"}, "'url'"),
        ({"kind": "openai", "url": "http://user:pw@h"}, "'url'"),
        ({"kind": "openai", "url": "http://h:99999"}, "'url'"),
        ({"kind": "openai", "url": "http://h/?key=x"}, "'url'"),
        ({"kind": "openai", "url": "http://h", "api_key": "a\nb"}, "'api_key'"),
        ({"kind": "openai", "url": "http://h", "api_key": "ключ"}, "'api_key'"),
    ],
)
def test_a_wrong_profile_is_refused_by_name_and_key(entry: object, told: str) -> None:
    with pytest.raises(InvalidProfiles, match=told) as caught:
        parse_profiles(json.dumps({"mine": entry}))
    assert "mine" in str(caught.value)


@pytest.mark.parametrize("name", ["", "a b", "-x", "x" * 65, "ü", "a/b"])
def test_a_wrong_name_is_refused(name: str) -> None:
    with pytest.raises(InvalidProfiles, match="name"):
        parse_profiles(json.dumps({name: {"kind": "simulated"}}))


@pytest.mark.parametrize("text", ["{", "[]", "7", "[" * 100_000, '{"a":' + " " * 300_000 + "{}}"])
def test_what_is_no_small_json_object_is_refused(text: str) -> None:
    with pytest.raises(InvalidProfiles, match="ENGINE_PROFILES"):
        parse_profiles(text)


def test_no_error_shows_a_secret() -> None:
    broken = '{"p": {"kind": "openai", "url": "http://h", "api_key": "' + SECRET + '"'
    with pytest.raises(InvalidProfiles) as caught:
        parse_profiles(broken)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "cls", "can_continue"),
    [
        ("openai", OpenAIEngine, False),
        ("llamacpp", LlamaCppEngine, True),
        ("simulated", SimulatedEngine, True),
        ("vllm", VllmEngine, True),
    ],
)
async def test_each_kind_is_built(kind: str, cls: type, can_continue: bool) -> None:
    engine = build_engine(parse_one(kind=kind, url="http://127.0.0.1:1"))
    assert type(engine) is cls
    assert engine.can_continue is can_continue
    await engine.aclose()


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("openai", {"nope": 1}),
        ("openai", {"silence_s": 0}),
        ("openai", {"silence_s": True}),
        ("openai", {"include_usage": "yes"}),
        ("openai", {"extra_body": []}),
        ("simulated", {"nope": 1}),
        ("simulated", {"tokens": -1}),
        ("simulated", {"directives": "yes"}),
        ("simulated", {"hold_file": 7}),
        ("simulated", {"pieces": "abc"}),
    ],
)
def test_wrong_options_name_the_profile_and_the_option(
    kind: str, options: dict[str, object]
) -> None:
    profile = parse_one(kind=kind, url="http://h", options=options)
    with pytest.raises(InvalidProfiles) as caught:
        build_engine(profile)
    assert "'p'" in str(caught.value)
    assert next(iter(options)) in str(caught.value)
