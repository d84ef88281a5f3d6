"""Keeps a set of processes running, shows what they say, and ends them in order.

One thread, one loop: it reads the children's output, notices deaths, restarts with back-off, and
reacts to signals. (Children end with the thread that forks them, so there is no other thread.)
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Protocol, Self

from chatproject.console import Console, LineCutter
from chatproject.embedded import processes
from chatproject.embedded.problems import SetupProblem
from chatproject.embedded.processes import StopStep

TICK_S = 0.25
# A child that keeps dying is tried again after these pauses; one that lived this long starts
# afresh.
BACKOFF_S = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
STEADY_AFTER_S = 60.0
PATIENT: tuple[StopStep, ...] = (StopStep(signal.SIGTERM, 10.0),)


class Stopping(BaseException):
    """Raised out of a step when the supervisor was told to stop meanwhile; no error."""


class Service(Protocol):
    """What can be supervised. `start` again after its end: same address, same arguments."""

    @property
    def name(self) -> str: ...
    @property
    def process(self) -> subprocess.Popen[bytes] | None: ...
    @property
    def stop_steps(self) -> Sequence[StopStep]: ...
    def start(self) -> None: ...
    def stop(self) -> None: ...


@dataclass(eq=False)
class Command:
    """A child of ours by its command line; what it prints goes through the supervisor.

    `reload`: restarted when the source changes (`make dev`). `many_files`: may open as many as the
    machine lets it; a login shell's 1,024 are fewer than a web process has streams.
    """

    name: str
    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: Path
    stop_steps: Sequence[StopStep] = PATIENT
    reload: bool = False
    many_files: bool = False
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.process = processes.spawn(
            self.argv, cwd=self.cwd, env=self.env, stdout=subprocess.PIPE
        )
        if self.many_files:
            processes.raise_file_limit(self.process.pid)

    def stop(self) -> None:
        if self.process is not None:
            processes.stop(self.process, self.stop_steps)


@dataclass(eq=False)
class _Watched:
    """A service with its place in the order and the history of its deaths."""

    service: Service
    stage: int
    deaths: int = 0
    started_s: float = 0.0
    restart_at_s: float | None = None
    steps: list[StopStep] = field(default_factory=list)
    step_until_s: float = 0.0

    @property
    def running(self) -> bool:
        process = self.service.process
        return process is not None and process.returncode is None


class Supervisor:
    """Use as a context manager: whatever happens inside, no child is left when it is over.

    `add` starts a service; higher stages are stopped first. `step` runs a command to its end. `run`
    returns when SIGINT, SIGTERM or SIGHUP came; a second signal during the stop kills what is left.
    """

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console()
        self._watched: list[_Watched] = []
        self._selector = selectors.DefaultSelector()
        self._signals = 0
        self._restart_asked = False
        self._restore: list[Callable[[], object]] = []

    # --- the outside ------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            self._handle(number, self._on_signal)
        self._handle(signal.SIGUSR1, self._on_restart)
        self._handle(signal.SIGCHLD, lambda *_: None)  # only to wake the loop
        self._wake_on_signals()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        try:
            self._stop_everything()
        finally:
            for undo in reversed(self._restore):
                undo()
            self._selector.close()
        return kind is Stopping

    @property
    def stopping(self) -> bool:
        return self._signals > 0 or self.console.broken

    def add(self, service: Service, stage: int) -> None:
        """Start it and keep it running. Raises what its `start` raises, SetupProblem for
        example.
        """
        self.check()
        watched = _Watched(service, stage)
        self._watched.append(watched)
        self._start(watched)

    def step(self, command: Command, take: Callable[[str], bool] | None = None) -> int:
        """Run a command to its end; its exit status. Lines that `take` accepts are not shown.

        Raises Stopping when a signal came meanwhile (the command is stopped first).
        """
        self.check()
        watched = _Watched(command, stage=99)
        self._watched.append(watched)
        self._start(watched, take)
        process = command.process
        while process is not None and not processes.has_ended(process):
            self._pump(TICK_S)
            for other in self._watched:
                if other is not watched:
                    self._look_after(other)
            self.check()
        self._drain(command)
        self._watched.remove(watched)
        return process.returncode if process is not None else -1

    def check(self) -> None:
        """Raise Stopping when we were told to stop."""
        if self.stopping:
            raise Stopping

    def run(self, on_tick: Callable[[], object] = lambda: None) -> None:
        """Watch until told to stop. `on_tick` is called a few times a second and must be quick."""
        while not self.stopping:
            self._pump(TICK_S)
            for watched in self._watched:
                self._look_after(watched)
            on_tick()

    def wait(self, condition: Callable[[], bool], patience_s: float) -> bool:
        """Go on watching until `condition` holds; False where it does not in time. It is asked a
        few times a second and must be quick. Raises Stopping when a signal came meanwhile.
        """
        until_s = time.monotonic() + patience_s
        while not condition():
            if time.monotonic() > until_s:
                return False
            self._pump(TICK_S)
            for watched in self._watched:
                self._look_after(watched)
            self.check()
        return True

    def take_restart(self) -> bool:
        """Whether SIGUSR1 has come since this was asked last."""
        asked, self._restart_asked = self._restart_asked, False
        return asked

    def restart(self, wanted: Callable[[Service], bool]) -> None:
        """Stop and start again the services that `wanted` picks."""
        chosen = [w for w in self._watched if wanted(w.service)]
        self._stop_these(chosen)
        for watched in chosen:
            if not self.stopping:
                watched.deaths = 0
                self._try_start(watched)

    # --- signals ----------------------------------------------------------------------------------

    def _handle(
        self, number: signal.Signals, handler: Callable[[int, FrameType | None], None]
    ) -> None:
        before = signal.signal(number, handler)
        self._restore.append(lambda: signal.signal(number, before))

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._signals += 1

    def _on_restart(self, number: int, frame: FrameType | None) -> None:
        self._restart_asked = True

    def _wake_on_signals(self) -> None:
        """A signal makes the selector return at once: it writes a byte into a pipe that we
        watch.
        """
        reader, writer = os.pipe()
        for descriptor in (reader, writer):
            os.set_blocking(descriptor, False)
            self._restore.append(partial(os.close, descriptor))
        before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        self._restore.append(lambda: signal.set_wakeup_fd(before))
        self._selector.register(reader, selectors.EVENT_READ, None)

    # --- output -----------------------------------------------------------------------------------

    def _pump(self, patience_s: float) -> None:
        """Show what the children have written; wait at most that long for something to happen."""
        for key, _ in self._selector.select(patience_s):
            data = _read(key.fd)
            if key.data is None:
                continue  # the signals' pipe
            if data:
                key.data.feed(data)
            elif data is not None:
                self._close(key)

    def _close(self, key: selectors.SelectorKey) -> None:
        self._selector.unregister(key.fileobj)
        key.data.close()
        if not isinstance(key.fileobj, int):
            key.fileobj.close()  # type: ignore[attr-defined]

    def _drain(self, service: Service) -> None:
        """What an ended child still had in its pipe."""
        pipe = service.process.stdout if service.process is not None else None
        if pipe is None or pipe.closed:
            return
        key = self._selector.get_key(pipe)
        while data := _read(key.fd):
            key.data.feed(data)
        self._close(key)

    # --- starting ---------------------------------------------------------------------------------

    def _start(self, watched: _Watched, take: Callable[[str], bool] | None = None) -> None:
        watched.service.start()
        watched.started_s = time.monotonic()
        watched.restart_at_s = None
        process = watched.service.process
        if process is not None and process.stdout is not None:
            os.set_blocking(process.stdout.fileno(), False)
            lines = LineCutter(watched.service.name, self.console, take)
            self._selector.register(process.stdout, selectors.EVENT_READ, lines)

    def _look_after(self, watched: _Watched) -> None:
        process = watched.service.process
        if watched.restart_at_s is None and process is not None and processes.has_ended(process):
            self._drain(watched.service)
            self._schedule(watched, f"ended {_how(process.returncode)}")
        if watched.restart_at_s is not None and time.monotonic() >= watched.restart_at_s:
            self._try_start(watched)

    def _try_start(self, watched: _Watched) -> None:
        try:
            self._start(watched)
        except (SetupProblem, OSError) as problem:
            self._schedule(watched, f"did not start: {problem}")

    def _schedule(self, watched: _Watched, what: str) -> None:
        now_s = time.monotonic()
        if now_s - watched.started_s > STEADY_AFTER_S:
            watched.deaths = 0
        pause_s = BACKOFF_S[min(watched.deaths, len(BACKOFF_S) - 1)]
        watched.deaths += 1
        watched.restart_at_s = now_s + pause_s
        self.console.say(f"{watched.service.name} {what}; again in {pause_s:g} s")

    # --- stopping ---------------------------------------------------------------------------------

    def _stop_everything(self) -> None:
        """Highest stage first, each stage at once; a second signal kills the rest."""
        # Before the line: a signal that answers it must count.
        self._signals = min(self._signals, 1)
        if any(w.running for w in self._watched):
            self.console.say("Stopping (Ctrl-C again to kill)")
        for stage in sorted({w.stage for w in self._watched}, reverse=True):
            self._stop_these([w for w in self._watched if w.stage == stage])
        for watched in self._watched:
            watched.service.stop()  # lets go of what a service holds besides its process
        self.console.say("Stopped")

    def _stop_these(self, chosen: Sequence[_Watched]) -> None:
        for watched in chosen:
            watched.steps = list(watched.service.stop_steps)
            watched.step_until_s = 0.0
        while still := [w for w in chosen if self._still_running(w)]:
            for watched in still:
                self._next_step(watched)
            self._pump(0.05)
        for watched in chosen:
            self._drain(watched.service)

    def _still_running(self, watched: _Watched) -> bool:
        process = watched.service.process
        return process is not None and not processes.has_ended(process)

    def _next_step(self, watched: _Watched) -> None:
        """Send the next signal once the patience of the last one is over; at the end, or told
        twice, kill.
        """
        process = watched.service.process
        now_s = time.monotonic()
        if process is None or (now_s < watched.step_until_s and self._signals < 2):
            return
        if watched.steps and self._signals < 2:
            step = watched.steps.pop(0)
            watched.step_until_s = now_s + step.patience_s
            processes.send(process, step.signal)
            return
        if not watched.steps and watched.step_until_s:
            self.console.say(f"{watched.service.name} is killed")
        watched.step_until_s = now_s + 1.0
        processes.signal_group(process, signal.SIGKILL)


def _read(descriptor: int) -> bytes | None:
    """Bytes, b"" at the end of a pipe, None when there is nothing now."""
    try:
        return os.read(descriptor, 65536)
    except BlockingIOError:
        return None
    except OSError:
        return b""


def _how(status: int) -> str:
    if status >= 0:
        return f"with status {status}"
    with contextlib.suppress(ValueError):
        return f"by {signal.Signals(-status).name}"
    return f"by signal {-status}"


def source_changes(directories: Sequence[Path]) -> Iterator[bool]:
    """Endless: whether Python files have changed since the last look. Each look takes about 50
    ms.
    """
    from watchfiles import PythonFilter, watch

    looks = watch(
        *directories, watch_filter=PythonFilter(), rust_timeout=50, yield_on_timeout=True, step=20
    )
    for changes in looks:
        yield bool(changes)
