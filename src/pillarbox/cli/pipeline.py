"""`pillarbox pipeline`: run a pipeline, watch it, look at its last steps, send it elsewhere."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import msgspec
from cyclopts import App, Parameter
from rich.text import Text

from pillarbox.cli import output
from pillarbox.cli.entries import body_fields
from pillarbox.cli.output import FAILED, OK, UsageError
from pillarbox.pipeline import Pipeline, PipelineError, drawing
from pillarbox.pipeline.failures import failures, redrive
from pillarbox.pipeline.inspection import inspect as inspect_pipeline
from pillarbox.pipeline.loading import load
from pillarbox.pipeline.reset import reset as reset_pipeline
from pillarbox.pipeline.running import is_held
from pillarbox.pipeline.status import Status, ends, labels, read_status
from pillarbox.spark.errors import SparkError
from pillarbox.spark.shipping import is_connect

app = App(
    name="pipeline",
    help=(
        "Run a pipeline on Spark, watch it, look at its last steps, send it elsewhere.\n\n"
        "TARGET names a pipeline in a module that can be imported from here, as shop:pipeline."
    ),
    help_epilogue="Example: pillarbox pipeline run shop:pipeline --master 'local[*]'",
    help_format="plaintext",
    default_parameter=Parameter(negative=(), show_default=False),
)

Target = Annotated[str, Parameter(help="module:pipeline, as in shop:pipeline.")]
Json = Annotated[bool, Parameter(name="--json", help="Print one JSON document.")]
_STATES = {"running": "green", "done": "blue", "failed": "red", "waiting": "dim"}
_LOOK_SECONDS = 0.2
#: Spark's stack traces would be drawn over the progress bar; what failed is told in a line.
QUIET = {"spark.log.level": "OFF"}


@contextlib.contextmanager
def _told() -> Iterator[list[int]]:
    """Says what is wrong with a pipeline, a line for each problem; holds the exit code."""
    code = [OK]
    try:
        yield code
    except PipelineError as error:
        for problem in error.problems:
            output.complain(" ".join(problem.split()))
        code[0] = FAILED
    except (SparkError, ImportError) as error:
        output.complain(" ".join(str(error).split()))
        code[0] = FAILED


@app.command(help_epilogue="Example: pillarbox pipeline run shop:pipeline --now")
def run(
    target: Target,
    /,
    *,
    master: Annotated[
        str,
        Parameter(
            help="local[*] (default), local-cluster[2,1,1024], spark://host:7077, sc://host."
        ),
    ] = "local[*]",
    conf: Annotated[
        list[str] | None, Parameter(help="A setting of Spark, name=value; as often as wanted.")
    ] = None,
    now: Annotated[bool, Parameter(help="Work off what is there now, then end.")] = False,
    interval: Annotated[str, Parameter(help="How often a step begins, as '5 seconds'.")] = (
        "0 seconds"
    ),
    max_rows: Annotated[
        int | None, Parameter(help="The most that a step reads from each input.")
    ] = None,
    retries: Annotated[int, Parameter(help="Starts again after a failure; 3 if not given.")] = 3,
    only: Annotated[list[str] | None, Parameter(help="Run these processors only.")] = None,
) -> int:
    """Run it until Ctrl-C or SIGTERM, which let the steps under way end."""
    with _told() as code:
        pipeline = load(target)
        started = pipeline.run(
            master=master,
            conf=({} if is_connect(master) else QUIET) | dict(map(_setting, conf or ())),
            available_now=now,
            interval=interval,
            max_rows=max_rows,
            retries=retries,
            only=only or (),
        )
        console = output.console()
        if not now:
            console.print(f"{pipeline.name} runs; Ctrl-C lets the steps under way end")
        with _asked_to_stop() as asked, output.progress("working off what is there") as advance:
            while not started.wait(timeout=_LOOK_SECONDS):
                if now:
                    advance(*_how_far(pipeline, started.status.status))
                if asked.is_set():
                    started.stop()
        for each in started.status.status.processors.values():
            console.print(Text(f"{each.id}: {each.state}, {each.steps} steps, {each.rows:,} rows"))
    return code[0]


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise UsageError(f"--conf must be name=value, as spark.executor.memory=2g; got {text!r}.")
    return name, value


@contextlib.contextmanager
def _asked_to_stop() -> Iterator[threading.Event]:
    """Set by Ctrl-C and SIGTERM, which would otherwise end the process at once."""
    asked = threading.Event()
    signals = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(each, lambda *_: asked.set()) for each in signals]
    try:
        yield asked
    finally:
        for each, handler in zip(signals, before, strict=True):
            signal.signal(each, handler)


def _how_far(pipeline: Pipeline, status: Status) -> tuple[int, int]:
    """Records read, of how many, over all inputs of all processors."""
    end = ends(pipeline.graph)
    wanted = [
        (each.id, name)
        for each in pipeline.graph.processors
        for name in each.input_names
        if each.id in status.processors and name in end
    ]
    done = sum(status.processors[id_].read.get(name, 0) for id_, name in wanted)
    return done, max(1, sum(end[name] for _, name in wanted))


@app.command(help_epilogue="Example: pillarbox pipeline status shop:pipeline")
def status(target: Target, /, *, json: Json = False) -> int:
    """Tell what each processor does, how fast, and how far behind it is."""
    with _told() as code:
        pipeline = load(target)
        known = read_status(pipeline.places.status)
        running = is_held(pipeline.places)
        end = ends(pipeline.graph)
        lag = {
            each.id: {
                name: end[name] - each.read.get(name, 0)
                for name in pipeline.graph.processor(each.id).input_names
                if name in end
            }
            for each in known.processors.values()
        }
        if json:
            output.print_json(msgspec.to_builtins(known) | {"running": running, "lag": lag})
        else:
            _show_status(known, lag, running=running)
    return code[0]


def _show_status(known: Status, lag: dict[str, dict[str, int]], *, running: bool) -> None:
    console = output.console()
    state = f"running, process {known.pid}" if running else "not running"
    rows = [("pipeline", known.pipeline), ("state", state), ("master", known.master)]
    console.print(output.facts([*rows, ("updated", known.updated_at.isoformat())]))
    right = ("step", "rows", "rows/s", "ms/step", "restarts")
    table = output.columns("processor", "kind", "state", *right, "lag", right=right)
    for each in known.processors.values():
        state = each.state if running or each.state != "running" else "killed"
        table.add_row(
            Text(each.id),
            each.kind,
            Text(state, style=_STATES.get(state, "yellow")),
            "-" if each.step is None else str(each.step),
            f"{each.rows:,}",
            f"{each.rows_per_second:,.0f}",
            str(each.step_milliseconds),
            str(each.restarts),
            Text(", ".join(f"{name} {count:,}" for name, count in lag[each.id].items()) or "-"),
        )
    console.print(table)
    for each in known.processors.values():
        if each.error:
            output.complain(f"{each.id}: {each.error}")


@app.command(help_epilogue="Example: pillarbox pipeline graph shop:pipeline --svg shop.svg")
def graph(
    target: Target,
    /,
    *,
    svg: Annotated[Path | None, Parameter(help="Write a picture to this file.")] = None,
    live: Annotated[bool, Parameter(help="With lag and rates of the last run.")] = False,
) -> int:
    """Draw it: Mermaid text, or an SVG picture. Checks it first."""
    with _told() as code:
        pipeline = load(target)
        pipeline.check()
        drawn = pipeline.graph
        figures = labels(drawn, read_status(pipeline.places.status), ends(drawn)) if live else None
        if svg is not None:
            svg.write_text(drawing.svg(drawn, figures), encoding="utf-8")
        else:
            output.console().print(Text(drawing.mermaid(drawn, figures)), soft_wrap=True)
    return code[0]


@app.command(help_epilogue="Example: pillarbox pipeline inspect shop:pipeline")
def inspect(target: Target, /, *, json: Json = False) -> int:
    """Show the last step of each processor, and what a restart would do."""
    with _told() as code:
        found = inspect_pipeline(load(target))
        if json:
            output.print_json([msgspec.to_builtins(asdict(each)) for each in found])
            return OK
        console = output.console()
        for each in found:
            rows = [("kind", f"{each.kind}, {each.strategy}, generation {each.generation}")]
            if each.step is not None:
                spans = [f"{k} {s or 0} up to {e}" for k, (s, e) in each.inputs.items()]
                rows += [("last step", f"{each.step}, {each.time}"), ("reads", ", ".join(spans))]
            if each.hash is not None:
                wrote = ", ".join(f"{name} from {at}" for name, at in each.outputs.items())
                rows += [("hash", each.hash), ("writes", wrote)]
            rows += [("failed records", str(each.failures))]
            rows += [("a restart would", f"{each.restart.action}: {each.restart.why}")]
            console.print(Text(each.id, style="bold"))
            console.print(output.facts(rows))
            console.print()
    return code[0]


@app.command(help_epilogue="Example: pillarbox pipeline reset shop:pipeline totals --to earliest")
def reset(
    target: Target,
    processors: Annotated[list[str], Parameter(help="The ids of the processors.")],
    /,
    *,
    to: Annotated[
        str, Parameter(help="earliest, latest, last (where it was), an index, or a time (UTC).")
    ],
    json: Json = False,
) -> int:
    """Send processors elsewhere in their inputs. What they wrote stays where it is."""
    with _told() as code:
        if not processors:
            raise UsageError("name the processors to reset.")
        made = reset_pipeline(load(target), processors, to)
        if json:
            output.print_json(msgspec.to_builtins(made))
            return OK
        for each in made:
            places = ", ".join(f"{name} {index}" for name, index in each.inputs.items())
            text = f"{each.processor} begins at {places}, as generation {each.generation}"
            output.console().print(Text(text))
    return code[0]


@app.command(help_epilogue="Example: pillarbox pipeline errors shop:pipeline parse")
def errors(
    target: Target,
    processor: Annotated[str, Parameter(help="The id of a processor.")],
    /,
    *,
    redrive_all: Annotated[
        bool, Parameter(name="--redrive", help="Append them to the logs they came from.")
    ] = False,
    anyway: Annotated[
        bool, Parameter(help="Also to a log that other processors read, and see again.")
    ] = False,
    json: Annotated[bool, Parameter(name="--json", help="Print a JSON object a line.")] = False,
) -> int:
    """List the records that failed in a processor: cause, where from, body. Or redrive them."""
    with _told() as code:
        pipeline = load(target)
        path = pipeline.errors_directory(processor)
        if redrive_all:
            count = redrive(pipeline.graph, processor, path, anyway=anyway)
            output.console().print(f"{count} records were appended to where they came from")
            return OK
        for index, each in failures(path):
            known: dict[str, Any] = {"error": index} | msgspec.to_builtins(each)
            known |= body_fields(each.body)
            if json:
                output.print_json(known)
            else:
                place = f"{each.log} {each.index}" if each.log else f"for {each.output}"
                line = f"{index}  {place}  {each.cause}  {known['body']}"
                output.console().print(Text(line), overflow="ellipsis", no_wrap=True)
    return code[0]
