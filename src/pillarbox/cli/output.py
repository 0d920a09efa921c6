"""Printing: results to stdout, everything else to stderr, colours only on terminals."""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from threading import Timer
from typing import Any

from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

OK, FAILED, USAGE = 0, 1, 2
INTERRUPTED = 130  # the exit code of shells for Ctrl-C

_SHOW_AFTER_SECONDS = 0.4
_WAIT_SECONDS = 1.0
_WIDTH_OF_A_PIPE = 1000  # never truncate output that a program reads
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


Advance = Callable[[int, int], None]  # called with the amount done and the total


class UsageError(Exception):
    """The command line is wrong."""


def console() -> Console:
    """Return the console for results. Rich itself honours NO_COLOR and detects terminals."""
    plain = Console(highlight=False, markup=False, emoji=False)  # names may look like [markup]
    if not plain.is_terminal:
        plain.width = _WIDTH_OF_A_PIPE
    return plain


def complain(message: str) -> None:
    """Print an error to stderr, in one line."""
    text = Text.assemble(("pillarbox: ", "bold red"), " ".join(message.split()))
    Console(stderr=True, highlight=False).print(text, soft_wrap=True)


def reason_of(error: OSError) -> str:
    """Describe an error of the operating system: the file, if any, and the reason."""
    if error.errno is None:
        return str(error) or type(error).__name__
    resolving = error.errno < 0  # a host name that can't be resolved has numbers of its own
    reason = error.strerror if resolving else os.strerror(error.errno)
    return f"{reason}" if error.filename is None else f"{error.filename}: {reason}"


def refuse_address(address: str, error: OSError, *, choose: str) -> int:
    """Print that a server can't listen on an address; return exit code 1."""
    complain(f"can't listen on {address}: {reason_of(error)}; choose another {choose}")
    return FAILED


def success(message: str) -> Text:
    """Return the text that reports a success."""
    return Text(message, style="green")


def show(document: Any, *lines: RenderableType, json: bool) -> int:
    """Print a result, as one JSON document or as text; return exit code 0."""
    if json:
        print_json(document)
    else:
        for each in lines:
            console().print(each)
    return OK


def print_json(document: Any) -> None:
    """Print a JSON document in one line."""
    text = json.dumps(document, ensure_ascii=False)
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:  # half of a surrogate pair, for example
        text = json.dumps(document)
    sys.stdout.write(text + "\n")


def line_printer() -> Callable[[Text], object]:
    """Return a function that prints a line. Only a terminal truncates it."""
    shown = console()
    if not shown.is_terminal:
        return lambda line: sys.stdout.write(line.plain + "\n")
    return lambda line: shown.print(line, no_wrap=True, overflow="ellipsis")


def facts(rows: list[tuple[str, str]]) -> Table:
    """Return a table of names and values."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows:
        table.add_row(name, value)
    return table


def table(
    names: Iterable[str], rows: Iterable[Iterable[str | Text]], *, right: tuple[str, ...] = ()
) -> Table:
    """Return a table with a header."""
    grid = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    for name in names:
        grid.add_column(name, justify="right" if name in right else "left", overflow="fold")
    for row in rows:
        grid.add_row(*row)
    return grid


@contextmanager
def progress(what: str) -> Iterator[Advance]:
    """Show a progress bar on stderr, if that is a terminal and the work takes a while."""
    err = Console(stderr=True)
    bar = Progress(
        TextColumn(what),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeRemainingColumn(),
        console=err,
        transient=True,
    )
    started = time.monotonic()
    shown: list[TaskID] = []

    def advance(done: int, total: int) -> None:
        if not err.is_terminal or time.monotonic() - started < _SHOW_AFTER_SECONDS:
            return
        if not shown:
            bar.start()
            shown.append(bar.add_task(what))
        bar.update(shown[0], completed=done, total=total)

    try:
        yield advance
    finally:
        if shown:
            bar.stop()


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """Show a status on stderr, if that is a terminal, after waiting for a second."""
    err = Console(stderr=True)
    if not err.is_terminal:
        yield
        return
    status = err.status(Text(what))
    timer = Timer(_WAIT_SECONDS, status.start)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        status.stop()


def remark(message: str) -> None:
    """Print a remark about the result to stderr."""
    Console(stderr=True, highlight=False).print(Text(message, style="dim"), soft_wrap=True)


def log_to_stderr(level: str) -> None:
    """Log to stderr, for commands that run until they are stopped."""
    logger = logging.getLogger("pillarbox")
    logger.setLevel(level.upper())
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s level=%(levelname)s %(message)s"))
    logger.addHandler(handler)


def iso(time_ns: int) -> str:
    """Format a time in UTC, to the millisecond."""
    at = _EPOCH + timedelta(milliseconds=time_ns // 1_000_000)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def iso_or_none(time_ns: int) -> str | None:
    return iso(time_ns) if time_ns else None


def brief_time(time_ns: int) -> str:
    """Format a time for tables: in UTC, to the second."""
    return iso(time_ns)[:19].replace("T", " ") if time_ns else "-"


def count(number: int, noun: str) -> str:
    """Format a number of things: 1 message, 2,000 messages."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def size(count: int) -> str:
    """Format a number of bytes."""
    amount = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} TB"
