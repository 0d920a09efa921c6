"""Room for records before they are accepted: the segment that fills, and the next one.

`filling` takes new records; `active` is the one that the leader writes, the same or an older
one. Everything here is called with the writer's lock held, and raises OSError with nothing
changed but spare files when the disk is full.
"""

from __future__ import annotations

import time

from pillarbox.log.catalog import Catalog, Segment
from pillarbox.log.disk import Disk, sync
from pillarbox.log.layout import SegmentHeader, footer_bytes_max, index_stride
from pillarbox.log.recovery import Recovery
from pillarbox.log.segment import (
    SegmentWriter,
    capacity_for,
    create_segment,
    new_epoch,
    urgent_bytes,
)
from pillarbox.log.space import SpareFiles


class Room:
    """The segment files of a log that is being written."""

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
        self._filling: SegmentWriter | None = None
        self._active: SegmentWriter | None = None

    def _room_for(self, cost: int) -> SegmentWriter:
        """A segment with reserved room for `cost`, found or made."""
        segment = self._filling
        if segment is None:
            segment = self._filling = self._resume_last(cost)
        if segment is not None and (segment.fits(cost) or segment.grow(cost)):
            self._prepare_ahead(segment)
            return segment
        return self._next_segment(cost)

    def _prepare_ahead(self, segment: SegmentWriter) -> None:
        if segment.planned > segment.capacity // 2:
            self.spares.prepare()

    def _next_segment(self, cost: int) -> SegmentWriter:
        capacity = capacity_for(self._segment_bytes, cost)
        before = self._catalog.segments
        header = SegmentHeader(
            self._log_id,
            new_epoch(),
            self.next_index,
            self.synced_index,
            time.time_ns(),
            previous_epoch=before[-1].header.epoch if before else 0,
        )
        spare = self.spares.take() if capacity == self._segment_bytes else None
        try:
            writer = create_segment(self.disk, self.directory, spare, header, capacity)
        except OSError:
            self.spares.give_back(spare)
            raise
        self._filling = writer
        if spare is not None:
            self.spares.prepare()
        base = header.base_index
        self._catalog.add(Segment(writer.name, base, base, header, writer.index))
        if not writer.fits(cost):
            writer.grow(cost)
        return writer

    def _resume_last(self, cost: int) -> SegmentWriter | None:
        """Go on in the last segment of an earlier session, if there is room in it."""
        found, last = self._tail, self._catalog.segments[-1] if self._catalog.segments else None
        if found is None or last is None or last.staged:
            return None
        end = found.end_offset
        room = urgent_bytes(2 * end) + footer_bytes_max(2 * end, index_stride(2 * end))
        if last.sealed and end + room + cost > self._segment_bytes:
            return None
        handle = self.disk.open(f"{self.directory}/{last.name}", write=True)
        try:
            self.disk.truncate(handle, end)
            sync(self.disk, handle)
            capacity = max(self._segment_bytes, end + room)
            writer = SegmentWriter(self.disk, handle, last.header, capacity, end)
            writer.resume(found)
            writer.grow(0)
        except OSError:
            self.disk.close(handle)
            raise
        last.sealed, last.index = False, writer.index
        self._active, self._tail = writer, None
        return writer

    @property
    def live_bytes(self) -> int:
        """What is written to the segment that is not sealed yet."""
        return self._filling.position if self._filling is not None else 0

    @property
    def reserved_bytes(self) -> int:
        """What that segment takes on disk: the room for what is to come is reserved."""
        return self._filling.reserved if self._filling is not None else 0

    def _listed(self, writer: SegmentWriter) -> Segment:
        return next(each for each in self._catalog.segments if each.name == writer.name)
