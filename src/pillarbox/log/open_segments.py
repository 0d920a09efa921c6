"""The segments that are open for writing, and the disk space allocated for them.

Space is allocated before a record is accepted. New records go to the segment `_filling`; the
leader writes to `_active`, the same or an older one. On a full disk, a method raises
OSError(ENOSPC) and changes nothing but spare files. Methods with an underscore need the lock.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator

from pillarbox.log.directory import LogDirectory
from pillarbox.log.disk import has_no_space
from pillarbox.log.errors import LogError, LogPoisonedError
from pillarbox.log.layout import BLOCK_BYTES, SegmentHeader, index_stride
from pillarbox.log.segment_writer import (
    SegmentWriter,
    capacity_for,
    clear_from,
    create_segment,
    new_epoch,
    urgent_bytes,
)
from pillarbox.log.segments import Catalog, footer_bytes_max
from pillarbox.log.spare_files import Reserve, SpareFiles
from pillarbox.mutex import RLock, not_reentrant

_SEGMENTS_PER_DISK = 16
_SMALL_SEGMENT_BYTES = 256 << 10


class OpenSegments:
    """The open segments of a log, its spare files and its reserve."""

    def __init__(
        self,
        directory: LogDirectory,
        catalog: Catalog,
        log_id: bytes,
        segment_bytes: int,
        *,
        syncs: bool,
        prepare_ahead: bool,
    ) -> None:
        self.directory, self._catalog = directory, catalog
        self._log_id = log_id
        self._segment_bytes = segment_bytes
        self.syncs = syncs
        self.lock: RLock = threading.RLock()
        self.stopped: LogError | None = None
        self.poisoned: LogPoisonedError | None = None
        self.spares = SpareFiles(directory, segment_bytes, prepare_ahead=prepare_ahead)
        self._reserve = Reserve(directory)
        #: Whether the disk was full when space was last needed; urgent records still fit.
        self.full = False
        self._refused_bytes = 0
        self._filling: SegmentWriter | None = None
        self._active: SegmentWriter | None = None
        #: The last segment of an earlier session, in which this one may continue.
        self._resumable = catalog.last
        self.next_index = self.synced_index = catalog.last.end_index if catalog.last else 0

    def reserve(self, size_bytes: int) -> None:
        """Reserve space for urgent records; while that fails, the log counts as full."""
        with not_reentrant(self.lock):
            self._reserve.wanted = size_bytes
            self._reserve.shrink()
            if not self.full:
                try:
                    self._fill_reserve()
                except OSError as error:
                    self._set_full(error)

    def release(self, size_bytes: int, leave: int) -> bool:
        """Free this much of the reserve, if at least `leave` bytes of it remain."""
        with not_reentrant(self.lock):
            return self._urgent_left() - size_bytes >= leave and self._reserve.release(size_bytes)

    def _urgent_left(self) -> int:
        """Return the bytes available to urgent records."""
        segment = self._filling
        open_bytes = segment.urgent_end - segment.planned if segment is not None else 0
        return self._reserve.held + open_bytes

    def check(self) -> bool:
        """Return whether a full disk has space again for a record like the last one refused."""
        with not_reentrant(self.lock):
            return not self.full or self._segment_for(self._refused_bytes) is not None

    @property
    def segment_bytes(self) -> int:
        """The size of a new segment; smaller on a small disk, so that it is dropped sooner."""
        room = self.directory.disk.free_bytes(self.directory.path) + self.reserved_bytes
        room += sum(segment.size_bytes for segment in self._catalog.segments if segment.sealed)
        return min(self._segment_bytes, max(_SMALL_SEGMENT_BYTES, room // _SEGMENTS_PER_DISK))

    @property
    def live_bytes(self) -> int:
        """Bytes written to the open segment."""
        return self._filling.segment.end_offset if self._filling is not None else 0

    @property
    def reserved_bytes(self) -> int:
        """Bytes allocated for the open segment."""
        return self._filling.reserved if self._filling is not None else 0

    def _segment_for(
        self, cost: int, *, urgent: bool = False, leave: int = 0
    ) -> SegmentWriter | None:
        """Return a segment with space for `cost`; None if the disk is full.

        On a full disk an urgent record may use the reserve, down to `leave` bytes of it.
        """
        segment = None
        if urgent and self.full:  # use the reserve without trying to allocate, which takes time
            segment = self._urgent_segment(cost, leave=leave)
        if segment is None:
            self._refused_bytes = cost
            try:
                segment = self._plain_segment(cost)
                self.full = False
            except OSError as error:
                self._set_full(error)
        if segment is None and urgent:
            segment = self._urgent_segment(cost, leave=leave)
        return segment

    def _set_full(self, error: OSError) -> None:
        if not has_no_space(error):
            raise error
        self.full = True

    def _fill_reserve(self) -> None:
        try:
            self._reserve.fill()
        except OSError:
            if self._filling is not None:
                self._filling.refuse_plain()
            raise

    def _plain_segment(self, cost: int) -> SegmentWriter:
        """Return a segment with space for any record; deletes spare files if needed."""
        try:
            return self._find_plain_segment(cost)
        except OSError as error:
            if not (has_no_space(error) and self.spares.drop_all()):
                raise
        return self._find_plain_segment(cost)

    def _find_plain_segment(self, cost: int) -> SegmentWriter:
        self._fill_reserve()
        segment = self._filling or self._resume_last(cost)
        if segment is not None and not segment.for_urgent:
            segment.accept_plain()
            if segment.fits(cost) or segment.grow(cost):
                half_full = segment.planned > segment.capacity // 2
                if half_full and self.segment_bytes == self._segment_bytes:
                    self.spares.prepare()
                return segment
        capacity = capacity_for(self.segment_bytes, cost)
        spare = self.spares.take() if capacity == self._segment_bytes else None
        try:
            writer = self._begin(spare, capacity)
        except OSError:
            self.spares.put_back(spare)
            raise
        if spare is not None:
            self.spares.prepare()
        if not writer.fits(cost):
            writer.grow(cost)
        return writer

    def _urgent_segment(self, cost: int, *, leave: int) -> SegmentWriter | None:
        """Return a segment with space for an urgent record on a full disk."""
        segment = self._filling or self._resume_last(cost)  # so that it is sealed, at least
        if leave and self._urgent_left() - cost < leave:
            return None
        if segment is not None and segment.fits(cost, urgent=True):
            return segment
        found = self._reserve.find(cost + cost // 64 + 2 * BLOCK_BYTES)  # with header and footer
        if found is None:
            return None
        writer = self._begin(*found, for_urgent=True)
        self._reserve.forget(found[0])
        return writer

    def _begin(
        self, spare: str | None, capacity: int, *, for_urgent: bool = False
    ) -> SegmentWriter:
        """Begin a new segment."""
        before = self._catalog.segments
        empty = self._filling if self._filling is not None and self._filling.empty else None
        if empty is not None:  # the next segment has the same name
            before = before[:-1]
        header = SegmentHeader(
            self._log_id,
            new_epoch(),
            self.next_index,
            self.synced_index,
            time.time_ns(),
            previous_epoch=before[-1].header.epoch if before else 0,
        )
        writer = create_segment(self.directory, spare, header, capacity, for_urgent=for_urgent)
        if empty is not None:  # the new segment has taken its name, and so its file
            empty.close()
            self._catalog.drop(empty.segment)
            if self._active is empty:
                self._active = None
        self._filling, self._resumable = writer, None
        self._catalog.add(writer.segment)
        return writer

    def _resume_last(self, cost: int) -> SegmentWriter | None:
        """Continue in the last segment of an earlier session, if there is space in it."""
        last, disk = self._resumable, self.directory.disk
        if last is None:
            return None
        end = last.end_offset
        room = urgent_bytes(2 * end) + footer_bytes_max(2 * end, index_stride(2 * end))
        segment_bytes = self.segment_bytes
        if last.sealed and end + room + cost > segment_bytes:
            return None
        handle = self.directory.open(last.name, write=True)
        try:
            size = clear_from(disk, handle, end, len(last.index.offsets))
        except OSError:
            disk.close(handle)
            raise
        writer = SegmentWriter(disk, handle, last, max(segment_bytes, end + room), size)
        last.sealed = False
        self._filling = self._active = writer
        self._resumable = None
        return writer

    def _seal(self, writer: SegmentWriter) -> None:
        """Write the footer; at level fsync, sync it before anything follows."""
        writer.seal(self.synced_index)
        if self.syncs:
            writer.sync()
            writer.close()
        else:
            self.spares.sync_later(writer, self._synced)
        writer.segment.sealed = True

    def _synced(self, writer: SegmentWriter, error: OSError | None) -> None:
        """Handle the end of a background sync of a sealed segment, or its failure."""
        if error is not None:
            self.poison(error)
        else:
            self.synced_index = max(self.synced_index, writer.segment.end_index)

    def _sync_if_needed(self, writer: SegmentWriter) -> None:
        """Sync the segment unless that was done."""
        if not self.syncs or self.synced_index < writer.segment.end_index:
            writer.sync()
            self.synced_index = writer.segment.end_index

    def poison(self, cause: BaseException) -> LogPoisonedError:
        """Stop confirming writes; report the first cause."""
        if self.poisoned is None:
            cause_text = f"{type(cause).__name__}: {cause}"
            self.stopped = self.poisoned = LogPoisonedError(self.directory.path, cause_text)
        return self.poisoned

    @contextlib.contextmanager
    def _or_poisoned(self) -> Iterator[None]:
        """Poison the log on any error: the state of the disk is unknown then."""
        try:
            yield
        except OSError as error:
            raise self.poison(error) from error
        except BaseException as error:
            self.poison(error)
            raise

    def _close_segments(self) -> None:
        """Seal and sync the open segments; if the log is poisoned, only close the files."""
        with contextlib.suppress(OSError):  # they do no harm
            self.spares.drop_all()
        writers = list(dict.fromkeys(filter(None, (self._active, self._filling))))
        self._active = self._filling = None
        try:
            while writers and self.poisoned is None:
                writer = writers[0]
                with self._or_poisoned():
                    self._sync_if_needed(writer)
                    writer.seal(self.synced_index)
                    writer.sync()
                del writers[0]
                writer.close()
                writer.segment.sealed = True
            with contextlib.suppress(OSError):  # replace a reserve file that was used
                self._reserve.fill()
        finally:
            for writer in writers:
                with contextlib.suppress(OSError):
                    writer.close()
