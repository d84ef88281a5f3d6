"""The embedded engine: llama.cpp's OpenAI-compatible server in a process of its own.

    ENGINE_API_KEY=… python -m generation.engines.llamacpp_server --model FILE --port P

Prints one line when it is ready. SIGTERM ends it at once, with status 0 (while the model is loading
it dies of the signal). SIGINT is ignored, because Ctrl-C reaches the whole terminal and the
supervisor decides who ends when. Whatever hinders it is one line on stderr and exit status 2.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib
import os
import signal
import socket
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any, NoReturn, TextIO

API_KEY_VARIABLE = "ENGINE_API_KEY"
ALIAS = "demo"
EXIT_UNUSABLE = 2
# A prompt is read in steps of so many tokens. Between two steps other slots write their next token
# and a closed connection is noticed: at 2,048, llama.cpp's default, a 2-core laptop does neither
# for half a minute.
BATCH_TOKENS = 64
# Prefixes of ended conversations are kept in memory up to this size; the default is 8 GiB.
PREFIX_CACHE_MIB = 256
# Comments that keep a silent connection alive while a long prompt is read.
PING_INTERVAL_S = 10
# Connections that may wait or ask beside those that stream.
SPARE_HTTP_THREADS = 8
LOG_WARNINGS = 2
LISTEN_S = 1.0
# Turns of a loop that an idle OpenMP thread waits before it sleeps. libgomp's default is 300,000:
# on two cores that other processes use too, the threads then mostly wait for each other (measured
# at a load of 9: 0.5 output tokens a second, against 5 with this). libgomp itself takes 1,000 where
# it knows that the cores are overbooked.
SPIN_VARIABLE = "GOMP_SPINCOUNT"
SPIN_COUNT = "1000"
MODEL_MAGIC = b"GGUF"

# What get_system_info() calls what the wheel was compiled for, and how Linux calls it.
_CPU_FLAGS = {
    "SSE3": "pni",
    "SSSE3": "ssse3",
    "AVX": "avx",
    "AVX2": "avx2",
    "F16C": "f16c",
    "FMA": "fma",
    "BMI2": "bmi2",
    "AVX512": "avx512f",
}


class Unusable(Exception):
    """Why the engine cannot run here, in one line that says what to do."""


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until SIGTERM; the exit status."""
    options = _parser().parse_args(argv)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        server = start(options, _api_key())
    except Unusable as error:
        _say(sys.stderr, str(error))
        return EXIT_UNUSABLE
    # Only now: llama.cpp loads the model without letting Python run, so a handler set before would
    # wait for it. Until here SIGTERM has its default, which ends the process at once.
    signal.signal(signal.SIGTERM, _end)
    _say(sys.stdout, f"ready on {server.listening_address}")
    while True:
        # The server's own threads do the work; this one holds it and hears signals.
        time.sleep(LISTEN_S)


def _say(stream: TextIO, line: str) -> None:
    stream.write(f"engine: {line}\n")
    stream.flush()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="llama.cpp's OpenAI-compatible server.")
    parser.add_argument("--model", type=Path, required=True, help="a GGUF file")
    parser.add_argument("--alias", default=ALIAS, help="the model's name in answers")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=_count, required=True)
    parser.add_argument("--slots", type=_count, default=2, help="answers written at once")
    parser.add_argument("--context-tokens", type=_count, default=4096, help="per slot")
    parser.add_argument("--threads", type=_count, default=None, help="CPU threads (all)")
    parser.add_argument("--batch-tokens", type=_count, default=BATCH_TOKENS)
    return parser


def _count(text: str) -> int:
    value = int(text)
    if not 1 <= value <= 10_000_000:
        raise ValueError(text)
    return value


def _end(_number: int, _frame: FrameType | None) -> NoReturn:
    """End the process now: nothing here needs saving, and clients see their connections close.

    llama.cpp's own end would first wait for the answers that are being written.
    """
    os._exit(0)


def _api_key() -> str:
    api_key = os.environ.get(API_KEY_VARIABLE, "")
    if not api_key:
        raise Unusable(f"set {API_KEY_VARIABLE}; without it, anyone on this machine may use it.")
    return api_key


def start(options: argparse.Namespace, api_key: str) -> Any:
    """The running server (xllamacpp.Server), warmed up. Raises `Unusable`."""
    check_model(options.model)
    check_port(options.host, options.port)
    xllamacpp = _import()
    check_cpu(xllamacpp.get_system_info(), _cpu_flags())
    try:
        return xllamacpp.Server(_params(xllamacpp, options, api_key))
    except Exception as error:
        _flush_log(xllamacpp)
        told = " ".join(str(error).split())[:200]
        raise Unusable(f"llama.cpp cannot serve {options.model.name}: {told}") from error


