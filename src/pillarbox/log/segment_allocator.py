"""Allocates disk space for records before they are accepted, in segments.

New records go to the segment `_filling`; the leader writes to `_active`, the same or an older
one. Call everything with the writer's lock held. On a full disk it raises OSError and changes
nothing but spare files.
"""

from __future__ import annotations

import time

from pillarbox.log.catalog import Catalog, Segment
from pillarbox.log.disk import Disk, has_no_space
from pillarbox.log.layout import BLOCK_BYTES, SegmentHeader, footer_bytes_max, index_stride
from pillarbox.log.recovery import Recovery
from pillarbox.log.reserve import Reserve
from pillarbox.log.segment import (
    SegmentWriter,
    capacity_for,
    clear_from,
    create_segment,
    new_epoch,
    urgent_bytes,
)
from pillarbox.log.spare_files import SpareFiles

_SEGMENTS_PER_DISK = 16
_SMALL_SEGMENT_BYTES = 256 << 10


class SegmentAllocator:
    """The segments of a log that is open for writing."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        catalog: Catalog,
        recovered: Recovery,
        *,
        log_id: bytes,
        segment_bytes: int,
        prepare_ahead: bool,
    ) -> None:
        self.disk, self.directory, self._catalog = disk, directory, catalog
        self._log_id = log_id
        self._segment_bytes = segment_bytes
        self._tail = recovered.tail
        self.spares = SpareFiles(disk, directory, segment_bytes, prepare_ahead=prepare_ahead)
        last = catalog.segments[-1] if catalog.segments else None
        self.next_index = self.synced_index = last.end_index if last else 0
        self.reserve = Reserve(disk, directory)
        #: Whether the disk was full when space was last needed.
        self.full = False
        self._refused_bytes = 0
        self._filling: SegmentWriter | None = None
        self._active: SegmentWriter | None = None

    def reserve_for_urgent(self, size_bytes: int) -> None:
        """Reserve this much space for urgent records; while that fails, refuse all others."""
        self.reserve.wanted = size_bytes
        self.reserve.shrink()
        if self.full:
            return
        try:
            self._fill_reserve()
        except OSError as error:
            self._is_full(error)

    def check_space(self) -> bool:
        """Whether there is space for other than urgent records, perhaps again."""
        return not self.full or self.segment_for(self._refused_bytes, urgent=False) is not None

    def segment_for(self, cost: int, *, urgent: bool, leave: int = 0) -> SegmentWriter | None:
        """A segment with space for `cost`; None if the disk is full.

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
                self._is_full(error)
        if segment is None and urgent:
            segment = self._urgent_segment(cost, leave=leave)
        return segment

    def _is_full(self, error: OSError) -> None:
        if not has_no_space(error):
            raise error
        self.full = True

    def _fill_reserve(self) -> None:
        try:
            self.reserve.fill()
        except OSError:
            if self._filling is not None:
                self._filling.refuse_plain()
            raise

    def _plain_segment(self, cost: int) -> SegmentWriter:
        """A segment with space for any record; deletes spare files if needed."""
        try:
            return self._find_plain_segment(cost)
        except OSError as error:
            if not (has_no_space(error) and self.spares.drop_all()):
                raise
        return self._find_plain_segment(cost)

    def _find_plain_segment(self, cost: int) -> SegmentWriter:
        self._fill_reserve()
        segment = self._filling
        if segment is None:
            segment = self._filling = self._resume_last(cost)
        if segment is not None and not segment.for_urgent:
            segment.accept_plain()
            if segment.fits(cost) or segment.grow(cost):
                self._prepare_ahead(segment)
                return segment
        capacity = capacity_for(self.segment_bytes_now(), cost)
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
        """A segment with space for an urgent record on a full disk."""
        if self._filling is None:
            self._filling = self._resume_last(cost)  # so that it is sealed, not to write there
        segment, reserve = self._filling, self.reserve
        left = reserve.held + (segment.urgent_end - segment.planned if segment is not None else 0)
        if leave and left - cost < leave:
            return None
        if segment is not None and segment.fits(cost, urgent=True):
            return segment
        found = reserve.find(cost + cost // 64 + 2 * BLOCK_BYTES)  # including header and footer
        if found is None:
            return None
        writer = self._begin(*found, for_urgent=True)
        reserve.forget(found[0])
        return writer

    def _prepare_ahead(self, segment: SegmentWriter) -> None:
        if (
            segment.planned > segment.capacity // 2
            and self.segment_bytes_now() == self._segment_bytes
        ):
            self.spares.prepare()

    def segment_bytes_now(self) -> int:
        """The size of a new segment; smaller on a small disk, so that it is dropped sooner."""
        room = self.disk.free_bytes(self.directory) + self.reserved_bytes
        room += sum(segment.size_bytes for segment in self._catalog.segments if segment.sealed)
        return min(self._segment_bytes, max(_SMALL_SEGMENT_BYTES, room // _SEGMENTS_PER_DISK))

    def _begin(
        self, spare: str | None, capacity: int, *, for_urgent: bool = False
    ) -> SegmentWriter:
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
        writer = create_segment(
            self.disk, self.directory, spare, header, capacity, for_urgent=for_urgent
        )
        if empty is not None:
            self._replaced(empty)
        self._filling = writer
        base = header.base_index
        self._catalog.add(Segment(writer.name, base, base, header, writer.index))
        return writer

    def _replaced(self, empty: SegmentWriter) -> None:
        """Forget an empty segment whose name, and so its file, the next segment has taken."""
        empty.close()
        self._catalog.drop_last()
        if self._active is empty:
            self._active = None

    def _resume_last(self, cost: int) -> SegmentWriter | None:
        """Continue in the last segment of an earlier session, if there is space in it."""
        found, last = self._tail, self._catalog.segments[-1] if self._catalog.segments else None
        if found is None or last is None or last.staged:
            return None
        end = found.end_offset
        room = urgent_bytes(2 * end) + footer_bytes_max(2 * end, index_stride(2 * end))
        segment_bytes = self.segment_bytes_now()
        if last.sealed and end + room + cost > segment_bytes:
            return None
        handle = self.disk.open(f"{self.directory}/{last.name}", write=True)
        try:
            size = clear_from(self.disk, handle, end, len(found.index.offsets))
            capacity = max(segment_bytes, end + room)
            writer = SegmentWriter(self.disk, handle, last.header, capacity, size)
            writer.resume(found)
        except OSError:
            self.disk.close(handle)
            raise
        last.sealed, last.index = False, writer.index
        self._active, self._tail = writer, None
        return writer

    @property
    def live_bytes(self) -> int:
        """Bytes written to the open segment."""
        return self._filling.position if self._filling is not None else 0

    @property
    def reserved_bytes(self) -> int:
        """Bytes allocated for the open segment."""
        return self._filling.reserved if self._filling is not None else 0

    def _listed(self, writer: SegmentWriter) -> Segment:
        return next(each for each in self._catalog.segments if each.name == writer.name)
