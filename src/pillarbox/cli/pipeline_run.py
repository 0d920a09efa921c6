"""What `pillarbox pipeline run` shows while a pipeline runs, and at its end."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.text import Text

from pillarbox.cli import output
from pillarbox.cli.output import FAILED, OK
from pillarbox.pipeline import Pipeline
from pillarbox.pipeline.status import ProcessorStatus, Status, ends

if TYPE_CHECKING:
    from pillarbox.pipeline.runner import Run

_POLL_SECONDS = 0.2
#: How often progress is a line of its own, where there is no terminal to draw a bar on.
LINE_SECONDS = 10.0


def watch(pipeline: Pipeline, running: Run, *, now: bool) -> int:
    """Show progress until the run ends, then what each processor did; the exit code."""
    if not now:
        output.remark(f"{pipeline.name} is running; Ctrl-C stops it after the current steps")
    status, last_line = running.status.status, time.monotonic()
    try:
        with _stop_signals() as stopping, output.progress("processing") as advance:
            while not running.wait(timeout=_POLL_SECONDS):
                if now:
                    advance(*_progress(pipeline, status))
                if not sys.stderr.isatty() and time.monotonic() - last_line >= LINE_SECONDS:
                    last_line = time.monotonic()
                    _print_line(pipeline, status)
                if stopping.is_set():
                    running.stop()
    finally:
        _print_end(status)
    return FAILED if now and any(each.failed_steps for each in status.processors.values()) else OK


def _print_line(pipeline: Pipeline, status: Status) -> None:
    done, total = _progress(pipeline, status)
    failed = sum(each.failed for each in status.processors.values())
    steps = sum(each.steps for each in status.processors.values())
    text = f"{pipeline.name}: {done:,} of {total:,} records read, {steps:,} steps"
    output.remark(text + (f", {failed:,} failed" if failed else ""))


def _print_end(status: Status) -> None:
    console = output.console()
    for each in status.processors.values():
        text = f"{each.id}: {each.state}, {each.steps} steps, {each.rows:,} rows"
        style = "red" if each.failed else ""
        console.print(Text(text + (f", {each.failed:,} failed" if each.failed else ""), style))
    for each in status.processors.values():
        if each.failed:
            output.complain(_about_failed(each))


def _about_failed(known: ProcessorStatus) -> str:
    text = f"{output.count(known.failed, 'record')} of {known.id} failed"
    if known.failed_steps:
        text += f", in {output.count(known.failed_steps, 'step')} all of them"
    return f"{text}; see 'pillarbox pipeline errors TARGET {known.id}'"


@contextlib.contextmanager
def _stop_signals() -> Iterator[threading.Event]:
    """An event that Ctrl-C and SIGTERM set, instead of ending the process at once."""
    stopping = threading.Event()
    signals = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(each, lambda *_: stopping.set()) for each in signals]
    try:
        yield stopping
    finally:
        for each, handler in zip(signals, before, strict=True):
            signal.signal(each, handler)


def _progress(pipeline: Pipeline, status: Status) -> tuple[int, int]:
    """Records read and records available, over all inputs of all processors."""
    end = ends(pipeline.graph)
    wanted = [
        (each.id, name)
        for each in pipeline.graph.processors
        for name in each.input_names
        if each.id in status.processors and name in end
    ]
    done = sum(status.processors[id_].read.get(name, 0) for id_, name in wanted)
    return done, max(1, sum(end[name] for _, name in wanted))
