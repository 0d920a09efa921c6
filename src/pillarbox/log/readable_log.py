"""What reading a log needs, shared by its writer (`Log`) and by `LogReader`.

Readers see confirmed records only, from `first_index` up to `end_index`, and never take the
writer's lock. A waiting reader sleeps until the writer notifies it; only a reader in another
process polls, and what it polls is shared memory.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from pillarbox import notebook
from pillarbox.log.commits import Commit, read_commit
from pillarbox.log.confirmed import Watchers
from pillarbox.log.directory import LogDirectory
from pillarbox.log.errors import LogIndexError
from pillarbox.log.frame import LOST
from pillarbox.log.frame_reader import Block, Frame, FrameReader
from pillarbox.log.layout import BLOCK_BYTES, FORMAT
from pillarbox.log.positions import PINS, TAILERS, Positions
from pillarbox.log.segments import Catalog, identity_of
from pillarbox.log.tailer import Tailer

if TYPE_CHECKING:
    import pyarrow as pa


class ReadableLog(ABC):
    """A log that can be read by index, by frame, with tailers and as Arrow batches."""

    #: Whether readers must poll, because the writer is in another process.
    polls: bool = False
    _repr_html_ = notebook.of_log
    _new_id = b""

    def __init__(self, directory: LogDirectory, catalog: Catalog) -> None:
        self.path = directory.path
        self._directory = directory
        self._catalog = catalog
        self._reader = FrameReader(directory, indexing=self.polls)
        self._tailer_positions = Positions(directory, TAILERS)
        self._pins = Positions(directory, PINS)
        self.watchers = Watchers()

    @property
    @abstractmethod
    def end_index(self) -> int:
        """One past the last confirmed record."""

    @property
    def log_id(self) -> bytes:
        """A unique id; empty in a reader of a log without segments."""
        return identity_of([each.header for each in self._catalog.segments]) or self._new_id

    @property
    def format(self) -> int:
        """The format of the newest segment, or of the next one."""
        last = self._catalog.last
        return FORMAT if last is None else last.header.format

    def refresh(self) -> None:  # noqa: B027 - nothing to do where the writer notifies
        """Check whether the log has grown, if the writer is in another process."""

    @property
    def first_index(self) -> int:
        """The index of the oldest record."""
        segments = self._catalog.segments
        return segments[0].base_index if segments else self.end_index

    def segment_base(self, index: int) -> int:
        """Return the first index of the segment with `index`; retention drops whole segments."""
        segment = self._catalog.of_index(index)
        return segment.base_index if segment is not None else self.first_index

    def get(self, index: int, *, wait: bool = True) -> bytes:
        """Return the record at `index`. Without `wait`, BlockingIOError if it is not in memory."""
        end = self.end_index
        segment = self._catalog.of_index(index)
        if segment is None or not self.first_index <= index < end:
            raise LogIndexError(self.path, index, self.first_index, end)
        try:
            return self._reader.record(segment, index, wait=wait)
        except FileNotFoundError:
            raise self._dropped(index) from None

    def frames(self, start: int | None = None, end: int | None = None) -> Iterator[Frame]:
        """Yield the confirmed records from `start` up to `end`, by frame."""
        index = self.first_index if start is None else start
        stop = self.end_index if end is None else min(end, self.end_index)
        for block in self.blocks(index, stop):
            for header in block.frames:
                if header.kind == LOST:
                    continue
                frame = block.frame(header)
                if frame.end_index <= index:
                    continue
                if frame.first_index >= stop:
                    return
                yield _clip(frame, index, stop)

    def blocks(self, start: int, stop: int) -> Iterator[Block]:
        """Yield blocks of checked frames that cover `start` up to `stop`."""
        index, end = start, self.end_index
        while index < stop:
            segment = self._catalog.of_index(index)
            if segment is None or index < self.first_index or stop > end:
                raise LogIndexError(self.path, index, self.first_index, end)
            try:
                block = self._reader.block_of_index(segment, index, end)
                while block.frames:
                    yield block
                    index = block.frames[-1].end_index
                    if index >= stop or self._catalog.of_index(index) is not segment:
                        break
                    block = self._reader.block(segment, block.next_offset, end)
            except FileNotFoundError:
                raise self._dropped(index) from None

    def _dropped(self, index: int) -> LogIndexError:
        """Return the error about a record that retention has dropped."""
        return LogIndexError(self.path, index, self.first_index, self.end_index)

    def index_at_time(self, time_ns: int) -> int:
        """Return the index of the first record written at or after `time_ns`, or the end."""
        end = self.end_index
        for segment in self._catalog.segments:
            if segment.base_index >= end:
                break
            if segment.sealed and segment.max_time_ns < time_ns:
                continue
            with suppress(FileNotFoundError):  # dropped by retention
                offset = segment.index.floor_of_time(time_ns)
                while (block := self._reader.block(segment, offset, end)).frames:
                    for header in block.frames:
                        if header.time_ns >= time_ns:
                            return header.first_index
                    offset = block.next_offset
        return end

    def commits(self) -> Iterator[Commit]:
        """Yield all commits, newest first, read on demand."""
        for segment in reversed(self._catalog.segments):
            offset = segment.commit_offset
            while offset >= BLOCK_BYTES:
                try:
                    commit = read_commit(self._directory, segment, offset)
                except FileNotFoundError:  # dropped by retention, like all before it
                    return
                yield commit
                offset = commit.previous_offset

    def read_arrow(
        self, start: int | None = None, end: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Return record batches (index, time, record) mapped from the segments without a copy.

        Needs `pip install 'pillarbox[arrow]'`.
        """
        from pillarbox.log.arrow import read_batches  # noqa: PLC0415 - behind an extra

        first = self.first_index if start is None else start
        stop = self.end_index if end is None else min(end, self.end_index)
        return read_batches(self._directory, self._catalog, first, stop)

    def tailer(self, name: str | None = None) -> Tailer:
        """Return a reader with a position; a named one starts at its saved position."""
        if name is None:
            return Tailer(self)
        return Tailer(self, name=name, positions=self._tailer_positions)

    def delete_tailer(self, name: str) -> None:
        """Delete a named tailer, so that it no longer holds back retention."""
        self._tailer_positions.delete(name)

    def pin(self, name: str, index: int) -> None:
        """Hold back retention: nothing at or after `index` is dropped. Durable."""
        self._pins.save(name, index)

    def unpin(self, name: str) -> None:
        """Delete a pin, so that it no longer holds back retention."""
        self._pins.delete(name)

    def pins(self) -> dict[str, int]:
        """What holds back retention: pins and named tailers, as `pin:x` and `tailer:x`."""
        held = {f"pin:{name}": index for name, index in self._pins.all().items()}
        named = self._tailer_positions.all().items()
        return held | {f"tailer:{name}": index for name, index in named}


def _clip(frame: Frame, start: int, stop: int) -> Frame:
    if frame.first_index >= start and frame.end_index <= stop:
        return frame
    low = max(start - frame.first_index, 0)
    records = frame.records[low : stop - frame.first_index]
    return Frame(frame.first_index + low, frame.time_ns, records)
