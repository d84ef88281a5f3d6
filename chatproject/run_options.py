"""What `make run` can be told through the environment; every wrong value says what would be
right.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from chatproject.embedded.ports import port_problem
from chatproject.embedded.problems import SetupProblem

CHECKOUT = Path(__file__).resolve().parent.parent
ENGINES = ("llamacpp", "openai", "simulated", "vllm")
DEVICES = ("cpu", "gpu")
GPU_DRIVER = Path("/dev/nvidiactl")
LOOPBACK = ("127.0.0.1", "localhost", "::1")
# What one slot of the demo's engine may hold, prompt and answer together.
CONTEXT_TOKENS = 4096
PORT_MAX = 65535
# How many answers at once, and what one may take of the context, where nobody says: by engine.
SLOTS = {"llamacpp": 2, "vllm-cpu": 8, "vllm-gpu": 32}
GPU_CONTEXT_TOKENS = 8192


@dataclass(frozen=True, slots=True)
class Options:
    """`engine` is "own" where ENGINE_PROFILES says everything and nothing is started for it."""

    var: Path
    host: str
    port: int
    web_processes: int
    engine: str
    engine_url: str
    engine_model: str
    engine_context_tokens: int
    model_file: Path | None
    slots: int
    workers: int = 1
    # Only for vllm: a directory or a hub's name ("": the demo model), "cpu" or "gpu", more words,
    # over how many GPUs the model is spread.
    vllm_model: str = ""
    device: str = "cpu"
    engine_arguments: tuple[str, ...] = ()
    tensor_parallel: int = 1

    @property
    def ports(self) -> range:
        return range(self.port, self.port + self.web_processes)

    @property
    def worker_slots(self) -> list[int]:
        """How many answers at once each GPU worker writes: they share the engine's slots."""
        each, more = divmod(self.slots, self.workers)
        return [each + (place < more) for place in range(self.workers)]

    @property
    def address(self) -> str:
        """Where a browser on this machine finds the first web process."""
        host = "localhost" if self.host in ("0.0.0.0", "::", *LOOPBACK) else self.host  # noqa: S104
        return f"http://{host}:{self.port}/"


def is_set(environment: Mapping[str, str], name: str) -> bool:
    """Whether the product will find a value: settings read NAME, and before it the file that
    NAME_FILE names.
    """
    return bool(environment.get(name) or environment.get(f"{name}_FILE"))


def read_options(environment: Mapping[str, str]) -> Options:
    """Options from the environment; raises SetupProblem for a value that cannot be meant."""
    engine, device = _engine(environment), _device(environment)
    on_gpu = (engine, device) == ("vllm", "gpu")
    slots = SLOTS.get(f"{engine}-{device}", SLOTS["llamacpp"])
    context_tokens = GPU_CONTEXT_TOKENS if on_gpu else CONTEXT_TOKENS
    options = Options(
        var=Path(environment.get("HEARTH_VAR") or CHECKOUT / "var").resolve(),
        host=environment.get("HOST") or "127.0.0.1",
        port=_whole_number(environment, "PORT", 8000, 1, PORT_MAX),
        web_processes=_whole_number(environment, "WEB", 1, 1, 16),
        engine=engine,
        engine_url=environment.get("ENGINE_URL", ""),
        engine_model=environment.get("ENGINE_MODEL") or _own_name(environment, engine) or "demo",
        engine_context_tokens=_whole_number(
            environment, "ENGINE_CONTEXT_TOKENS", context_tokens, 256, 1_000_000
        ),
        model_file=_model_file(environment),
        slots=_whole_number(environment, "SLOTS", slots, 1, 256),
        workers=_whole_number(environment, "WORKERS", 1, 1, 16),
        vllm_model=_vllm_model(environment),
        device=device,
        engine_arguments=_words(environment, "ENGINE_ARGUMENTS"),
        tensor_parallel=_whole_number(environment, "TENSOR_PARALLEL", 1, 1, 64),
    )
    _check_last_port(options)
    _check_workers(options)
    _check_engine_url(options)
    return options


def _whole_number(
    environment: Mapping[str, str], name: str, default: int, least: int, most: int
) -> int:
    text = environment.get(name) or str(default)
    if text.isascii() and text.isdigit() and len(text) < 10 and least <= int(text) <= most:
        return int(text)
    raise SetupProblem(
        f"{name}={text[:40]} cannot be used: it must be a whole number from {least} to {most}. "
        f"For example: {name}={default} make run."
    )


