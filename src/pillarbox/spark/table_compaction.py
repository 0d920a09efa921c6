"""Small files of a typed log become large ones; rows keep their indices.

Steps leave many small files. A run of them that follow one another is written as one file, whose
rows are the same, in the same order. The old ones stay on disk until a vacuum.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence

from pillarbox.spark.table import TableLog
from pillarbox.spark.table_files import DataFile, NewFile, conformed

SMALL_BYTES = 32 << 20
LARGE_BYTES = 128 << 20
#: Fewer are not worth a file.
FILES_MIN = 16


def compact(table: TableLog, before: int) -> int:
    """Merge runs of small files whose rows all lie before an index; how many files went."""
    table.refresh()
    merged = 0
    for files in list(_runs([each for each in table.files() if each.end <= before])):
        if table.replace(files, _written(table, files)):
            merged += len(files)
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


def _written(table: TableLog, files: Sequence[DataFile]) -> NewFile:
    from pyarrow import parquet  # noqa: PLC0415 - behind an extra

    name, schema = f"compacted-{uuid.uuid4().hex}.parquet", table.schema
    with (
        table.storage.writing(name) as sink,
        parquet.ParquetWriter(sink, schema, compression="snappy") as writer,
    ):
        for file in files:
            rows = parquet.ParquetFile(table.storage.open(file.name)).read()
            writer.write_table(conformed(rows, schema), row_group_size=1 << 20)
    return NewFile(name, table.storage.size(name), sum(each.count for each in files))
