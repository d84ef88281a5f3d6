"""Every knob of `make run`: what it means, and what a wrong value is told."""

from __future__ import annotations

import io
import json
import shutil
import socket
import sys
from pathlib import Path

import pytest

from chatproject import openmp, run, run_options, run_support, vllm_setup
from chatproject.console import LINE_MAX_BYTES, Console, LineCutter
from chatproject.embedded.homes import HomeLock
from chatproject.embedded.problems import SetupProblem, require_free_space
from chatproject.run import Run
from chatproject.run_options import check_ports, read_options
from chatproject.run_support import Readiness, allowed_host, plain_environment, secret_key
from chatproject.supervisor import Command
from generation.engines.profiles import parse_profiles
from generation.engines.serve import command_line


def test_the_defaults_need_no_environment() -> None:
    options = read_options({})
    assert options.var == run_options.CHECKOUT / "var"
    assert (options.host, list(options.ports)) == ("127.0.0.1", [8000])
    assert (options.engine, options.slots) == ("llamacpp", 2)
    assert options.address == "http://localhost:8000/"


def test_knobs_are_read(tmp_path: Path) -> None:
    environment = {"HEARTH_VAR": str(tmp_path), "HOST": "10.0.0.7", "PORT": "9000", "WEB": "3"}
    options = read_options(environment)
    assert options.var == tmp_path
    assert list(options.ports) == [9000, 9001, 9002]
    assert options.address == "http://10.0.0.7:9000/"


def test_the_last_ports_of_all_may_be_used() -> None:
    assert list(read_options({"PORT": "65534", "WEB": "2"}).ports) == [65534, 65535]


def test_vllm_has_more_slots_and_the_models_own_name(tmp_path: Path) -> None:
    model = tmp_path / "Big-7B"
    model.mkdir()
    environment = {"ENGINE": "vllm", "ENGINE_DEVICE": "gpu", "MODEL": str(model)}
    options = read_options({**environment, "ENGINE_ARGUMENTS": "--quantization 'fp 8'"})
    assert (options.slots, options.engine_context_tokens) == (32, 8192)
    assert (options.engine_model, options.vllm_model) == ("Big-7B", str(model))
    assert options.engine_arguments == ("--quantization", "fp 8")
    on_cpu = read_options({"ENGINE": "vllm", "ENGINE_DEVICE": "cpu", "MODEL": ""})
    assert (on_cpu.slots, on_cpu.engine_model, on_cpu.vllm_model) == (8, "demo", "")
    # MODEL is vLLM's alone.
    assert read_options({"ENGINE": "llamacpp", "MODEL": "org/name"}).engine_model == "demo"


@pytest.mark.parametrize("device", ["cpu", "gpu"])
@pytest.mark.parametrize("depth", [1, 40])
def test_the_profile_of_make_run_is_one_that_can_be_started(
    tmp_path: Path, device: str, depth: int
) -> None:
    var = tmp_path / "/".join(["deep"] * depth)
    environment = {"ENGINE": "vllm", "ENGINE_DEVICE": device, "HEARTH_VAR": str(var)}
    options = read_options({**environment, "TENSOR_PARALLEL": "2", "MODEL": "org/name"})
    entry = {"kind": "vllm", "model": "name", **vllm_setup.profile(options, tmp_path / "env")}
    profile = parse_profiles(json.dumps({"demo": entry}))["demo"]
    assert profile.serve is not None
    assert profile.socket is not None
    line = command_line(profile, profile.serve)
    assert line[:4] == [
        *(str(tmp_path / "env/bin" / n) for n in ("python", "vllm")),
        "serve",
        "org/name",
    ]
    assert line[line.index("--tensor-parallel-size") + 1] == "2"
    assert ("--enforce-eager" in line) == (device == "cpu")
    assert (profile.serve.nice > 0) == (device == "cpu")
    assert profile.socket.is_relative_to(var) == (depth == 1)


@pytest.mark.parametrize(
    ("flags", "dtype"),
    [("fpu avx2", "float32"), ("fpu avx512f avx512_bf16", "bfloat16"), ("amx_bf16", "bfloat16")],
)
def test_a_cpu_that_would_emulate_a_type_gets_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: str, dtype: str
) -> None:
    monkeypatch.setattr(vllm_setup, "CPU_INFO", tmp_path / "cpuinfo")
    vllm_setup.CPU_INFO.write_text(f"model name : X\nflags\t\t: {flags}\nbugs : avx512_bf16\n")
    options = read_options({"ENGINE": "vllm", "ENGINE_DEVICE": "cpu"})
    assert vllm_setup.profile(options, tmp_path)["serve"]["dtype"] == dtype  # type: ignore[index]


