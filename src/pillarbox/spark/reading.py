"""Reading a history in tasks: what a batch read and a stream have in common.

A `Scan` is what a task needs to know; it is pickled, and opens files only where it runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql.datasource import InputPartition

from pillarbox.spark.columns import LOG_SCHEMA, MAILBOX_SCHEMA, Columns
from pillarbox.spark.events import Events, Names, read_names
from pillarbox.spark.history import FileHistory, Piece, read_pieces
from pillarbox.spark.options import ReadOptions
from pillarbox.spark.place import Place, place_of


class Part(InputPartition):
    """What one task reads."""

    def __init__(self, pieces: list[Piece]) -> None:
        self.pieces = pieces


@dataclass(frozen=True)
class Scan:
    """How the records of a history become rows."""

    url: str
    place: Place
    columns: Columns
    fail_on_loss: bool
    names: Names | None
    queues: frozenset[str] | None
    kinds: frozenset[str] | None

    @classmethod
    def of(cls, history: FileHistory, options: ReadOptions, columns: Columns) -> Scan:
        place = history.place
        names = read_names(history.log, place.store) if place.store is not None else None
        queues = frozenset((place.queue,)) if place.queue is not None else None
        return cls(history.url, place, columns, options.fail_on_loss, names, queues, options.kinds)

    def narrowed(self, queues: frozenset[str] | None, kinds: frozenset[str] | None) -> Scan:
        """The same, for these queues and kinds only."""
        return replace(self, queues=_both(self.queues, queues), kinds=_both(self.kinds, kinds))

    def rows(self, part: Part) -> Iterator[Any]:
        """Record batches of the schema, straight from the segments."""
        batches = read_pieces(self.place, self.url, part.pieces, fail_on_loss=self.fail_on_loss)
        for batch in batches:
            if self.names is None:
                yield self.columns.of_log(batch)
                continue
            events = self._events(batch)
            if len(events.records):
                yield self.columns.of_events(events)

    def _events(self, batch: Any) -> Events:
        assert self.names is not None
        events = Events(batch, self.names)
        if events.unknown_queues():
            events = Events(batch, self._names_now())
        events.select(self.queues, self.kinds)
        return events

    def _names_now(self) -> Names:
        """A queue was declared since the read was planned: look again."""
        assert self.place.store is not None
        history = FileHistory(self.url)
        try:
            return read_names(history.log, self.place.store)
        finally:
            history.close()


def schema_of(url: str) -> str:
    """The columns that a read has unless it asks for others."""
    return MAILBOX_SCHEMA if place_of(url).store is not None else LOG_SCHEMA


def _both(one: frozenset[str] | None, other: frozenset[str] | None) -> frozenset[str] | None:
    if one is None or other is None:
        return other if one is None else one
    return one & other
