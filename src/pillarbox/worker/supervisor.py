"""The supervisor of `pillarbox worker`: starts, restarts and stops the worker processes.

It never handles a message, so no message can crash it. It runs in one thread, which reads all
events (signals, reports, exits, changed files) from one queue.
"""

from __future__ import annotations

import math
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

import msgspec
from msgspec import Struct

from pillarbox.worker.child import MISCONFIGURED, Options, Report
from pillarbox.worker.stats import WorkerStats

_RESTART_SECONDS = 0.1  # after the first crash, then doubled
_RESTART_SECONDS_MAX = 10.0
_STABLE_SECONDS = 10.0  # a process that lived this long resets the backoff
_KILL_SECONDS = 5.0  # between the second signal and SIGKILL
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGKILL)

State = Literal["starting", "ready", "draining", "stopped"]


class MisconfiguredError(Exception):
    """A process reported that its configuration is wrong, so a restart would not help."""


@dataclass(slots=True)
class Child:
    """A slot for a process, and its restarts."""

    process: subprocess.Popen[bytes] | None = None
    started_at: float = 0.0
    deaths: int = 0
    restart_at: float | None = None
    reloading: bool = False
    report: dict[str, WorkerStats] = field(default_factory=dict)  # by handler
    before: dict[str, WorkerStats] = field(default_factory=dict)  # of earlier processes

    @property
    def stable(self) -> bool:
        return self.process is not None and (time.monotonic() - self.started_at > _STABLE_SECONDS)

    @property
    def ready(self) -> bool:
        connected = (stats.connected for stats in self.report.values())
        return self.process is not None and bool(self.report) and all(connected)


class Status(Struct, frozen=True):
    """The state and the stats of all processes."""

    state: State
    processes: int
    ready: int
    deaths: int  # consecutive
    error: str
    workers: dict[str, WorkerStats]  # by handler, the sum of all processes


