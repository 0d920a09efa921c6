"""The supervisor of `pillarbox worker`: starts processes, restarts and stops them.

It never handles a message, so no message can crash it. It runs in one thread, which reads
everything that happens (signals, reports, exits, changed files) from one queue.
"""

from __future__ import annotations

import json
import math
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from pillarbox.worker.child import MISCONFIGURED

_RESTART_SECONDS = 0.1  # after the first crash, then doubled
_RESTART_SECONDS_MAX = 10.0
_LIVED_LONG_SECONDS = 10.0  # a process that lived this long resets the backoff
_KILL_SECONDS = 5.0  # between the second signal and the last
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGKILL)

State = Literal["starting", "ready", "draining", "stopped"]


class MisconfiguredError(Exception):
    """A process reports that its configuration is wrong, so a restart would not help."""


@dataclass(slots=True)
class Child:
    """A slot for a process, whichever process fills it now."""

    process: subprocess.Popen[bytes] | None = None
    started_at: float = 0.0
    deaths: int = 0
    restart_at: float | None = None
    reloading: bool = False
    report: dict[str, Any] = field(default_factory=dict)
    done_before: int = 0  # by earlier processes of this slot
    failed_before: int = 0

    @property
    def lived_long(self) -> bool:
        return self.process is not None and (
            time.monotonic() - self.started_at > _LIVED_LONG_SECONDS
        )

    @property
    def ready(self) -> bool:
        return self.process is not None and bool(self.report.get("connected"))


@dataclass(frozen=True, slots=True)
class Status:
    """The state of all processes, in figures."""

    state: State
    queue: str
    processes: int
    ready: int
    busy: int
    done: int
    failed: int
    deaths: int  # in succession
    error: str


class Supervisor:
    """Runs `count` processes of `python -m pillarbox.worker.child` with these options."""

    def __init__(
        self,
        options: dict[str, Any],
        count: int,
        *,
        grace: float = 30,
        patient: bool = False,
        changed: Callable[[Status], object] = lambda status: None,
        program: tuple[str, ...] = ("-m", "pillarbox.worker.child"),
    ) -> None:
        self._options = options
        self._children = [Child() for _ in range(count)]
        self._grace = grace
        self._patient = patient  # keep a misconfigured process waiting for a reload
        self._changed = changed
        self._program = program
        self._events: queue.SimpleQueue[tuple[str, Any, Any]] = queue.SimpleQueue()
        self._signals = 0
        self._next_signal_at: float | None = None
        self._error: str | None = None

    def ask_to_stop(self) -> None:
        """Drain; the second time, release running messages. Thread-safe."""
        self._events.put(("stop", None, None))

    def ask_to_reload(self) -> None:
        """Let each process drain, then replace it. Thread-safe."""
        self._events.put(("reload", None, None))

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
        reports = [child.report for child in children]
        return Status(
            state=draining if self._signals else state,  # type: ignore[arg-type]
            queue=next((report["queue"] for report in reports if "queue" in report), ""),
            processes=len(children),
            ready=ready,
            busy=sum(report.get("busy", 0) for report in reports),
            done=sum(c.done_before + c.report.get("done", 0) for c in children),
            failed=sum(c.failed_before + c.report.get("failed", 0) for c in children),
            deaths=sum(child.deaths for child in children if not child.lived_long),
            error=(self._error or "") if self._patient else "",
        )

    def _step(self) -> None:
        """Wait for the next event or timer, and handle it."""
        due = [child.restart_at for child in self._children if child.restart_at is not None]
        due += [] if self._next_signal_at is None else [self._next_signal_at]
        earliest = min(due, default=math.inf)
        try:
            wait = None if earliest == math.inf else max(0.0, earliest - time.monotonic())
            kind, child, what = self._events.get(timeout=wait)
        except queue.Empty:
            self._on_time(time.monotonic())
            return
        if kind == "report" and what["process"] is child.process:
            self._on_report(child, what["facts"])
        elif kind == "exit" and what is child.process:
            self._on_exit(child, what.wait())
        elif kind == "stop":
            self._signal_all()
        elif kind == "reload" and not self._signals:
            self._reload()
        self._changed(self.status())

    def _reload(self) -> None:
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

    def _on_report(self, child: Child, facts: dict[str, Any]) -> None:
        if "error" in facts:
            self._error = facts["error"]
        else:
            child.report = facts

    def _on_exit(self, child: Child, code: int) -> None:
        child.process = None
        child.done_before += child.report.get("done", 0)
        child.failed_before += child.report.get("failed", 0)
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
        if now - child.started_at > _LIVED_LONG_SECONDS:
            child.deaths = 0
        child.deaths += 1
        pause = _RESTART_SECONDS * 2.0 ** min(child.deaths - 1, 16)
        child.restart_at = now + min(pause, _RESTART_SECONDS_MAX)

    def _signal_all(self) -> None:
        """First drain, then release and exit, at last kill."""
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
        words = [*self._program, json.dumps(self._options), str(writing)]
        process = subprocess.Popen(  # noqa: S603 - our own module
            [sys.executable, *words],
            stdin=subprocess.PIPE,  # never written to: it ends when we end
            pass_fds=[writing],
            start_new_session=True,  # Ctrl-C signals us, and we pass it on
        )
        os.close(writing)
        child.process, child.restart_at, child.report = process, None, {}
        child.started_at, child.reloading = time.monotonic(), False
        threading.Thread(target=self._listen, args=(child, process, reading), daemon=True).start()

    def _listen(self, child: Child, process: subprocess.Popen[bytes], reading: int) -> None:
        with open(reading, "rb") as reports:
            for line in reports:
                facts = {"process": process, "facts": json.loads(line)}
                self._events.put(("report", child, facts))
        process.wait()
        assert process.stdin is not None
        process.stdin.close()
        self._events.put(("exit", child, process))
