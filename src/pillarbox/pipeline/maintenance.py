"""Compacts the tables of a pipeline: merges small files. Runs automatically and on request.

Steps leave many small files. Consecutive ones are rewritten as one file, with the same rows in the
same order; the old files stay on disk for some hours. Only rows that every processor of the
pipeline has read are rewritten, so a repeated step sees the same files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pillarbox.pipeline.backing import read_states
from pillarbox.pipeline.graph import ERRORS_OF, Graph
from pillarbox.pipeline.maps import ProcessorState
from pillarbox.spark.table import TableLog, table_at
from pillarbox.spark.table_files import DataFile, conformed, parquet_file

if TYPE_CHECKING:
    from pillarbox.pipeline.pipeline import Pipeline

#: A processor maintains its outputs after this many steps.
EVERY_STEPS = 100
SMALL_BYTES = 32 << 20
LARGE_BYTES = 128 << 20
#: The fewest files worth merging.
FILES_MIN = 16
_WITHOUT_MAPS = ("stream", "at-least-once")


@dataclass(frozen=True, slots=True)
class Maintained:
    """The result of maintaining one table: files merged, files removed, files left."""

    log: str
    merged: int
    removed: int
    files: int


def maintain(pipeline: Pipeline) -> list[Maintained]:
    """Compact and vacuum all tables of a pipeline. Safe while it is running."""
    states = read_states(pipeline.paths.backing)
    urls = {log.name: log.url for log in pipeline.graph.logs}
    for each in pipeline.graph.processors:
        urls[f"{ERRORS_OF}{each.id}"] = pipeline.errors_directory(each.id)
    tables = {name: table_at(url) for name, url in urls.items()}
    return [
        _maintain(pipeline.graph, name, table, lambda id_: states.get(id_, ProcessorState()))
        for name, table in tables.items()
        if table is not None
    ]


def maintain_outputs(
    pipeline: Pipeline, processor_id: str, last: Callable[[str], ProcessorState]
) -> None:
    """Compact and vacuum the tables that a processor writes."""
    names = pipeline.graph.processor(processor_id).output_names
    paths = {name: pipeline.directory(name) for name in names}
    paths[f"{ERRORS_OF}{processor_id}"] = pipeline.errors_directory(processor_id)
    for name, path in paths.items():
        _maintain(pipeline.graph, name, TableLog(path), last)


def _maintain(
    graph: Graph, name: str, table: TableLog, last: Callable[[str], ProcessorState]
) -> Maintained:
    # At-least-once streams write no maps, and a repeated step may see different files.
    readers = [x for x in graph.readers(name) if (x.kind, x.strategy) != _WITHOUT_MAPS]
    read = [_read_up_to(last(each.id), name) for each in readers]
    merged = compact(table, min(read, default=table.end_index))
    return Maintained(name, merged, table.vacuum(), len(table.files()))


def _read_up_to(last: ProcessorState, name: str) -> int:
    """Return the first row of an input that a processor may still read, or read again."""
    if last.recovery is not None:
        return last.recovery.inputs.get(name, (0, 0))[0] or 0
    return last.reset.inputs.get(name, 0) if last.reset else 0


def compact(table: TableLog, before: int) -> int:
    """Merge consecutive small files whose rows are all before an index.

    Returns the number of files merged.
    """
    table.refresh()
    merged = 0
    for files in list(_runs([each for each in table.files() if each.end <= before])):
        new = table.write(_rows_of(table, files), "compacted-")
        if table.replace(files, new):
            merged += len(files)
        else:
            table.storage.remove(new.name)
    return merged


def _runs(files: Sequence[DataFile]) -> Iterator[list[DataFile]]:
    run: list[DataFile] = []
    for file in files:
        fits = sum(each.size_bytes for each in run) + file.size_bytes <= LARGE_BYTES
        if file.size_bytes > SMALL_BYTES or not fits:
            if len(run) >= FILES_MIN:
                yield run
            run = []
        if file.size_bytes <= SMALL_BYTES:
            run.append(file)
    if len(run) >= FILES_MIN:
        yield run


def _rows_of(table: TableLog, files: Sequence[DataFile]) -> Iterator[Any]:
    for file in files:
        yield conformed(parquet_file(table.storage, file.name).read(), table.schema)
