"""`pillarbox top`: the queues of a broker or a store as a live table."""

from __future__ import annotations

import contextlib
import sys
import time
from typing import Annotated, Any, Literal

from cyclopts import App, Parameter
from rich.live import Live
from rich.table import Table
from rich.text import Text

from pillarbox.cli import output
from pillarbox.cli.output import OK, UsageError
from pillarbox.cli.queue import age_of
from pillarbox.cli.survey import QueueInfo, queues_at

app = App(
    name="top",
    help=(
        "Show the queues of a broker or a store, live, the fullest first.\n\n"
        "Ctrl-C ends it. The rate is that of what a queue holds: + grows, - shrinks. Where "
        "standard output is no terminal, each look is printed below the one before."
    ),
    help_epilogue="Example: pillarbox top http://localhost:9324 --sort dead",
    help_format="plaintext",
    default_parameter=Parameter(negative=(), show_default=False),
)

Sort = Literal["ready", "scheduled", "in_flight", "dead", "oldest", "name"]
_FOOT_LINES = 3


@app.default
def top(
    url: Annotated[str, Parameter(help="As http://localhost:9324 or file:./data.")],
    /,
    *,
    interval: Annotated[float, Parameter(help="Seconds between looks; 1 if not given.")] = 1.0,
    sort: Annotated[Sort, Parameter(help="By what; ready if not given.")] = "ready",
    once: Annotated[bool, Parameter(help="Look once, and end.")] = False,
    json: Annotated[bool, Parameter(name="--json", help="Print a JSON document a look.")] = False,
) -> int:
    """Show the queues, live."""
    if not interval > 0:
        raise UsageError(f"--interval must be more than 0; got {interval}.")
    watch = _Watch(url, sort)
    with contextlib.suppress(KeyboardInterrupt):
        if json:
            _print(watch, interval, once=once)
        else:
            _show(watch, interval, once=once)
    return OK


def _print(watch: _Watch, interval: float, *, once: bool) -> None:
    while True:
        watch.look()
        queues = [each.as_json() | {"rate": watch.rate(each)} for each in watch.found]
        output.print_json({"time": output.iso(time.time_ns()), "queues": queues})
        sys.stdout.flush()
        if once:
            return
        time.sleep(interval)


def _show(watch: _Watch, interval: float, *, once: bool) -> None:
    console = output.console()
    if once or not console.is_terminal:
        while True:
            watch.look()
            console.print(watch.table(None))
            sys.stdout.flush()
            if once:
                return
            time.sleep(interval)
    with Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            watch.look()
            live.update(watch.table(console.height - _FOOT_LINES), refresh=True)
            time.sleep(interval)


class _Watch:
    """The queues now and a moment ago."""

    def __init__(self, url: str, sort: Sort) -> None:
        self._url = url
        self._sort = sort
        self.found: list[QueueInfo] = []
        self._before: dict[str, int] = {}
        self._looked_at = 0.0
        self._elapsed = 0.0

    def look(self) -> None:
        self._before = {each.name: each.stats.total for each in self.found}
        self.found = sorted(queues_at(self._url), key=self._place)
        now = time.monotonic()
        self._elapsed, self._looked_at = now - self._looked_at, now

    def rate(self, info: QueueInfo) -> float | None:
        """Messages a second by which it grew since the last look."""
        before = self._before.get(info.name)
        return None if before is None else round((info.stats.total - before) / self._elapsed, 1)

    def _place(self, info: QueueInfo) -> tuple[Any, ...]:
        if self._sort == "name":
            return (info.name,)
        key = "oldest_age_seconds" if self._sort == "oldest" else self._sort
        return -(getattr(info.stats, key) or 0), info.name

    def table(self, lines: int | None) -> Table:
        right = ("ready", "scheduled", "in flight", "dead", "oldest", "rate")
        table = output.columns("queue", *right, right=right)
        for each in self.found[:lines]:
            stats, rate = each.stats, self.rate(each)
            table.add_row(
                Text(each.name),
                Text(f"{stats.ready:,}", style="bold" if stats.ready else "dim"),
                f"{stats.scheduled:,}",
                f"{stats.in_flight:,}",
                Text(f"{stats.dead:,}", style="red" if stats.dead else "dim"),
                age_of(stats.oldest_age_seconds),
                "-" if rate is None else f"{rate:+,.1f}/s",
            )
        held = sum(each.stats.total for each in self.found)
        table.caption = f"{len(self.found):,} queues, {held:,} messages"
        table.caption_justify = "left"
        return table
