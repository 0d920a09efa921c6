"""Checks that run before a pipeline starts. Each problem says how to fix it.

`problems(graph)` checks the declaration only. With `on_disk=True` it also checks that logs which
no processor writes exist, and that the tables have the types their logs declare. A pipeline with
a problem never starts.
"""

from __future__ import annotations

import inspect
import re
from collections import Counter
from collections.abc import Collection, Iterator

from pillarbox.core.errors import InvalidParameterError
from pillarbox.pipeline.errors import PipelineError
from pillarbox.pipeline.graph import (
    ERRORS,
    OUTPUT_MODES,
    STRATEGIES,
    Graph,
    LogRef,
    Processor,
)
from pillarbox.pipeline.paths import exists
from pillarbox.pipeline.schema import shape_of
from pillarbox.spark.location import is_remote_store, location_of, without_secret

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")


def check(graph: Graph, *, on_disk: bool = False, only: Collection[str] = ()) -> None:
    """Raise a PipelineError that lists every problem, if there are any."""
    messages = problems(graph, on_disk=on_disk, only=only)
    if messages:
        raise PipelineError("\n".join(f"- {each}" for each in messages), problems=tuple(messages))


def problems(graph: Graph, *, on_disk: bool = False, only: Collection[str] = ()) -> list[str]:
    """Return every problem of a pipeline, each with how to fix it.

    `only` names the processors to run (default: all).
    """
    messages = [*_name_problems(graph), *_log_problems(graph), *_writer_problems(graph)]
    for processor in graph.processors:
        messages += _processor_problems(graph, processor)
    if not graph.processors:
        messages.append(
            "the pipeline has no processor: declare one with @pipeline.source, .stream or .sink"
        )
    if cycle := graph.cycle():
        path = " -> ".join(each.partition(":")[2] for each in cycle)
        messages.append(
            f"there is a cycle: {path}; let one of these processors write to another log, and start"
            " a second pipeline from that log if records really must loop"
        )
    if on_disk and not messages:
        messages += [*_missing_logs(graph), *_table_problems(graph, only)]
    return messages


def _name_problems(graph: Graph) -> Iterator[str]:
    for what, names in (
        ("log", [log.name for log in graph.logs]),
        ("processor", [each.id for each in graph.processors]),
    ):
        for name, count in Counter(names).items():
            if count > 1:
                yield (
                    f"{count} {what}s have the id {name!r}; state is stored under this id, so give"
                    f" each {what} its own"
                )
            if not _NAME.fullmatch(name):
                yield (
                    f"{name!r} is not a valid {what} name; use a letter, then up to 63 letters,"
                    " digits, '_' and '-'"
                )


def _log_problems(graph: Graph) -> Iterator[str]:
    by_url: dict[str, list[str]] = {}
    for log in graph.logs:
        by_url.setdefault(location_of(log.url) or log.url, []).append(log.name)
        try:
            shape_of(log.body_type)
        except InvalidParameterError as error:
            yield f"the bodies of the log {log.name!r} have no schema: {error}"
    for url, names in by_url.items():
        if len(names) > 1:
            yield (
                f"{' and '.join(names)} are the same log ({without_secret(url)}); use one name"
                " for it"
            )


def _processor_problems(graph: Graph, processor: Processor) -> Iterator[str]:
    title = f"the {processor.kind} {processor.id!r}"
    if processor.strategy not in STRATEGIES:
        yield f"{title} has the strategy {processor.strategy!r}; use one of {', '.join(STRATEGIES)}"
    if processor.mode not in OUTPUT_MODES:
        yield f"{title} has the mode {processor.mode!r}; use one of {', '.join(OUTPUT_MODES)}"
    if processor.kind != "source" and not processor.inputs:
        yield f"{title} reads nothing; name the logs that it reads: inputs=..."
    if processor.kind != "sink" and not processor.outputs:
        yield f"{title} writes nothing; name the logs that it writes: outputs=..."
    if is_generator(processor) and len(processor.outputs) > 1:
        yield (
            f"{title} is a generator and has {len(processor.outputs)} outputs; let it write to one"
            " log, and add a stream that fans out from there"
        )
    declared = {log.name for log in graph.logs}
    for name in {*processor.input_names, *processor.output_names} - declared:
        yield f"{title} uses the log {name!r}, which is not declared; add pipeline.log({name!r})"
    for what, names in (("input", processor.input_names), ("output", processor.output_names)):
        for name, count in Counter(names).items():
            if count > 1:
                yield f"{title} names the {what} {name!r} {count} times; name it once"
    if ERRORS in processor.output_names:
        yield f"{title} writes to {ERRORS!r}, the name reserved for its error log; choose another"
    for name in declared & set(processor.output_names):
        if location_of(graph.log(name).url) is None:
            yield (
                f"{title} writes to {without_secret(graph.log(name).url)}, which is not a log in a"
                " directory; write to a log (file:...), and add a sink that sends it to the mailbox"
            )
    for log in processor.outputs:
        if isinstance(log, LogRef) and log.condition:
            yield f"{title} writes to {log.name!r} with a where(); filter the rows in its function"
    yield from _function_problems(processor, title)