def _engine(environment: Mapping[str, str]) -> str:
    if is_set(environment, "ENGINE_PROFILES"):
        return "own"
    engine = environment.get("ENGINE") or "llamacpp"
    if engine not in ENGINES:
        raise SetupProblem(
            f"ENGINE={engine[:40]} is not known. Use llamacpp (the small model on this machine's "
            "CPU), vllm with MODEL=name for one on your GPUs, "
            "or openai with ENGINE_URL=http://host:port/v1 and ENGINE_MODEL=name for a server of "
            "yours."
        )
    return engine


def _device(environment: Mapping[str, str]) -> str:
    device = environment.get("ENGINE_DEVICE") or ("gpu" if GPU_DRIVER.exists() else "cpu")
    if device not in DEVICES:
        raise SetupProblem(
            f"ENGINE_DEVICE={device[:40]} is not known. Use cpu or gpu, or leave it unset: "
            "an NVIDIA driver is looked for."
        )
    return device


def _vllm_model(environment: Mapping[str, str]) -> str:
    """A directory becomes an absolute one: the engine works in another."""
    model = environment.get("MODEL", "")
    if model.startswith("-") or not model.isprintable():
        raise SetupProblem(
            "MODEL must be a directory with a model, or a name such as Qwen/Qwen2.5-7B-Instruct. "
            "For example: make run ENGINE=vllm MODEL=Qwen/Qwen2.5-7B-Instruct."
        )
    return str(Path(model).resolve()) if model and Path(model).is_dir() else model


def _own_name(environment: Mapping[str, str], engine: str) -> str:
    """What people see the model as: the last part of its path or name."""
    return Path(environment.get("MODEL", "")).name[:64] if engine == "vllm" else ""


def _words(environment: Mapping[str, str], name: str) -> tuple[str, ...]:
    """Words as a shell would cut them; no shell reads them."""
    try:
        return tuple(shlex.split(environment.get(name, "")))
    except ValueError:
        raise SetupProblem(
            f"{name} has an open quotation mark. For example: {name}='--quantization fp8'."
        ) from None


def _check_last_port(options: Options) -> None:
    if options.ports[-1] > PORT_MAX:
        first = PORT_MAX + 1 - options.web_processes
        raise SetupProblem(
            f"PORT={options.port} leaves no room for WEB={options.web_processes} web processes on "
            f"consecutive ports: the last port is {PORT_MAX}. Choose PORT={first} or a smaller one."
        )


def _check_workers(options: Options) -> None:
    if options.workers > options.slots:
        raise SetupProblem(
            f"SLOTS={options.slots} leaves nothing to do for some of WORKERS={options.workers} GPU "
            f"workers, who share them. Choose WORKERS={options.slots} or fewer, or more SLOTS."
        )


def _check_engine_url(options: Options) -> None:
    if options.engine != "openai":
        return
    parts = urlsplit(options.engine_url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise SetupProblem(
            "ENGINE=openai needs the address of the server in ENGINE_URL, for example "
            "ENGINE_URL=http://localhost:11434/v1 ENGINE_MODEL=qwen2.5:0.5b make run. "
            "Its key, if it wants one, goes into ENGINE_API_KEY."
        )


def _model_file(environment: Mapping[str, str]) -> Path | None:
    name = environment.get("ENGINE_MODEL_FILE")
    if not name:
        return None
    if not Path(name).is_file():
        raise SetupProblem(
            f"ENGINE_MODEL_FILE={name} is not a file. It must be a chat model in GGUF format; "
            "leave it "
            "unset for the demo model."
        )
    return Path(name).resolve()


def check_ports(options: Options) -> None:
    """Raise SetupProblem where a web process could not listen."""
    for port in options.ports:
        problem = port_problem(options.host, port)
        if problem == "taken":
            raise SetupProblem(
                f"Port {port} on {options.host} is taken: another program listens there (perhaps "
                "this "
                f"one, started from another directory). Stop it, or choose another port: "
                f"PORT={_another(port)} make run."
            )
        if problem == "not permitted":
            raise SetupProblem(
                f"This user may not listen on port {port}: ports below 1024 are root's. Choose a "
                "larger "
                "one (PORT=8000 make run) and put a proxy in front of it."
            )
        if problem is not None:
            raise SetupProblem(
                f"HOST={options.host} is {problem}. Use 127.0.0.1 (this machine only, the default) "
                "or "
                "0.0.0.0 (every network it is in)."
            )


def _another(port: int) -> int:
    return port + 100 if port + 100 < 65536 else 8080
