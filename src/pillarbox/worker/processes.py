"""The processes of `pillarbox worker`: starts them, starts them again when they die, stops them.

The supervisor never touches a message, so no message can harm it. It does one thing after
another, in one thread: whatever happens (a signal, a report, an exit, a changed file) is put on
one queue.
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

_RESTART_SECONDS = 0.1  # after the first death, then doubled
_RESTART_SECONDS_MAX = 10.0
_LIVED_LONG_SECONDS = 10.0  # a process that lived for so long starts afresh
_KILL_SECONDS = 5.0  # from the second signal to the last
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGKILL)

State = Literal["starting", "ready", "draining", "stopped"]


class MisconfiguredError(Exception):
    """A process says that it can't ever work."""


@dataclass(slots=True)
class Child:
    """One place of a process, whichever process has it now."""

    process: subprocess.Popen[bytes] | None = None
    started_at: float = 0.0
    deaths: int = 0
    restart_at: float | None = None
    reloading: bool = False
    report: dict[str, Any] = field(default_factory=dict)
    done_before: int = 0  # by the processes that had this place earlier
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
    """How all of them are doing, in figures."""

    state: State
    queue: str
    processes: int
    ready: int
    busy: int
    done: int
    failed: int
    deaths: int  # in a row
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
        self._patient = patient  # a process that can't work waits for a reload
        self._changed = changed
        self._program = program
        self._events: queue.SimpleQueue[tuple[str, Any, Any]] = queue.SimpleQueue()
        self._signals = 0
        self._next_signal_at: float | None = None
        self._error: str | None = None

    def ask_to_stop(self) -> None:
        """Drain; asked again, give back what runs. From any thread."""
        self._events.put(("stop", None, None))

    def ask_to_reload(self) -> None:
        """Let each process drain, and start another in its place."""
        self._events.put(("reload", None, None))

    def run(self) -> None:
        """Until all processes have ended as they were asked to."""
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
        """How all of them are doing."""
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
        """Wait for the next thing to happen, or for the next time that something is due."""
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
                child.reloading = True  # a second signal would cut it short
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
        if hopeless or code == 0:  # it can't work, or it was asked to reload
            child.restart_at = math.inf if hopeless else now
            return
        if now - child.started_at > _LIVED_LONG_SECONDS:
            child.deaths = 0
        child.deaths += 1
        pause = _RESTART_SECONDS * 2.0 ** min(child.deaths - 1, 16)
        child.restart_at = now + min(pause, _RESTART_SECONDS_MAX)

    def _signal_all(self) -> None:
        """First to drain, then to give back and exit, and at last by force."""
        self._signals += 1
        # Three different ones: two of the same kind may arrive as one.
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
            stdin=subprocess.PIPE,  # never written to: it ends when we do
            pass_fds=[writing],
            start_new_session=True,  # Ctrl-C comes to us, and we pass it on
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
