"""Reading a history in tasks: what a batch read and a stream have in common."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol

from pyspark.sql.datasource import InputPartition

from pillarbox.spark.columns import Columns
from pillarbox.spark.history import History, Source
from pillarbox.spark.options import ReadOptions
from pillarbox.spark.rows import Wanted, Words
from pillarbox.spark.table_history import TableHistory


class Reading(Protocol):
    """How tasks make record batches of what was planned. It is pickled, to go to tasks."""

    def narrowed(self, queues: Words, kinds: Words) -> Reading: ...
    def rows(self, part: Part) -> Iterator[Any]: ...


def reading_of(history: History, options: ReadOptions, schema: Any) -> Reading:
    """The columns of a schema, read from a history."""
    if isinstance(history, TableHistory):
        return history.scan(schema)
    return Scan.of(history, options, schema)


class Part(InputPartition):
    """What one task reads."""

    def __init__(self, pieces: list[Any]) -> None:
        self.pieces = pieces


@dataclass(frozen=True)
class Scan:
    """How the records of a history become rows. It is pickled, to go to tasks."""

    source: Source
    columns: Columns
    wanted: Wanted

    @classmethod
    def of(cls, history: History, options: ReadOptions, schema: Any) -> Scan:
        wanted = Wanted(kinds=options.kinds, fail_on_loss=options.fail_on_loss)
        return cls(history.source(), Columns(schema, mailbox=history.mailbox), wanted)

    def narrowed(self, queues: Words, kinds: Words) -> Scan:
        """The same, for these queues and kinds only."""
        return replace(self, wanted=self.wanted.narrowed(queues, kinds))

    def rows(self, part: Part) -> Iterator[Any]:
        """Record batches of the schema."""
        return map(self.columns.shaped, self.source.rows(part.pieces, self.wanted))
