"""`pillarbox worker module:handler`: run a handler on the messages of a mailbox."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter
from rich.console import Console
from rich.live import Live
from rich.text import Text

from pillarbox.cli.options import command
from pillarbox.cli.output import OK, UsageError
from pillarbox.worker.health import serve_health
from pillarbox.worker.signals import on_signals
from pillarbox.worker.supervisor import MisconfiguredError, Status, Supervisor
from pillarbox.worker.watch import on_changes

app = command(
    "worker",
    "Run a handler on the messages of a mailbox.\n\n"
    "A plain function runs in threads, a coroutine function in asyncio. SIGTERM or Ctrl-C drains: "
    "running handlers finish, and messages not yet started are released without counting as a "
    "delivery. A second signal releases running messages too, and exits. A process that dies is "
    "restarted.",
    "Example: pillarbox worker shop.tasks:pack --mailbox redis://localhost/orders "
    "--concurrency 8 --processes 2",
)

PROCESSES_MAX = 1_000
_REFRESH_SECONDS = 0.2
_RATE_SECONDS = 2.0


@app.default
def worker(
    handler: Annotated[str, Parameter(help="package.module:function, importable from here.")],
    /,
    *,
    mailbox: Annotated[
        str | None,
        Parameter(env_var="PILLARBOX_MAILBOX", help="URL of the mailbox (default: from @worker)."),
    ] = None,
    concurrency: Annotated[
        int | None,
        Parameter(env_var="PILLARBOX_CONCURRENCY", help="Messages at a time per process."),
    ] = None,
    processes: Annotated[
        int, Parameter(env_var="PILLARBOX_PROCESSES", help="Processes (default: 1).")
    ] = 1,
    retries: Annotated[
        int | None,
        Parameter(help="Retries before dead-lettering (default: as the mailbox has it)."),
    ] = None,
    visibility_timeout: Annotated[
        float | None, Parameter(help="Lease in seconds; extended while the handler runs.")
    ] = None,
    time_limit: Annotated[
        float | None, Parameter(help="Stop extending a lease after this many seconds.")
    ] = None,
    grace: Annotated[
        float, Parameter(help="Seconds to drain before releasing messages (default: 30).")
    ] = 30,
    health_port: Annotated[
        int | None, Parameter(help="Serve /livez and /readyz on this port (0: any free port).")
    ] = None,
    watch: Annotated[
        bool, Parameter(help="Restart when a Python file in this directory tree changes.")
    ] = False,
    verbose: Annotated[bool, Parameter(help="Log at level INFO.")] = False,
) -> int:
    """Run a handler on the messages of a mailbox."""
    if not 1 <= processes <= PROCESSES_MAX:
        raise UsageError(f"--processes must be from 1 to {PROCESSES_MAX:,}; got {processes}.")
    given = {
        "mailbox": mailbox,
        "concurrency": concurrency,
        "retries": retries,
        "visibility_timeout": visibility_timeout,
        "time_limit": time_limit,
    }
    options: dict[str, Any] = {
        "handler": handler,
        "given": {name: value for name, value in given.items() if value is not None},
        "processes": processes,
        "log_level": "INFO" if verbose else "WARNING",
    }
    return _supervise(options, grace=grace, health_port=health_port, watch=watch)


def _supervise(
    options: dict[str, Any], *, grace: float, health_port: int | None, watch: bool
) -> int:
    with contextlib.ExitStack() as stack:
        line = stack.enter_context(ProgressLine(options["handler"]))
        supervisor = Supervisor(
            options, options["processes"], grace=grace, patient=watch, changed=line.show
        )
        stack.enter_context(on_signals(lambda number: supervisor.ask_to_stop()))
        if health_port is not None:
            port = stack.enter_context(serve_health(health_port, supervisor.status))
            line.say(f"health at http://localhost:{port}/readyz")
        if watch:
            stack.enter_context(on_changes(Path.cwd(), supervisor.ask_to_reload))
        try:
            supervisor.run()
        except MisconfiguredError as error:
            raise UsageError(str(error)) from error
    return OK


class ProgressLine:
    """Progress on stderr: a live line on a terminal, else a line for each change of state."""

    def __init__(self, handler: str) -> None:
        self._handler = handler
        self._console = Console(stderr=True, highlight=False)
        self._live = Live(console=self._console, auto_refresh=False, transient=True)
        self._state = self._error = ""
        self._shown_at = 0.0
        self._samples: list[tuple[float, int]] = []

    def __enter__(self) -> ProgressLine:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def say(self, text: str) -> None:
        """Print a line."""
        self._console.print(f"pillarbox worker: {text}", soft_wrap=True)

    def show(self, status: Status) -> None:
        """Show the current status."""
        now = time.monotonic()
        if (status.state, status.error) != (self._state, self._error):
            self._state, self._error = status.state, status.error
            self.say(status.error or f"{status.state}: {self._figures(status, now)}")
        if self._console.is_terminal and now - self._shown_at >= _REFRESH_SECONDS:
            self._shown_at = now
            self._live.update(Text(f"{status.state}: {self._figures(status, now)}"), refresh=True)

    def _figures(self, status: Status, now: float) -> str:
        self._samples = [each for each in self._samples if now - each[0] <= _RATE_SECONDS]
        self._samples.append((now, status.done))
        began, first = self._samples[0]
        elapsed = now - began
        rate = (status.done - first) / elapsed if elapsed > 0 else 0.0
        what = f"{self._handler} on {status.queue}" if status.queue else self._handler
        return (
            f"{what}, {status.ready} of {status.processes} processes, {status.busy} running, "
            f"{status.done:,} done, {status.failed:,} failed, {rate:,.0f} per second"
        )
