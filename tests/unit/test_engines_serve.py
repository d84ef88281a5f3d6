"""How `vllm serve` is started: what a profile may say, and the words that follow from it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from generation.engines.profiles import EngineProfile, InvalidProfiles, parse_profiles
from generation.engines.serve import command_line, process_environment
from generation.engines.vllm_server import fingerprint

SOCKET = "unix:///run/hearth/engine.sock"


def parse(serve: object, **entry: object) -> EngineProfile:
    whole = {"kind": "vllm", "url": SOCKET, "model": "demo", "serve": serve, **entry}
    return parse_profiles(json.dumps({"mine": whole}))["mine"]


def words(profile: EngineProfile) -> list[str]:
    assert profile.serve is not None
    return command_line(profile, profile.serve)


def environment(profile: EngineProfile, ours: Mapping[str, str]) -> dict[str, str]:
    assert profile.serve is not None
    return process_environment(profile, profile.serve, ours)


def value_of(line: list[str], name: str) -> str:
    assert line.count(name) == 1
    return line[line.index(name) + 1]


def test_a_small_profile_becomes_a_whole_command() -> None:
    line = words(parse({"model": "org/model"}, slots=12, context_tokens=8192))
    assert line[:3] == ["vllm", "serve", "org/model"]
    assert value_of(line, "--uds") == "/run/hearth/engine.sock"
    assert value_of(line, "--served-model-name") == "demo"
    assert value_of(line, "--max-num-seqs") == "12"
    assert value_of(line, "--max-model-len") == "8192"
    assert value_of(line, "--tensor-parallel-size") == "1"
    assert "--enable-prompt-tokens-details" in line
    assert "--scheduling-policy" not in line


def test_everything_that_can_be_said_is_passed_on() -> None:
    serve = {
        "model": "/models/big",
        "command": ["/opt/vllm/bin/vllm"],
        "dtype": "bfloat16",
        "tensor_parallel": 4,
        "pipeline_parallel": 2,
        "max_num_seqs": 64,
        "arguments": ["--quantization", "fp8", "; rm -rf $HOME"],
        "environment": {"CUDA_VISIBLE_DEVICES": "0,1"},
    }
    profile = parse(serve, slots=32, options={"priority_scheduling": True})
    line = words(profile)
    assert line[0] == "/opt/vllm/bin/vllm"
    assert value_of(line, "--dtype") == "bfloat16"
    assert value_of(line, "--tensor-parallel-size") == "4"
    assert value_of(line, "--pipeline-parallel-size") == "2"
    assert value_of(line, "--max-num-seqs") == "64"
    assert value_of(line, "--scheduling-policy") == "priority"
    # One word each, as it stands: no shell reads them.
    assert line[-3:] == ["--quantization", "fp8", "; rm -rf $HOME"]
    assert environment(profile, {})["CUDA_VISIBLE_DEVICES"] == "0,1"


def test_without_serve_the_engine_is_attached_to() -> None:
    entry = {"kind": "vllm", "url": SOCKET}
    profile = parse_profiles(json.dumps({"mine": entry}))["mine"]
    assert profile.serve is None
    assert profile.socket == Path("/run/hearth/engine.sock")
    over_http = parse_profiles(json.dumps({"a": {"kind": "vllm", "url": "http://gpu:8000/v1"}}))
    assert (over_http["a"].url, over_http["a"].socket) == ("http://gpu:8000", None)


@pytest.mark.parametrize(
    ("serve", "told"),
    [
        ([], "'serve' must be a JSON object"),
        ({}, "'serve.model'"),
        ({"model": ""}, "'serve.model'"),
        ({"model": "--uds"}, "'serve.model'"),
        ({"model": "a\nb"}, "'serve.model'"),
        ({"model": "m", "modle": 1}, "'modle'"),
        ({"model": "m", "dtype": "float 16"}, "'serve.dtype'"),
        ({"model": "m", "dtype": 16}, "'serve.dtype'"),
        ({"model": "m", "tensor_parallel": 0}, "'serve.tensor_parallel'"),
        ({"model": "m", "tensor_parallel": True}, "'serve.tensor_parallel'"),
        ({"model": "m", "pipeline_parallel": "2"}, "'serve.pipeline_parallel'"),
        ({"model": "m", "max_num_seqs": -1}, "'serve.max_num_seqs'"),
        ({"model": "m", "nice": 20}, "'serve.nice'"),
        ({"model": "m", "nice": -1}, "'serve.nice'"),
        ({"model": "m", "arguments": "--quantization fp8"}, "'serve.arguments'"),
        ({"model": "m", "arguments": [7]}, "'serve.arguments'"),
        ({"model": "m", "arguments": ["a\0b"]}, "'serve.arguments'"),
        ({"model": "m", "arguments": ["--x"] * 500}, "'serve.arguments'"),
        ({"model": "m", "command": "vllm"}, "'serve.command'"),
        ({"model": "m", "environment": []}, "'serve.environment'"),
        ({"model": "m", "environment": {"A": 1}}, "A must be a string"),
        ({"model": "m", "environment": {"A=B": "1"}}, "'A=B'"),
    ],
)
def test_a_wrong_part_is_refused_by_its_name(serve: object, told: str) -> None:
    with pytest.raises(InvalidProfiles, match="mine") as caught:
        parse(serve)
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("argument", "instead"),
    [
        ("--uds", "url"),
        ("--port=1", "url"),
        ("--max_num_seqs", "slots"),
        ("--max-model-len=9", "context_tokens"),
        ("-tp", "serve.tensor_parallel"),
        ("--scheduling-policy", "options.priority_scheduling"),
        ("--api-key", "api_key"),
        ("--config", "serve.arguments"),
    ],
)
def test_an_argument_that_is_ours_is_refused_with_what_to_use(argument: str, instead: str) -> None:
    with pytest.raises(InvalidProfiles, match=f"use {instead}"):
        parse({"model": "m", "arguments": [argument, "1"]})


@pytest.mark.parametrize("url", ["http://127.0.0.1:8000", "https://h"])
def test_only_at_a_socket_of_our_own_is_anything_started(url: str) -> None:
    with pytest.raises(InvalidProfiles, match="unix://"):
        parse({"model": "m"}, url=url)
    with pytest.raises(InvalidProfiles, match="kind vllm"):
        parse({"model": "m"}, kind="openai", url=url)


@pytest.mark.parametrize(
    "url", ["unix://relative", "unix:///", "unix:///a/", "unix:///" + "x" * 107, "unix:///a\nb"]
)
def test_a_socket_that_cannot_be_is_refused(url: str) -> None:
    with pytest.raises(InvalidProfiles, match="url"):
        parse_profiles(json.dumps({"mine": {"kind": "vllm", "url": url}}))


def test_the_engine_gets_none_of_our_secrets() -> None:
    profile = parse({"model": "org/model"}, api_key="k" * 20)
    ours = {
        "PATH": "/bin",
        "CUDA_VISIBLE_DEVICES": "1",
        "HF_TOKEN": "hub",
        "SECRET_KEY": "s",
        "DATABASE_URL": "d",
        "MASTER_KEYS": "m",
        "ENGINE_PROFILES": "{}",
    }
    got = environment(profile, ours)
    assert {"PATH", "CUDA_VISIBLE_DEVICES", "HF_TOKEN"} <= got.keys()
    assert not got.keys() & {"SECRET_KEY", "DATABASE_URL", "MASTER_KEYS", "ENGINE_PROFILES"}
    # A key in the command line would be shown to everybody on the machine.
    assert got["VLLM_API_KEY"] == "k" * 20
    assert "k" * 20 not in words(profile)


def test_a_model_that_is_here_is_not_looked_for_elsewhere(tmp_path: Path) -> None:
    ours = {"https_proxy": "http://me:secret@proxy:3128"}
    here = environment(parse({"model": str(tmp_path)}), ours)
    elsewhere = environment(parse({"model": "org/model"}), ours)
    assert here["HF_HUB_OFFLINE"] == "1"
    assert "https_proxy" not in here
    assert "HF_HUB_OFFLINE" not in elsewhere
    assert elsewhere["https_proxy"] == ours["https_proxy"]


def test_a_profile_shows_no_variable_of_its_engine() -> None:
    profile = parse({"model": "m", "environment": {"HF_TOKEN": "hub-secret"}})
    assert "hub-secret" not in repr(profile)


def test_the_fingerprint_differs_where_the_engine_would() -> None:
    def of(**serve: Any) -> str:
        profile = parse({"model": "m", **serve})
        assert profile.serve is not None
        return fingerprint(profile, profile.serve)

    assert of() == of()
    others = [of(dtype="float16"), of(environment={"A": "1"}), of(arguments=["-x"]), of(nice=5)]
    assert len({of(), *others}) == 5
