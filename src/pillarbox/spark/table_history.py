"""The history in a typed log, for the data source: typed columns, read from Parquet as Arrow.

Tasks get the files with their rows, and read only the columns of the schema. In addition to its
own columns, a table has `_index` and `_time`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from pillarbox.spark.errors import DataLossError, OptionError
from pillarbox.spark.files import Files
from pillarbox.spark.history import History, Outline
from pillarbox.spark.options import ReadOptions
from pillarbox.spark.table import TableLog
from pillarbox.spark.table_files import INDEX, TIME, DataFile, parquet_file

_BATCH_ROWS = 50_000


class Piece(NamedTuple):
    """A range of rows of one file."""

    file: DataFile
    start: int
    stop: int


class TableHistory(History):
    """The rows of a typed log."""

    def __init__(self, url: str, table: TableLog) -> None:
        self.url, self._table = url, table
        self.first, self.end = table.first_index, table.end_index

    def refresh(self) -> None:
        self._table.refresh()
        self.first, self.end = self._table.first_index, self._table.end_index

    def index_at_time(self, time_ns: int) -> int:
        return self._table.index_at_time(time_ns)

    def limit(self, start: int, end: int, bytes_max: int) -> int:
        return self._outline(start, end).limit(start, end, bytes_max)

    def partitions(
        self, start: int, end: int, bytes_max: int, count_min: int | None = None
    ) -> list[list[Piece]]:
        files = self._table.files(start, end)
        return [
            [
                Piece(file, max(low, file.first), min(high, file.end))
                for file in files
                if file.first < high and low < file.end
            ]
            for low, high in self._outline(start, end).ranges(start, end, bytes_max, count_min)
        ]

    def _outline(self, start: int, end: int) -> Outline:
        marks, before = [], 0
        for file in self._table.files(start, end):
            marks.append((file.first, before))
            before += file.size_bytes
            marks.append((file.end, before))
        return Outline(marks)

    def scan(self, options: ReadOptions, schema: Any) -> TableScan:
        wanted = to_arrow_schema(schema, timezone="UTC")
        columns = {*self._table.schema.names, INDEX, TIME}
        if unknown := [name for name in wanted.names if name not in columns]:
            raise OptionError(
                f"the log {self.url} has no column {unknown[0]}; it has"
                f" {', '.join(sorted(columns))}"
            )
        return TableScan(self.url, self._table.storage, wanted)


def ddl_of(table: TableLog) -> str:
    """Return the default columns of a read of a typed log."""
    fields = from_arrow_schema(table.schema)
    columns = [f"`{each.name}` {each.dataType.simpleString()}" for each in fields]
    return ", ".join([*columns, f"`{INDEX}` BIGINT", f"`{TIME}` TIMESTAMP"])


@dataclass(frozen=True)
class TableScan:
    """Reads pieces in tasks. Executors must be able to access the files."""

    url: str
    storage: Files
    schema: Any

    def batches(self, pieces: Sequence[Piece]) -> Iterator[Any]:
        for piece in pieces:
            try:
                yield from self._read(piece)
            except FileNotFoundError as error:
                raise DataLossError(self.url, piece.start, piece.stop) from error

    def _read(self, piece: Piece) -> Iterator[Any]:
        file = parquet_file(self.storage, piece.file.name)
        stored = set(file.schema_arrow.names)
        names = [each.name for each in self.schema if each.name in stored]
        groups, index = _groups(file, piece)
        for batch in file.iter_batches(_BATCH_ROWS, row_groups=groups, columns=names):
            low, high = max(piece.start, index), min(piece.stop, index + batch.num_rows)
            if low < high:
                yield self._shaped(batch.slice(low - index, high - low), piece.file, low)
            index += batch.num_rows

    def _shaped(self, batch: Any, file: DataFile, index: int) -> Any:
        arrays = []
        for field in self.schema:
            if field.name == INDEX:
                values = pa.array(range(index, index + batch.num_rows), pa.int64())
            elif field.name == TIME:
                values = pa.repeat(pa.scalar(file.time, field.type), batch.num_rows)
            elif field.name in batch.schema.names:
                values = batch.column(field.name).cast(field.type, safe=False)
            else:
                values = pa.nulls(batch.num_rows, field.type)
            arrays.append(values)
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def _groups(file: Any, piece: Piece) -> tuple[list[int], int]:
    """Return the row groups of a piece, and the index of their first row."""
    at, groups, begin = piece.file.first, [], None
    for number in range(file.num_row_groups):
        rows = file.metadata.row_group(number).num_rows
        if at < piece.stop and piece.start < at + rows:
            groups.append(number)
            begin = at if begin is None else begin
        at += rows
    return groups, piece.file.first if begin is None else begin
