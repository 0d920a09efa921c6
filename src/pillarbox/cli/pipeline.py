"""`pillarbox pipeline`: run a pipeline, monitor it, inspect its last steps, reset it."""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from cyclopts import Parameter
from rich.console import RenderableType
from rich.text import Text

from pillarbox.cli import output
from pillarbox.cli.entries import body_fields, body_text, safe
from pillarbox.cli.options import Json, JsonLines, check_least, group, key_and_value
from pillarbox.cli.output import FAILED, OK, UsageError
from pillarbox.cli.tables import rows_of, table_of
from pillarbox.pipeline import Pipeline, PipelineError, drawing
from pillarbox.pipeline.backing import read_states
from pillarbox.pipeline.failures import failures, redrive
from pillarbox.pipeline.graph import ERRORS_OF
from pillarbox.pipeline.inspection import inspect as inspect_pipeline
from pillarbox.pipeline.maintenance import maintain as maintain_pipeline
from pillarbox.pipeline.pipeline import load
from pillarbox.pipeline.rename import orphans, rename
from pillarbox.pipeline.reset import reset as reset_pipeline
from pillarbox.pipeline.running import is_running
from pillarbox.pipeline.status import (
    ProcessorStatus,
    Status,
    ends,
    labels,
    per_second,
    read_status,
)
from pillarbox.spark.errors import SparkError
from pillarbox.spark.shipping import is_connect
from pillarbox.worker.signals import on_signals

if TYPE_CHECKING:
    from pillarbox.pipeline.runner import Run

app = group(
    "pipeline",
    "Run, monitor, inspect and reset pipelines on Spark.\n\n"
    "TARGET is a pipeline in a module that can be imported from here, such as shop:pipeline.",
    "Example: pillarbox pipeline run shop:pipeline --master 'local[*]'",
)

Target = Annotated[str, Parameter(help="module:pipeline, such as shop:pipeline.")]
_STATES = {"running": "green", "done": "blue", "failed": "red", "waiting": "dim"}
#: Spark's stack traces would disturb the progress bar; errors are printed in one line.
QUIET = {"spark.log.level": "OFF"}
#: PySpark logs an error of a query with its Java stack trace before it raises it.
_PYSPARK_LOGGERS = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")
_POLL_SECONDS = 0.2
#: Where there is no terminal for a progress bar, progress is printed this often.
LINE_SECONDS = 10.0


@app.command(help_epilogue="Example: pillarbox pipeline run shop:pipeline --now")
def run(
    target: Target,
    /,
    *,
    master: Annotated[
        str,
        Parameter(help="Spark master: local-cluster[2,1,1024], spark://host:7077, sc://host."),
    ] = "local[*]",
    conf: Annotated[
        list[str] | None, Parameter(help="Spark setting, name=value; may be repeated.")
    ] = None,
    now: Annotated[bool, Parameter(help="Process what is available now, then exit.")] = False,
    interval: Annotated[str, Parameter(help="Interval between steps, such as '5 seconds'.")] = (
        "0 seconds"
    ),
    max_rows: Annotated[
        int | None, Parameter(help="Maximum rows per step from each input.")
    ] = None,
    retries: Annotated[int, Parameter(help="Restarts after a failure.")] = 3,
    only: Annotated[list[str] | None, Parameter(help="Run only these processors.")] = None,
    max_failed: Annotated[
        int | None,
        Parameter(help="Stop if more than this many records of a processor fail."),
    ] = None,
) -> int:
    """Run a pipeline until Ctrl-C or SIGTERM; the current steps finish first.

    With --now, the exit code is 1 if all records of a step failed; of a mailbox's history, all
    messages.
    """
    check_least("--max-rows", max_rows, 1)
    check_least("--retries", retries, 0)
    check_least("--max-failed", max_failed, 0)
    pipeline = load(target)
    for name in _PYSPARK_LOGGERS:
        logging.getLogger(name).disabled = True
    started = pipeline.run(
        master=master,
        conf=({} if is_connect(master) else QUIET)
        | dict(key_and_value("--conf", each) for each in conf or ()),
        available_now=now,
        interval=interval,
        max_rows=max_rows,
        retries=retries,
        only=only or (),
        max_failed=max_failed,
    )
    return _watch(target, pipeline, started, now=now)


