"""`pillarbox top`: the queues of a broker or a store as a live table."""

from __future__ import annotations

import contextlib
import sys
import time
from typing import Annotated, Any, Literal

from cyclopts import Parameter
from rich.live import Live
from rich.table import Table

from pillarbox.cli import output
from pillarbox.cli.backends import QueueInfo, queues_at
from pillarbox.cli.options import app, check_seconds
from pillarbox.cli.output import OK
from pillarbox.cli.queue import queue_table

Sort = Literal["ready", "scheduled", "in_flight", "dead", "oldest", "name"]
_FOOT_LINES = 3


@app.command(help_epilogue="Example: pillarbox top http://localhost:9324 --sort dead")
def top(
    url: Annotated[str, Parameter(help="URL of a broker, a store or a queue.")],
    /,
    *,
    interval: Annotated[float, Parameter(help="Seconds between refreshes.")] = 1,
    sort: Annotated[Sort, Parameter(help="Sort order.")] = "ready",
    once: Annotated[bool, Parameter(help="Print one table and exit.")] = False,
    json: Annotated[bool, Parameter(name="--json", help="Print JSON for each refresh.")] = False,
) -> int:
    """Show the queues of a broker or a store in a live table, the fullest first.

    Press Ctrl-C to stop. The rate is the change in the number of messages per second: + grows,
    - shrinks. If standard output is not a terminal, each refresh is printed as a new table.
    """
    check_seconds("interval", interval)
    watch = _Watch(url, sort)
    with contextlib.suppress(KeyboardInterrupt):
        if json or once or not output.console().is_terminal:
            _print(watch, interval, once=once, json=json)
        else:
            _show(watch, interval)
    return OK


def _print(watch: _Watch, interval: float, *, once: bool, json: bool) -> None:
    while True:
        watch.refresh()
        if json:
            queues = [each.as_json() | {"rate": watch.rate(each)} for each in watch.queues]
            output.print_json({"time": output.iso(time.time_ns()), "queues": queues})
        else:
            output.console().print(watch.table(None))
        sys.stdout.flush()
        if once:
            return
        time.sleep(interval)


def _show(watch: _Watch, interval: float) -> None:
    console = output.console()
    with Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            watch.refresh()
            live.update(watch.table(console.height - _FOOT_LINES), refresh=True)
            time.sleep(interval)


class _Watch:
    """The current queues, and their sizes at the previous refresh."""

    def __init__(self, url: str, sort: Sort) -> None:
        self._url = url
        self._sort = sort
        self.queues: list[QueueInfo] = []
        self._before: dict[str, int] = {}
        self._refreshed_at = 0.0
        self._elapsed = 0.0

    def refresh(self) -> None:
        self._before = {each.name: each.stats.total for each in self.queues}
        self.queues = sorted(queues_at(self._url), key=self._sort_key)
        now = time.monotonic()
        self._elapsed, self._refreshed_at = now - self._refreshed_at, now

    def rate(self, info: QueueInfo) -> float | None:
        """Return the growth in messages per second since the previous refresh."""
        before = self._before.get(info.name)
        return None if before is None else round((info.stats.total - before) / self._elapsed, 1)

    def _sort_key(self, info: QueueInfo) -> tuple[Any, ...]:
        if self._sort == "name":
            return (info.name,)
        key = "oldest_age_seconds" if self._sort == "oldest" else self._sort
        return -(getattr(info.stats, key) or 0), info.name

    def table(self, lines: int | None) -> Table:
        table = queue_table(self.queues[:lines], "rate", self._rate_text)
        total = sum(each.stats.total for each in self.queues)
        queues, messages = output.count(len(self.queues), "queue"), output.count(total, "message")
        table.caption = f"{queues}, {messages}"
        table.caption_justify = "left"
        return table

    def _rate_text(self, info: QueueInfo) -> str:
        rate = self.rate(info)
        return "-" if rate is None else f"{rate:+,.1f}/s"
