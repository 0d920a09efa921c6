"""The error log of a processor: failed records with cause and origin, and their redrive.

Failures are an additional output of the step in which they happen, so they are recorded exactly
once together with that step. Nothing is ever removed from the error log. A redrive appends the
original bytes to the log they came from, and records its position in the error log.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator

import msgspec

from pillarbox.pipeline.errors import PipelineError
from pillarbox.pipeline.graph import Graph
from pillarbox.pipeline.paths import log_behind
from pillarbox.pipeline.rows import open_to_append
from pillarbox.spark.location import location_of, without_secret
from pillarbox.spark.table import table_at

#: The name under which the error log stores the position of the last redrive.
REDRIVEN = "redriven"
CAUSE_CHARS_MAX = 2000


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """A failed record.

    `log` and `index` are its origin, if it comes from a single record. `output` is the log that
    it could not be written to, if that was the cause.
    """

    processor: str
    cause: str
    log: str | None = None
    index: int | None = None
    output: str | None = None
    time: datetime.datetime | None = None
    body: bytes = b""


def failures(path: str, start: int = 0) -> Iterator[tuple[int, Failure]]:
    """Yield each failure with its index in the error log at this path, if there is one."""
    if (table := table_at(path)) is not None:
        for index, row in table.rows(start):
            yield index, Failure(**row)


def redrive(
    graph: Graph,
    processor_id: str,
    path: str,
    *,
    where: Callable[[Failure], bool] = lambda _: True,
    anyway: bool = False,
) -> int:
    """Append the failed records of a processor to the logs they came from; return how many.

    Skips records that were redriven before or that `where` rejects. Refuses a log that other
    processors also read unless `anyway`, because they would see these records twice. A crash
    during a redrive may also append some records twice.
    """
    table = table_at(path)
    if table is None:
        return 0  # nothing has ever failed
    end = table.end_index
    by_log: dict[str, list[bytes]] = {}
    for _, each in failures(path, table.mark(REDRIVEN)):
        if each.log is not None and where(each):
            by_log.setdefault(each.log, []).append(each.body)
    targets = {name: _target(graph, processor_id, name, anyway=anyway) for name in by_log}
    for name, bodies in by_log.items():
        with open_to_append(targets[name], graph.log(name).body_type) as log:
            log.append_many(bodies)
    table.append([], {REDRIVEN: end})
    return sum(map(len, by_log.values()))


def _target(graph: Graph, processor_id: str, name: str, *, anyway: bool) -> str:
    others = [each.id for each in graph.readers(name) if each.id != processor_id]
    if others and not anyway:
        raise PipelineError(
            f"{' and '.join(others)} would see the records redriven to {name!r} again; if that does"
            " no harm, redrive anyway (--anyway)"
        )
    url = graph.log(name).url
    directory = location_of(url)
    if directory is None or log_behind(url) not in (None, directory):
        raise PipelineError(
            f"{without_secret(url)} is a mailbox, so nothing can be appended to its history; send"
            " the bodies with a client of that mailbox"
        )
    return directory