def _watch(target: str, pipeline: Pipeline, running: Run, *, now: bool) -> int:
    """Show progress until the run ends, then a summary; return the exit code."""
    if not now:
        output.remark(f"{pipeline.name} is running; Ctrl-C stops it after the current steps")
    status, last_line = running.status.status, time.monotonic()
    stopping = threading.Event()
    try:
        with on_signals(lambda number: stopping.set()), output.progress("processing") as advance:
            while not running.wait(timeout=_POLL_SECONDS):
                with contextlib.suppress(OSError, SparkError):  # the run itself handles errors
                    if now:
                        advance(*_progress(pipeline, status))
                    if not sys.stderr.isatty() and time.monotonic() - last_line >= LINE_SECONDS:
                        last_line = time.monotonic()
                        _print_line(pipeline, status)
                if stopping.is_set():
                    running.stop()
    finally:
        _print_end(target, status)
    return FAILED if now and any(each.failed_steps for each in status.processors.values()) else OK


def _print_line(pipeline: Pipeline, status: Status) -> None:
    done, total = _progress(pipeline, status)
    failed = sum(each.failed for each in status.processors.values())
    steps = sum(each.steps for each in status.processors.values())
    text = f"{pipeline.name}: {done:,} of {total:,} records read, {output.count(steps, 'step')}"
    output.remark(text + (f", {failed:,} failed" if failed else ""))


def _print_end(target: str, status: Status) -> None:
    console = output.console()
    for each in status.processors.values():
        steps, rows = output.count(each.steps, "step"), output.count(each.rows, "row")
        failed = f", {each.failed:,} failed" if each.failed else ""
        text = f"{each.id}: {each.state}, {steps}, {rows}{failed}"
        console.print(text, style="red" if each.failed else None)
    for each in status.processors.values():
        if each.failed:
            output.complain(_about_failed(target, each))


def _about_failed(target: str, status: ProcessorStatus) -> str:
    text = f"{output.count(status.failed, 'record')} of {status.id} failed"
    if status.failed_steps:
        text += f", including all records of {output.count(status.failed_steps, 'step')}"
    return f"{text}; list them with 'pillarbox pipeline errors {target} {status.id}'"


def _progress(pipeline: Pipeline, status: Status) -> tuple[int, int]:
    """Return the records read and available, over all inputs of all processors."""
    end = ends(pipeline.graph)
    inputs = [
        (each.id, name)
        for each in pipeline.graph.processors
        for name in each.input_names
        if each.id in status.processors and name in end
    ]
    done = sum(status.processors[id_].read.get(name, 0) for id_, name in inputs)
    return done, max(1, sum(end[name] for _, name in inputs))


@app.command(help_epilogue="Example: pillarbox pipeline status shop:pipeline")
def status(target: Target, /, *, json: Json = False) -> int:
    """Show the state, throughput and lag of each processor."""
    pipeline = load(target)
    current = read_status(pipeline.paths.status)
    running = is_running(pipeline.paths)
    end = ends(pipeline.graph)
    lag = {
        each.id: {name: end[name] - each.read.get(name, 0) for name in each.inputs if name in end}
        for each in current.processors.values()
    }
    orphaned = orphans(pipeline, read_states(pipeline.paths.backing))
    if json:
        document = {"running": running, "lag": lag, "not_in_pipeline": orphaned}
        output.print_json(msgspec.to_builtins(current) | document)
    else:
        _print_status(current, lag, running=running)
        for each in orphaned:
            output.complain(
                f"{each} has state but is not in the pipeline; if it was renamed, move its state"
                f" with 'pillarbox pipeline rename {target} {each} NEW'"
            )
    return OK