class Supervisor:
    """Runs `count` processes of `python -m pillarbox.worker.child` with these options."""

    def __init__(
        self,
        options: Options,
        *,
        grace: float = 30,
        patient: bool = False,
        changed: Callable[[Status], object] = lambda status: None,
        program: tuple[str, ...] = ("-m", "pillarbox.worker.child"),
    ) -> None:
        self._options = options
        self._children = [Child() for _ in range(options.processes)]
        self._grace = grace
        self._patient = patient  # keep a misconfigured process waiting for a reload
        self._changed = changed
        self._program = program
        # Calls from other threads, to be made in the thread of `run`.
        self._events: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()
        self._signals = 0
        self._next_signal_at: float | None = None
        self._error: str | None = None

    def ask_to_stop(self) -> None:
        """Drain; on the second call, release running messages. Thread-safe."""
        self._events.put(self._signal_all)

    def ask_to_reload(self) -> None:
        """Let each process drain, then replace it. Thread-safe."""
        self._events.put(self._reload)

    def run(self) -> None:
        """Run until all processes have ended on request."""
        try:
            for child in self._children:
                self._start(child)
            while any(child.process or child.restart_at for child in self._children):
                self._step()
        finally:
            for child in self._children:
                if child.process is not None:
                    child.process.kill()
                    child.process.wait()
            self._changed(self.status())
        if self._error is not None and not self._patient:
            raise MisconfiguredError(self._error)

    def status(self) -> Status:
        children = self._children
        ready = sum(child.ready for child in children)
        alive = any(child.process or child.restart_at for child in children)
        draining = "draining" if alive else "stopped"
        state: State = "ready" if ready == len(children) else "starting"
        workers: dict[str, WorkerStats] = {}
        for child in children:
            for reported in (child.before, child.report):
                _add(workers, reported)
        return Status(
            state=draining if self._signals else state,  # type: ignore[arg-type]
            processes=len(children),
            ready=ready,
            deaths=sum(child.deaths for child in children if not child.stable),
            error=(self._error or "") if self._patient else "",
            workers=workers,
        )

    def _step(self) -> None:
        """Wait for the next event or timer, and handle it."""
        due = [child.restart_at for child in self._children if child.restart_at is not None]
        due += [] if self._next_signal_at is None else [self._next_signal_at]
        earliest = min(due, default=math.inf)
        try:
            wait = None if earliest == math.inf else max(0.0, earliest - time.monotonic())
            event = self._events.get(timeout=wait)
        except queue.Empty:
            self._on_time(time.monotonic())
            return
        event()
        self._changed(self.status())

    def _reload(self) -> None:
        if self._signals:
            return
        self._error = None
        for child in self._children:
            child.deaths = 0
            if child.process is None:
                child.restart_at = time.monotonic()
            elif not child.reloading:
                child.reloading = True  # a second signal would interrupt its drain
                child.process.send_signal(signal.SIGTERM)

    def _on_time(self, now: float) -> None:
        if self._next_signal_at is not None and now >= self._next_signal_at:
            self._signal_all()
        for child in self._children:
            if child.restart_at is not None and now >= child.restart_at:
                self._start(child)

    def _on_report(self, child: Child, report: Report) -> None:
        self._error = report.error or self._error
        child.report = report.workers

    def _on_exit(self, child: Child, code: int) -> None:
        child.process = None
        for stats in child.report.values():
            stats.in_progress = 0
        _add(child.before, child.report)
        child.report = {}
        hopeless = code == MISCONFIGURED and self._error is not None
        if hopeless and not self._patient and not self._signals:
            self._signal_all()
        if self._signals:
            return
        now = time.monotonic()
        if hopeless or code == 0:  # misconfigured, or a reload
            child.restart_at = math.inf if hopeless else now
            return
        if now - child.started_at > _STABLE_SECONDS:
            child.deaths = 0
        child.deaths += 1
        pause = _RESTART_SECONDS * 2.0 ** min(child.deaths - 1, 16)
        child.restart_at = now + min(pause, _RESTART_SECONDS_MAX)

    def _signal_all(self) -> None:
        """Send the next signal: drain, then release and exit, then kill."""
        self._signals += 1
        # Three different signals: two of the same kind may be delivered as one.
        number = _SIGNALS[min(self._signals, len(_SIGNALS)) - 1]
        for child in self._children:
            child.restart_at = None
            if child.process is not None:
                child.process.send_signal(number)
        wait = self._grace if self._signals == 1 else _KILL_SECONDS
        self._next_signal_at = time.monotonic() + wait

    def _start(self, child: Child) -> None:
        reading, writing = os.pipe()
        arguments = [*self._program, msgspec.json.encode(self._options).decode(), str(writing)]
        process = subprocess.Popen(  # noqa: S603 - our own module
            [sys.executable, *arguments],
            stdin=subprocess.PIPE,  # never written to: it closes when this process ends
            pass_fds=[writing],
            start_new_session=True,  # Ctrl-C signals the supervisor, which passes it on
        )
        os.close(writing)
        child.process, child.restart_at, child.report = process, None, {}
        child.started_at, child.reloading = time.monotonic(), False
        threading.Thread(target=self._listen, args=(child, process, reading), daemon=True).start()

    def _listen(self, child: Child, process: subprocess.Popen[bytes], reading: int) -> None:
        with open(reading, "rb") as reports:
            for line in reports:
                with suppress(msgspec.DecodeError):  # cut off: the process was killed
                    report = msgspec.json.decode(line, type=Report)
                    self._events.put(partial(self._on_report, child, report))
        process.wait()
        assert process.stdin is not None
        process.stdin.close()
        self._events.put(partial(self._on_exit, child, process.returncode))


def _add(total: dict[str, WorkerStats], reported: dict[str, WorkerStats]) -> None:
    for name, stats in reported.items():
        total.setdefault(name, WorkerStats(stats.queue)).add(stats)