def _function_problems(processor: Processor, title: str) -> Iterator[str]:
    if processor.each and len(processor.inputs) != 1:
        yield f"{title} takes one record at a time (each=True), so it must have exactly one input"
    if processor.each and any(isinstance(x, LogRef) and x.condition for x in processor.inputs):
        yield (
            f"{title} takes one record at a time, so its input can't have a where(): return None"
            " for the others in the function"
        )
    function = inspect.unwrap(processor.function)
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        yield f"the function of {title} is async, but nobody would await it; use a plain def"
    if inspect.isgeneratorfunction(function) and not (processor.each or is_generator(processor)):
        yield (
            f"the function of {title} yields, so calling it would do nothing; only a source, or a"
            " stream with each=True, may yield"
        )
    try:
        parameters = inspect.signature(processor.function).parameters.values()
    except (TypeError, ValueError):
        return
    expected = expected_arguments(processor)
    possible = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    required = [p for p in possible if p.default is p.empty]
    variable = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    if len(required) > len(expected) or (len(possible) < len(expected) and not variable):
        takes = f"({', '.join(p.name for p in parameters)})"
        yield f"the function of {title} takes {takes}, but is given ({', '.join(expected)})"


def expected_arguments(processor: Processor) -> list[str]:
    """Return the names of the arguments that a processor's function is called with."""
    if processor.kind == "sink":
        return [*processor.input_names, "step"]
    if processor.each:
        return ["record"]
    if processor.kind == "source":
        return [] if is_generator(processor) else ["spark"]
    return list(processor.input_names)


def is_generator(processor: Processor) -> bool:
    """Return whether it is a source that yields records itself, without Spark.

    Any other source returns a streaming DataFrame. A stream with `each=True` may yield, too.
    """
    function = inspect.unwrap(processor.function)
    return processor.kind == "source" and inspect.isgeneratorfunction(function)


def _writer_problems(graph: Graph) -> Iterator[str]:
    """Report logs shared with a generator, which keeps its log open for writing."""
    for log in graph.logs:
        writers = graph.writers(log.name)
        if len(writers) > 1 and any(is_generator(each) for each in writers):
            ids = " and ".join(each.id for each in writers)
            yield (
                f"{ids} all write to {log.name!r}, but a generator must be the only writer of its"
                " log; give it a log of its own, and let the reader take both as inputs"
            )


def _missing_logs(graph: Graph) -> Iterator[str]:
    for log in graph.logs:
        read = [each.id for each in graph.readers(log.name)]
        if read and not graph.writers(log.name) and not exists(log.url):
            yield (
                f"{' and '.join(read)} would read the log {log.name!r}, but there is none at"
                f" {log.url} and nothing in this pipeline writes it; check the URL, send something"
                " to it first, or add a source"
            )


def _table_problems(graph: Graph, only: Collection[str]) -> Iterator[str]:
    from pillarbox.pipeline import tables  # noqa: PLC0415 - needs an extra

    chosen = [each for each in graph.processors if not only or each.id in only]
    pairs = [(each, name) for each in chosen for name in each.output_names]
    written = {n for each, n in pairs if writes_table(each, location_of(graph.log(n).url) or "")}
    return tables.problems(graph, written, {name for each in chosen for name in each.input_names})


def writes_table(processor: Processor, location: str) -> bool:
    """Return whether an output is a table. In a directory, generators write row logs."""
    return is_remote_store(location) or not is_generator(processor)