def test_profiles_of_ones_own_start_no_engine() -> None:
    assert read_options({"ENGINE_PROFILES": "{}", "ENGINE": "llamacpp"}).engine == "own"
    assert read_options({"ENGINE_PROFILES_FILE": "/run/secrets/engines"}).engine == "own"


@pytest.mark.parametrize(
    ("environment", "told"),
    [
        ({"PORT": "http"}, "PORT=http cannot be used"),
        ({"PORT": "0"}, "from 1 to 65535"),
        ({"PORT": "٨٠٠٠"}, "must be a whole number"),
        ({"PORT": "9" * 5000}, "PORT=999"),
        ({"WEB": "-1"}, "WEB=1 make run"),
        ({"PORT": "65535", "WEB": "2"}, "Choose PORT=65534"),
        ({"SLOTS": "1000"}, "from 1 to 256"),
        ({"ENGINE": "gpt"}, "ENGINE=gpt is not known"),
        ({"ENGINE": "openai"}, "needs the address of the server in ENGINE_URL"),
        ({"ENGINE": "openai", "ENGINE_URL": "localhost:1234"}, "needs the address"),
        ({"ENGINE_MODEL_FILE": "/no/such.gguf"}, "is not a file"),
        ({"ENGINE": "vllm", "MODEL": "--uds"}, "MODEL must be"),
        ({"ENGINE": "vllm", "ENGINE_DEVICE": "tpu"}, "ENGINE_DEVICE=tpu"),
        ({"ENGINE": "vllm", "TENSOR_PARALLEL": "0"}, "TENSOR_PARALLEL=0"),
        ({"ENGINE": "vllm", "ENGINE_ARGUMENTS": "--x 'y"}, "open quotation mark"),
    ],
)
def test_a_wrong_knob_says_what_would_be_right(environment: dict[str, str], told: str) -> None:
    with pytest.raises(SetupProblem) as caught:
        read_options(environment)
    assert told in str(caught.value)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(
    ("set_to", "asked_by"),
    [
        (None, "localhost"),
        ("*", "localhost"),
        ("chat.example.org,localhost", "chat.example.org"),
        ("*, .example.org", "example.org"),
    ],
)
def test_readiness_is_asked_by_a_name_that_is_allowed(set_to: str | None, asked_by: str) -> None:
    assert allowed_host({} if set_to is None else {"ALLOWED_HOSTS": set_to}) == asked_by


def test_a_page_that_never_answers_does_not_hold_up_the_rest_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    called: list[str] = []
    monkeypatch.setattr(run_support, "READY_LOOK_S", 0.0)
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    options = read_options({"PORT": str(port)})

    def readiness() -> Readiness:
        said = Console(io.StringIO())
        announce, proceed = (lambda: called.append("announce")), (lambda: called.append("proceed"))
        return Readiness(options, said, announce, proceed)

    readiness().look()
    assert called == []
    monkeypatch.setattr(run_support, "STILL_WAITING_S", -1.0)
    waiting = readiness()
    for _ in range(3):
        waiting.look()
    assert called == ["proceed"]


def test_a_taken_port_says_so_and_names_another() -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        with pytest.raises(SetupProblem, match=rf"Port {port} .*is taken(.|\n)*PORT=\d+ make run"):
            check_ports(read_options({"PORT": str(port)}))
    check_ports(read_options({"PORT": str(port)}))


def test_an_address_of_another_machine_is_explained() -> None:
    with pytest.raises(SetupProblem, match=r"HOST=192\.0\.2\.1 is not an address of this machine"):
        check_ports(read_options({"HOST": "192.0.2.1"}))


def test_a_full_disk_is_told_beforehand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=5 * 1024 * 1024)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    with pytest.raises(SetupProblem, match=r"5 MiB free, and testing needs 6 MiB(.|\n)*HEARTH_VAR"):
        require_free_space(tmp_path, 5 * 1024 * 1024 + 1, "testing")
    require_free_space(tmp_path, 5 * 1024 * 1024, "testing")


@pytest.mark.parametrize(("version", "fits"), [((3, 10), False), ((3, 13), True), ((3, 14), False)])
def test_another_python_is_told_what_to_do(
    monkeypatch: pytest.MonkeyPatch, version: tuple[int, int], fits: bool
) -> None:
    monkeypatch.setattr(sys, "version_info", (*version, 1))
    if fits:
        run.check_python()
        return
    with pytest.raises(SetupProblem, match=rf"This is Python 3\.{version[1]}(.|\n)*make setup"):
        run.check_python()


