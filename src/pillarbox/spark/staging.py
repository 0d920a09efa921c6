"""What a task writes: few records travel with its message, many wait in files beside the log.

The files are segments in the log's own format, under `staging/` in the log's directory: a
directory for each run of a processor, and in it names that no other attempt has. The driver
names those that count; all others are garbage, so a task that nobody waits for any more can do
no harm. A run removes what is its own, never what another run may be about to publish.
"""

from __future__ import annotations

import math
import os
import secrets
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from glob import escape, glob
from typing import Any
from urllib.parse import quote, unquote

import pyarrow as pa

from pillarbox.log import RealDisk, StagedSegment
from pillarbox.log.adopt import check_staged
from pillarbox.log.arrow import read_segment
from pillarbox.log.catalog import Segment
from pillarbox.log.disk import make_directory
from pillarbox.spark.errors import OptionError

STAGING = "staging"
RUN = "spark.jobGroup.id"  # the local property that has the run
ABANDONED_SECONDS = 86_400  # what a run has left for so long, no driver publishes any more
INLINE_BYTES_MAX = 128 << 10
SEGMENT_BYTES_MAX = 64 << 20
FRAME_BYTES = 8 << 20


@dataclass
class Written:
    """What a task wrote to one output: files, or the records themselves."""

    files: list[str] = field(default_factory=list)
    records: list[bytes] = field(default_factory=list)
    rows: int = 0


def staging_directory(log: str, processor: str, run: str) -> str:
    return f"{log}/{STAGING}/{quote(processor, safe='')},{quote(run, safe='')}"


def collect_garbage(log: str, processor: str, run: str | None) -> None:
    """Remove what a run staged for a processor, and what runs that are long gone have left.

    Without a run, whatever was staged for the processor.
    """
    name = quote(processor, safe="")
    long_ago = time.time() - ABANDONED_SECONDS
    own = None if run is None else staging_directory(log, processor, run)
    for path in (*glob(f"{escape(log)}/{STAGING}/{escape(name)},*"), f"{log}/{STAGING}/{name}"):
        if run is None or path == own or _changed_at(path) < long_ago:
            shutil.rmtree(path, ignore_errors=True)


def staged_runs(log: str, processor: str) -> set[str]:
    """The runs of a processor that have left something."""
    found = glob(f"{escape(log)}/{STAGING}/{escape(quote(processor, safe=''))},*")
    return {unquote(path.rpartition(",")[2]) for path in found}


def _changed_at(path: str) -> float:
    try:
        return os.stat(path).st_mtime
    except FileNotFoundError:  # another was quicker
        return math.inf


class Stager:
    """Takes the records of one task for one output."""

    def __init__(self, log: str, processor: str, run: str, attempt: str) -> None:
        self._directory = staging_directory(log, processor, run)
        self._name = f"{attempt}-{secrets.token_hex(4)}"
        self._waiting: list[Any] = []
        self._waiting_bytes = 0
        self._segment: StagedSegment | None = None
        self.written = Written()

    def add(self, records: Any) -> None:
        """Take an Arrow binary array."""
        if records.null_count:
            raise OptionError("a row without a body can't be written; filter such rows out first")
        self._waiting.append(records)
        self._waiting_bytes += records.nbytes
        self.written.rows += len(records)
        if self._waiting_bytes > (FRAME_BYTES if self._segment else INLINE_BYTES_MAX):
            self._spill()

    def finish(self) -> Written:
        """Everything is on disk, or in the answer."""
        if self._segment is None:
            self.written.records = [each for part in self._waiting for each in part.to_pylist()]
        else:
            self._spill()
            self._seal()
        return self.written

    def _spill(self) -> None:
        for records in self._waiting:
            for part in _parts(records):
                if self._segment is not None and self._segment.size_bytes > SEGMENT_BYTES_MAX:
                    self._seal()
                if self._segment is None:
                    self._segment = self._begin()
                self._segment.append_array(part)
        self._waiting, self._waiting_bytes = [], 0

    def _begin(self) -> StagedSegment:
        make_directory(RealDisk(), self._directory)
        number = len(self.written.files)
        return StagedSegment(f"{self._directory}/{self._name}-{number}.staged")

    def _seal(self) -> None:
        assert self._segment is not None
        if self._segment.count:
            self.written.files.append(self._segment.close())
        self._segment = None


def _parts(records: Any) -> list[Any]:
    """An array in slices that fit into a frame comfortably."""
    if records.nbytes <= 2 * FRAME_BYTES or len(records) <= 1:
        return [records]
    rows = max(1, len(records) * FRAME_BYTES // records.nbytes)
    return [records.slice(at, rows) for at in range(0, len(records), rows)]


def stage_records(log: str, processor: str, run: str, records: list[bytes]) -> list[str]:
    """Records that came with a message, in a file after all."""
    stager = Stager(log, processor, run, "driver")
    stager.add(pa.array(records, pa.binary()))
    stager._spill()
    return stager.finish().files


def staged_records(path: str) -> Iterator[bytes]:
    """The records of a staged file, for those who do not adopt it."""
    disk = RealDisk()
    header, footer, _ = check_staged(disk, path, verify=False)
    directory, name = os.path.split(path)
    segment = Segment(name, 0, footer.end_index, header, footer.index)
    for batch in read_segment(disk, directory, segment, 0, footer.end_index):
        yield from batch.column("record").to_pylist()