def _flush_log(xllamacpp: ModuleType) -> None:
    """Wait until llama.cpp has written its own lines, which a thread of its own does.

    Otherwise they come after ours, which says what hinders, or in the middle of it. The wheel has
    no Python name for it; these are the C++ names of `common_log_main` and `common_log_flush`.
    """
    library = ctypes.CDLL(xllamacpp.xllamacpp.__file__)
    library._Z15common_log_mainv.restype = ctypes.c_void_p
    library._Z16common_log_flushP10common_log(ctypes.c_void_p(library._Z15common_log_mainv()))


def check_model(path: Path) -> None:
    """Raises `Unusable` for a file that is no GGUF model; llama.cpp's own words are a page long."""
    try:
        with path.open("rb") as file:
            magic = file.read(len(MODEL_MAGIC))
    except OSError as error:
        raise Unusable(f"cannot read the model {path}: {error.strerror}.") from None
    if magic != MODEL_MAGIC:
        raise Unusable(f"{path} is not a GGUF model; delete it, so that it is fetched again.")


def check_port(host: str, port: int) -> None:
    """Raises `Unusable` where the port is taken: llama.cpp would say so after loading the model."""
    try:
        with socket.create_server((host, port)):
            pass
    except (OSError, OverflowError) as error:
        raise Unusable(f"cannot listen on {host}:{port}: {error}.") from None


def _import() -> ModuleType:
    # libgomp reads it once, when it is loaded.
    os.environ.setdefault(SPIN_VARIABLE, SPIN_COUNT)
    try:
        return importlib.import_module("xllamacpp")
    except ImportError as error:
        if "libgomp" in str(error):
            raise Unusable(
                "libgomp.so.1 is missing: install it (Debian: apt install libgomp1), or name a"
                " folder that holds it in LD_LIBRARY_PATH."
            ) from None
        raise Unusable(f"xllamacpp cannot be loaded: {error}") from None


def check_cpu(system_info: str, cpu_flags: frozenset[str]) -> None:
    """Raises `Unusable` where this CPU lacks what the wheel was compiled for.

    Without this look the first prompt ends the process with an illegal instruction and no word.
    `system_info` looks like "CPU : SSE3 = 1 | AVX = 1 | …". `cpu_flags` empty: unknown (not Linux
    on x86), nothing is checked.
    """
    settings = (part.partition("=") for part in system_info.replace(":", "|").split("|"))
    built_for = {name.strip() for name, _, on in settings if on.strip() == "1"}
    missing = [
        name for name, flag in _CPU_FLAGS.items() if name in built_for and flag not in cpu_flags
    ]
    if cpu_flags and missing:
        raise Unusable(
            f"this CPU lacks {', '.join(missing)}, which the engine needs; name another engine in"
            " ENGINE_PROFILES."
        )


def _cpu_flags() -> frozenset[str]:
    with suppress(OSError), Path("/proc/cpuinfo").open(encoding="utf-8") as lines:
        for line in lines:
            if line.startswith("flags"):
                return frozenset(line.partition(":")[2].split())
    return frozenset()


def _params(xllamacpp: Any, options: argparse.Namespace, api_key: str) -> Any:
    params = xllamacpp.CommonParams()
    params.model.path = str(options.model)
    params.model_alias = {options.alias}
    params.hostnames = [options.host]
    params.port = options.port
    params.api_keys = [api_key]
    params.n_parallel = options.slots
    # llama.cpp divides the context by the slots.
    params.n_ctx = options.context_tokens * options.slots
    params.fit_params = False  # it would shrink the context that was promised
    params.n_batch = params.n_ubatch = options.batch_tokens
    threads = options.threads or os.cpu_count() or 1
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    params.n_threads_http = options.slots + SPARE_HTTP_THREADS
    params.cache_ram_mib = PREFIX_CACHE_MIB
    params.sse_ping_interval = PING_INTERVAL_S
    # All that the model writes is the answer, also what stands in <think>. (Its stronger brother,
    # force_pure_content_parser, loses the trailing assistant message that is to be continued.)
    params.reasoning_format = xllamacpp.common_reasoning_format.COMMON_REASONING_FORMAT_NONE
    params.warmup = True
    params.endpoint_metrics = True
    params.ui = False
    params.endpoint_slots = False  # it shows prompts
    params.cors_origins = ""
    params.verbosity = LOG_WARNINGS
    return params


if __name__ == "__main__":
    sys.exit(main())