def _print_status(status: Status, lag: dict[str, dict[str, int]], *, running: bool) -> None:
    console = output.console()
    state = f"running, process {status.pid}" if running else "not running"
    rows = [("pipeline", status.pipeline), ("state", state), ("master", status.master)]
    console.print(output.facts([*rows, ("updated", status.updated_at.isoformat())]))
    right = ("step", "rows", "rows/s", "ms/step", "failed", "restarts")
    shown = []
    for each in status.processors.values():
        state = each.state_now(running=running)
        behind = ", ".join(f"{name} {count:,}" for name, count in lag[each.id].items())
        shown.append(
            (
                each.id,
                each.kind,
                Text(state, style=_STATES.get(state, "yellow")),
                "-" if each.step is None else str(each.step),
                f"{each.rows:,}",
                per_second(each.rows_per_second),
                str(each.step_milliseconds),
                Text(f"{each.failed:,}", style="red" if each.failed else ""),
                str(each.restarts),
                behind or "-",
            )
        )
    console.print(output.table(("processor", "kind", "state", *right, "lag"), shown, right=right))
    for each in status.processors.values():
        if each.error:
            output.complain(f"{each.id}: {each.error}")


@app.command(help_epilogue="Example: pillarbox pipeline check shop:pipeline")
def check(target: Target, /) -> int:
    """Check a pipeline, its inputs and the types of its logs, without starting it."""
    pipeline = load(target)
    pipeline.check(on_disk=True)
    output.console().print(f"{pipeline.name} can be run")
    return OK


@app.command(help_epilogue="Example: pillarbox pipeline graph shop:pipeline --svg shop.svg")
def graph(
    target: Target,
    /,
    *,
    svg: Annotated[Path | None, Parameter(help="Write an SVG picture to this file.")] = None,
    live: Annotated[bool, Parameter(help="Include lag and rates of the last run.")] = False,
) -> int:
    """Check a pipeline, then draw it as Mermaid text or as an SVG picture."""
    pipeline = load(target)
    pipeline.check()
    drawn = pipeline.graph
    figures = labels(drawn, read_status(pipeline.paths.status), ends(drawn)) if live else None
    if svg is not None:
        svg.write_text(drawing.svg(drawn, figures), encoding="utf-8")
    else:
        output.console().print(drawing.mermaid(drawn, figures), soft_wrap=True)
    return OK


@app.command(help_epilogue="Example: pillarbox pipeline inspect shop:pipeline")
def inspect(target: Target, /, *, json: Json = False) -> int:
    """Show the last step of each processor and what a restart would do."""
    findings = inspect_pipeline(load(target))
    shown: list[RenderableType] = []
    for each in findings:
        rows = [("kind", f"{each.kind}, {each.strategy}, generation {each.generation}")]
        if each.step is not None:
            spans = [f"{k} {s or 0} up to {e}" for k, (s, e) in each.inputs.items()]
            rows += [("last step", f"{each.step}, {each.time}"), ("reads", ", ".join(spans))]
        if each.hash is not None:
            wrote = ", ".join(f"{name} from {at}" for name, at in each.outputs.items())
            rows += [("hash", each.hash), ("writes", wrote)]
        rows += [("failed records", str(each.failures))]
        rows += [("a restart would", f"{each.restart.action}: {each.restart.why}")]
        shown += [Text(each.id, style="bold"), output.facts(rows), ""]
    document = [msgspec.to_builtins(asdict(each)) for each in findings]
    return output.show(document, *shown, json=json)


