"""How `vllm serve` is started: what a profile may say about it, and the command that follows. Pure.

Everything is lists of words. No shell reads any of it, and no word comes from the database.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final, cast

from generation.engines.protocol import EngineProfile, ServeOptions

PRIORITY_OPTION: Final = "priority_scheduling"
PARALLEL_MAX: Final = 1024
SEQS_MAX: Final = 65_536
NICE_MAX: Final = 19
WORDS_MAX: Final = 200
WORD_CHARS_MAX: Final = 4096

_KEYS: Final = frozenset(
    {
        *("model", "command", "dtype", "tensor_parallel", "pipeline_parallel"),
        *("max_num_seqs", "nice", "arguments", "environment"),
    }
)
_DTYPE: Final = re.compile(r"[a-z0-9]{1,16}")
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")

# Arguments that we set ourselves, and what says the same in a profile. Given twice, vLLM takes the
# last one: an answer at another address, or under another name, would then never be found.
_OURS: Final[Mapping[str, str]] = {
    "--uds": "url",
    "--host": "url",
    "--port": "url",
    "--model": "serve.model",
    "--served-model-name": "model",
    "--max-model-len": "context_tokens",
    "--max-num-seqs": "slots or serve.max_num_seqs",
    "--dtype": "serve.dtype",
    "--tensor-parallel-size": "serve.tensor_parallel",
    "-tp": "serve.tensor_parallel",
    "--pipeline-parallel-size": "serve.pipeline_parallel",
    "-pp": "serve.pipeline_parallel",
    "--scheduling-policy": f"options.{PRIORITY_OPTION}",
    "--enable-prompt-tokens-details": "nothing: it is always on",
    # A list of processes shows it to everybody on the machine.
    "--api-key": "api_key",
    # A file could say all of the above.
    "--config": "serve.arguments",
}

# What the engine's process may have of ours. The rest holds passwords, and an engine reads text of
# strangers.
_PASSED: Final = frozenset(
    {
        *("PATH", "HOME", "USER", "LOGNAME", "LANG", "LANGUAGE", "TZ", "TMPDIR", "SHELL"),
        *("LD_LIBRARY_PATH", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "SSL_CERT_FILE", "SSL_CERT_DIR"),
    }
)
# Only for a model that must be fetched: a proxy's address may hold a password.
_PROXIES: Final = frozenset(
    {"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"}
)
_PASSED_PREFIXES: Final = (
    *("LC_", "CUDA_", "NVIDIA_", "NCCL_", "ROCR_", "HIP_", "OMP_", "GOMP_", "KMP_", "MKL_"),
    *("TORCH", "PYTORCH_", "TRITON_", "VLLM_", "HF_"),
)
_OWN: Final[Mapping[str, str]] = {
    "PYTHONUNBUFFERED": "1",
    # Nothing about the people of this house is told to anybody.
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
}


def has_priorities(profile: EngineProfile) -> bool:
    """Whether the server takes priorities. Raises ValueError for an option that is no flag."""
    value = profile.options.get(PRIORITY_OPTION, False)
    if not isinstance(value, bool):
        raise ValueError(f"option {PRIORITY_OPTION!r} must be true or false")  # noqa: TRY004
    return value


# --- reading --------------------------------------------------------------------------------------


def parse_serve(entry: object) -> ServeOptions:
    """The `serve` part of a profile. Raises ValueError that names the key, never a value of it."""
    if not isinstance(entry, dict):
        raise ValueError("'serve' must be a JSON object")  # noqa: TRY004
    if unknown := sorted(set(entry) - _KEYS):
        raise ValueError(f"'serve' has the unknown key {unknown[0][:64]!r}")
    return ServeOptions(
        model=_model(entry.get("model")),
        command=_words(entry, "command", ServeOptions.command) or ServeOptions.command,
        dtype=_dtype(entry.get("dtype", ServeOptions.dtype)),
        tensor_parallel=_count(entry, "tensor_parallel", 1, PARALLEL_MAX),
        pipeline_parallel=_count(entry, "pipeline_parallel", 1, PARALLEL_MAX),
        max_num_seqs=_count(entry, "max_num_seqs", 0, SEQS_MAX),
        nice=_count(entry, "nice", 0, NICE_MAX),
        arguments=_arguments(_words(entry, "arguments", ())),
        environment=_environment(entry.get("environment", {})),
    )


def _model(value: object) -> str:
    # A name that begins with a dash would be read as an argument.
    if not isinstance(value, str) or not value or value.startswith("-") or not value.isprintable():
        raise ValueError("'serve.model' must be a directory, or the name of a model")
    return value


def _dtype(value: object) -> str:
    if not isinstance(value, str) or not _DTYPE.fullmatch(value):
        raise ValueError("'serve.dtype' must be a word such as auto, bfloat16 or float16")
    return value


def _count(entry: Mapping[str, object], key: str, least: int, most: int) -> int:
    value = entry.get(key, least)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise ValueError(f"'serve.{key}' must be a whole number, {least} to {most}")
    return value


def _words(entry: Mapping[str, object], key: str, default: tuple[str, ...]) -> tuple[str, ...]:
    """A list of words as the process gets them. One string is refused: nobody here splits it."""
    value = entry.get(key, list(default))
    good = isinstance(value, list) and len(value) <= WORDS_MAX
    if not good or not all(_is_word(word) for word in cast("list[object]", value)):
        raise ValueError(
            f'\'serve.{key}\' must be a list of words, such as ["--quantization", "fp8"]'
        )
    return tuple(cast("list[str]", value))


def _is_word(word: object) -> bool:
    return isinstance(word, str) and len(word) <= WORD_CHARS_MAX and "\0" not in word


def _arguments(words: tuple[str, ...]) -> tuple[str, ...]:
    for word in words:
        # vLLM takes underscores for dashes, and a value after "=".
        name = word.partition("=")[0].replace("_", "-")
        if name in _OURS:
            raise ValueError(f"'serve.arguments' may not hold {name}: use {_OURS[name]}")
    return words


def _environment(value: object) -> Mapping[str, str]:
    if not isinstance(value, dict):
        raise ValueError("'serve.environment' must be a JSON object")  # noqa: TRY004
    for name, text in value.items():
        if not _VARIABLE.fullmatch(name):
            raise ValueError(f"'serve.environment' has the impossible name {name[:64]!r}")
        if not _is_word(text):
            raise ValueError(f"'serve.environment': {name} must be a string")
    return MappingProxyType(cast("dict[str, str]", value))


# --- starting -------------------------------------------------------------------------------------


def command_line(profile: EngineProfile, serve: ServeOptions) -> list[str]:
    """The words that start the engine of `profile`, whose `socket` it listens on."""
    words = [*serve.command, "serve", serve.model, "--uds", str(profile.socket)]
    if profile.model:
        words += ["--served-model-name", profile.model]
    words += ["--dtype", serve.dtype]
    words += ["--max-model-len", str(profile.context_tokens)]
    words += ["--max-num-seqs", str(serve.max_num_seqs or profile.slots)]
    words += ["--tensor-parallel-size", str(serve.tensor_parallel)]
    words += ["--pipeline-parallel-size", str(serve.pipeline_parallel)]
    # Usage then tells the part of a prompt that came from the prefix cache.
    words += ["--enable-prompt-tokens-details", "--enable-prefix-caching"]
    if has_priorities(profile):
        words += ["--scheduling-policy", "priority"]
    # Health and metrics are asked for every few seconds.
    words += ["--disable-uvicorn-access-log"]
    return [*words, *serve.arguments]


def process_environment(
    profile: EngineProfile, serve: ServeOptions, ours: Mapping[str, str]
) -> dict[str, str]:
    """The engine's environment: a few names of ours, then what the profile says."""
    own = dict(_OWN)
    passed = passed_environment(ours)
    if Path(serve.model).is_dir():
        # All of it is here; without this, each start asks the hub and waits where there is none.
        own["HF_HUB_OFFLINE"] = "1"
        passed = {name: value for name, value in passed.items() if name not in _PROXIES}
    if profile.api_key:
        own["VLLM_API_KEY"] = profile.api_key
    return {**passed, **own, **serve.environment}


def passed_environment(ours: Mapping[str, str]) -> dict[str, str]:
    """What of our environment an engine and its keeper may have."""
    return {
        name: value
        for name, value in ours.items()
        if name in _PASSED | _PROXIES or name.startswith(_PASSED_PREFIXES)
    }