def test_the_secret_key_stays_and_is_private(tmp_path: Path) -> None:
    key = secret_key(tmp_path)
    assert len(key) >= 50
    assert secret_key(tmp_path) == key
    assert (tmp_path / "secret-key").stat().st_mode & 0o777 == 0o600


SECRETS = {
    "SECRET_KEY": "s3cret",
    "DATABASE_URL": "postgresql://chat:s3cret@h/chat",
    "REDIS_URL": "redis://:s3cret@h/0",
    "AWS_SECRET_ACCESS_KEY": "s3cret",
    "ENGINE_PROFILES": '{"api_key": "s3cret"}',
}


def test_engine_and_download_get_no_secret_of_the_product(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(openmp, "is_installed", lambda: True)
    product = Run(read_options({"HEARTH_VAR": str(tmp_path)}), reload=False, console=Console())
    useful = {"PATH": "/bin", "LC_ALL": "C.UTF-8", "https_proxy": "http://proxy:3128"}
    product._environment = {**SECRETS, **useful, "PIP_INDEX_URL": "https://pypi.example.org"}
    engine = product._engine_command(tmp_path / "m.gguf", 8100, "the engine's own")
    fetch = product._fetch_command(tmp_path)
    assert engine.env == {"PATH": "/bin", "LC_ALL": "C.UTF-8", "ENGINE_API_KEY": "the engine's own"}
    assert fetch.env == {**useful, "PIP_INDEX_URL": "https://pypi.example.org"}
    assert plain_environment(SECRETS, network=True) == {}


def test_the_supervisor_keeps_the_engines_and_workers_attach(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a worker would start one, which outlives `make run`."""
    product = Run(read_options({"HEARTH_VAR": str(tmp_path)}), reload=False, console=Console())
    added: list[Command] = []
    monkeypatch.setattr(product._supervisor, "add", lambda command, stage: added.append(command))
    product._environment = {**SECRETS, "PATH": "/bin", "ENGINE_PROFILES_FILE": "/somewhere"}
    serve = {"model": "org/model"}
    kept = {"kind": "vllm", "url": "unix:///e.sock", "serve": serve}
    other = {"kind": "openai", "url": "http://h", "api_key": "s3cret"}
    product._keep_engines(json.dumps({"demo": kept, "other": other}))

    (keeper,) = added
    assert list(keeper.argv)[-2:] == ["--profile", "demo"]
    assert keeper.env == {
        "PATH": "/bin",
        "PYTHONUNBUFFERED": "1",
        "ENGINE_PROFILES": json.dumps({"demo": kept}),
    }
    told = json.loads(product._environment["ENGINE_PROFILES"])
    assert told == {"demo": {"kind": "vllm", "url": "unix:///e.sock"}, "other": other}
    assert "ENGINE_PROFILES_FILE" not in product._environment


def test_wrong_profiles_end_the_start_with_a_word(tmp_path: Path) -> None:
    product = Run(read_options({"HEARTH_VAR": str(tmp_path)}), reload=False, console=Console())
    with pytest.raises(SetupProblem, match=r"'demo'.*'kind'"):
        product._keep_engines('{"demo": {}}')


def test_a_held_directory_names_its_holder(tmp_path: Path) -> None:
    first, second = HomeLock(tmp_path / "lock"), HomeLock(tmp_path / "lock")
    assert first.acquire("process 7 at http://localhost:8000/") is None
    assert second.acquire() == "process 7 at http://localhost:8000/"
    first.release()
    assert second.acquire() is None
    second.release()


def shown(*pieces: bytes) -> list[str]:
    stream = io.StringIO()
    cutter = LineCutter("web", Console(stream))
    for piece in pieces:
        cutter.feed(piece)
    cutter.close()
    return stream.getvalue().splitlines()


def test_lines_are_prefixed_and_cut_only_at_line_ends() -> None:
    assert shown(b"one\ntw", b"o\r\n", "thr\u00e9".encode()[:4], "\u00e9e".encode()[1:]) == [
        "web      │ one",
        "web      │ two",
        "web      │ thrée",
    ]


def test_a_child_cannot_steer_the_terminal_or_fill_the_memory() -> None:
    assert shown(b"a\x1b[2J\x07b\x9bc\n") == ["web      │ a[2Jb\ufffdc"]
    lines = shown(b"x" * (LINE_MAX_BYTES + 1))
    assert [len(line) for line in lines] == [LINE_MAX_BYTES + 11, 1 + 11]