@app.command(help_epilogue="Example: pillarbox pipeline peek shop:pipeline totals")
def peek(
    target: Target,
    log: Annotated[
        str, Parameter(help="Name of a log, or errors-ID for the failed records of a processor.")
    ],
    /,
    *,
    limit: Annotated[int, Parameter(help="Maximum number of rows.")] = 10,
) -> int:
    """Print the newest rows of a log of the pipeline as JSON, oldest first."""
    check_least("--limit", limit, 1)
    pipeline = load(target)
    names = [each.name for each in pipeline.graph.logs]
    if log in names:
        directory = pipeline.directory(log)
    elif log.startswith(ERRORS_OF):
        processor = pipeline.graph.processor(log.removeprefix(ERRORS_OF))
        directory = pipeline.errors_directory(processor.id)
    else:
        raise PipelineError(f"there is no log {log!r}; the pipeline has {', '.join(names)}")
    table = table_of(directory)
    if table is None:
        raise PipelineError(
            f"the pipeline has no table in {directory} yet; run it first. A mailbox or a log of"
            f" records is read with 'pillarbox log cat {directory}'"
        )
    for row in rows_of(table, max(0, table.end_index - limit), None):
        output.print_json(row)
    return OK


@app.command(help_epilogue="Example: pillarbox pipeline maintain shop:pipeline")
def maintain(target: Target, /, *, json: Json = False) -> int:
    """Merge small files of the pipeline's logs and remove files that are no longer used.

    A running pipeline does this by itself.
    """
    done = maintain_pipeline(load(target))
    right = ("merged", "removed", "files")
    rows = [(x.log, str(x.merged), str(x.removed), str(x.files)) for x in done]
    shown = output.table(("log", *right), rows, right=right)
    return output.show([asdict(each) for each in done], shown, json=json)


@app.command(help_epilogue="Example: pillarbox pipeline reset shop:pipeline totals --to earliest")
def reset(
    target: Target,
    processors: Annotated[list[str], Parameter(help="Ids of the processors.")],
    /,
    *,
    to: Annotated[
        str,
        Parameter(help="earliest, latest, last (its current offset), an index, or a time (UTC)."),
    ],
    json: Json = False,
) -> int:
    """Move processors to other offsets of their inputs. Their outputs stay as they are."""
    if not processors:
        raise UsageError("give the ids of the processors to reset.")
    resets = reset_pipeline(load(target), processors, to)
    lines = []
    for each in resets:
        offsets = ", ".join(f"{name} {index}" for name, index in each.inputs.items())
        lines.append(f"{each.processor} starts at {offsets}, as generation {each.generation}")
    return output.show(msgspec.to_builtins(resets), *lines, json=json)


@app.command(name="rename", help_epilogue="Example: pillarbox pipeline rename shop:pipeline a b")
def rename_(
    target: Target,
    old: Annotated[str, Parameter(help="Previous id of the processor.")],
    new: Annotated[str, Parameter(help="New id of the processor.")],
    /,
) -> int:
    """Move the state of a processor whose id was changed in the code."""
    rename(load(target), old, new)
    output.console().print(f"{new} continues where {old} stopped")
    return OK


@app.command(help_epilogue="Example: pillarbox pipeline errors shop:pipeline parse")
def errors(
    target: Target,
    processor: Annotated[str, Parameter(help="Id of the processor.")],
    /,
    *,
    redrive_all: Annotated[
        bool, Parameter(name="--redrive", help="Append the records to their source logs.")
    ] = False,
    anyway: Annotated[
        bool, Parameter(help="Redrive even if other processors read the same log.")
    ] = False,
    json: JsonLines = False,
) -> int:
    """List the failed records of a processor with cause and body, or redrive them."""
    pipeline = load(target)
    path = pipeline.errors_directory(pipeline.graph.processor(processor).id)
    if redrive_all:
        count = redrive(pipeline.graph, processor, path, anyway=anyway)
        output.console().print(f"{output.count(count, 'record')} appended to the source logs")
        return OK
    print_line = output.line_printer()
    for index, each in failures(path):
        fields: dict[str, Any] = {"error": index} | msgspec.to_builtins(each)
        fields |= body_fields(each.body)
        if json:
            output.print_json(fields)
        else:
            source = f"{each.log} {each.index}" if each.log else f"for {each.output}"
            line = f"{index}  {source}  {each.cause}  {body_text(fields)}"
            print_line(Text(safe(line)))
    return OK
