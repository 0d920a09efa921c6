"""`pillarbox worker module`: run handlers on the messages of their mailboxes."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.console import Console
from rich.live import Live
from rich.text import Text

from pillarbox.cli.options import PORT_MAX, app
from pillarbox.cli.output import OK, UsageError, refuse_address
from pillarbox.core import limits
from pillarbox.worker.child import Options
from pillarbox.worker.health import serve_health
from pillarbox.worker.signals import on_signals
from pillarbox.worker.supervisor import MisconfiguredError, Status, Supervisor

PROCESSES_MAX = 1_000
_REFRESH_SECONDS = 0.2
_RATE_SECONDS = 2.0
_POLL_SECONDS = 0.5  # of --watch
_UNWATCHED = frozenset({"__pycache__", "node_modules", "site-packages"})


@app.command(help_epilogue="Example: pillarbox worker shop.tasks --concurrency 8 --processes 2")
def worker(
    *handlers: Annotated[
        str,
        Parameter(
            help="package.module (every @worker function in it) or package.module:function.",
        ),
    ],
    mailbox: Annotated[
        str | None,
        Parameter(
            env_var="PILLARBOX_MAILBOX",
            help="URL of the mailbox, for one handler (default: from @worker).",
        ),
    ] = None,
    concurrency: Annotated[
        int | None,
        Parameter(env_var="PILLARBOX_CONCURRENCY", help="Messages handled at once, per process."),
    ] = None,
    processes: Annotated[
        int, Parameter(env_var="PILLARBOX_PROCESSES", help="Number of processes.")
    ] = 1,
    retries: Annotated[
        int | None,
        Parameter(help="Retries before dead-lettering (default: the policy of the mailbox)."),
    ] = None,
    visibility_timeout: Annotated[
        float | None, Parameter(help="Lease in seconds, extended while the handler runs.")
    ] = None,
    time_limit: Annotated[
        float | None, Parameter(help="Stop extending a lease after this many seconds.")
    ] = None,
    grace: Annotated[float, Parameter(help="Seconds to drain before releasing messages.")] = 30,
    health_port: Annotated[
        int | None, Parameter(help="Serve /livez, /readyz and /metrics on this port (0: any).")
    ] = None,
    watch: Annotated[
        bool, Parameter(help="Restart when a Python file in this directory tree changes.")
    ] = False,
    verbose: Annotated[bool, Parameter(help="Log at level INFO.")] = False,
) -> int:
    """Run workers: functions that are called with each message of a mailbox.

    A plain function runs in threads, a coroutine function in asyncio. SIGTERM or Ctrl-C drains:
    running handlers finish, and messages not yet started are released without counting as a
    delivery. A second signal releases running messages too, and exits. A process that dies is
    restarted.
    """
    if not handlers:
        raise UsageError("give a module or a handler: pillarbox worker package.module[:function]")
    limits.whole("processes", processes, 1, PROCESSES_MAX)
    limits.seconds("grace", grace, limits.VISIBILITY_SECONDS_MAX)
    if health_port is not None:
        limits.whole("health_port", health_port, 0, PORT_MAX)
    settings = {
        "mailbox": mailbox,
        "concurrency": concurrency,
        "retries": retries,
        "visibility_timeout": visibility_timeout,
        "time_limit": time_limit,
    }
    overrides = {name: value for name, value in settings.items() if value is not None}
    log_level = "INFO" if verbose else "WARNING"
    options = Options(list(handlers), overrides, processes, log_level)
    with contextlib.ExitStack() as stack:
        line = stack.enter_context(ProgressLine())
        supervisor = Supervisor(options, grace=grace, patient=watch, changed=line.show)
        stack.enter_context(on_signals(lambda number: supervisor.ask_to_stop()))
        if health_port is not None:
            try:
                port = stack.enter_context(serve_health(health_port, supervisor.status))
            except OSError as error:
                return refuse_address(f"port {health_port}", error, choose="--health-port")
            line.say(f"health at http://localhost:{port}/readyz, metrics at /metrics")
        if watch:
            stack.enter_context(_on_changes(Path.cwd(), supervisor.ask_to_reload))
        try:
            supervisor.run()
        except MisconfiguredError as error:
            raise UsageError(str(error)) from error
    return OK


@contextlib.contextmanager
def _on_changes(directory: Path, changed: Callable[[], object]) -> Iterator[None]:
    """Inside the `with` block, call `changed` when Python files in the tree change."""
    ended = threading.Event()

    def poll() -> None:
        before = _modification_times(directory)
        while not ended.wait(_POLL_SECONDS):
            now = _modification_times(directory)
            if now != before:
                before = now
                changed()

    thread = threading.Thread(target=poll, name="pillarbox-watch", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _modification_times(directory: Path) -> dict[str, int]:
    """Return the modification time of each Python file in a directory tree."""
    times: dict[str, int] = {}
    for folder, folders, files in os.walk(directory):
        folders[:] = [
            name for name in folders if not name.startswith(".") and name not in _UNWATCHED
        ]
        for name in files:
            if name.endswith(".py"):
                path = os.path.join(folder, name)
                try:
                    times[path] = os.stat(path).st_mtime_ns
                except FileNotFoundError:
                    continue  # deleted since it was listed
    return times


class ProgressLine:
    """Progress on stderr: live on a terminal, else a line per handler on state changes."""

    def __init__(self) -> None:
        self._console = Console(stderr=True, highlight=False)
        self._live = Live(console=self._console, auto_refresh=False, transient=True)
        self._state = self._error = ""
        self._shown_at = 0.0
        self._samples: list[tuple[float, Counter[str]]] = []

    def __enter__(self) -> ProgressLine:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def say(self, text: str) -> None:
        """Print a line."""
        self._console.print(f"pillarbox worker: {text}", soft_wrap=True, markup=False)

    def show(self, status: Status) -> None:
        """Show the current status."""
        now = time.monotonic()
        if (status.state, status.error) != (self._state, self._error):
            self._state, self._error = status.state, status.error
            lines = self._figures(status, now) if status.workers else []
            for line in [status.error] if status.error else lines:
                self.say(line)
        if self._console.is_terminal and now - self._shown_at >= _REFRESH_SECONDS:
            self._shown_at = now
            self._live.update(Text("\n".join(self._figures(status, now))), refresh=True)

    def _figures(self, status: Status, now: float) -> list[str]:
        """Return a line with the stats of each handler."""
        handled = Counter({name: stats.handled for name, stats in status.workers.items()})
        self._samples = [each for each in self._samples if now - each[0] <= _RATE_SECONDS]
        self._samples.append((now, handled))
        began, first = self._samples[0]
        processes = f"{status.state}: {status.ready} of {status.processes} processes"
        lines = []
        for name, stats in status.workers.items():
            rate = (handled[name] - first[name]) / (now - began) if now > began else 0.0
            mean_ms = 1_000 * stats.seconds / stats.handled if stats.handled else 0.0
            mean = f"{mean_ms:,.0f}" if mean_ms >= 1_000 else f"{mean_ms:.3g}"
            lines.append(
                f"{processes}, {name} on {stats.queue}: {stats.in_progress} in progress, "
                f"{stats.succeeded:,} succeeded, {stats.failed:,} failed, "
                f"{stats.retried:,} retried, {stats.dead:,} dead, {mean} ms on average, "
                f"{rate:,.0f} per second"
            )
        return lines or [processes]
