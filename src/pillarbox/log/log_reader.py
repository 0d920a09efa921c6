"""A reader of a log, in the writer's process or another; many may read while one writes.

It changes nothing but the positions of its named tailers and pins. It learns what is confirmed
from shared memory. If that is missing or invalid (the machine crashed), it counts only what the
frames themselves prove to be on disk.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from pillarbox.closing import Closing
from pillarbox.log.commits import Commit
from pillarbox.log.confirmed import ConfirmedIndex
from pillarbox.log.directory import LogDirectory
from pillarbox.log.disk import Disk
from pillarbox.log.errors import LogCorruptError, LogError, LogFormatError, LogIndexError
from pillarbox.log.readable_log import ReadableLog
from pillarbox.log.segments import Catalog, Segment, check_link, load_segment, scan
from pillarbox.mutex import Mutex


class LogReader(ReadableLog, Closing):
    """A log open for reading only. Use `Log.open(path, readonly=True)`."""

    polls = True

    def __init__(self, path: str, disk: Disk) -> None:
        super().__init__(LogDirectory(disk, path), Catalog([]))
        self._refresh_lock = Mutex()
        self._confirmed = ConfirmedIndex(self._directory)
        self._end = 0
        try:
            confirmed = self._confirmed.get()
            self._relist()
        except FileNotFoundError:
            raise LogError(
                f"there is no log in {path}; open it for writing to create one"
            ) from None
        self._end = self._proven_end(confirmed)

    @property
    def end_index(self) -> int:
        return self._end

    def refresh(self) -> None:
        confirmed = self._confirmed.get()
        if confirmed is None or confirmed <= self._end:
            return
        with self._refresh_lock:
            self._relist()
            self._end = max(self._end, confirmed)

    def _dropped(self, index: int) -> LogIndexError:
        catalog = self._catalog
        gone = catalog.of_index(index)
        with self._refresh_lock:
            self._relist()
            left = [each for each in catalog.segments if each.base_index > index]
            found = catalog.of_index(index)
            if left and gone and found and found.header == gone.header:
                catalog.replace(left)  # the writer has locked the file, and is about to rename it
        return super()._dropped(index)

    def commits(self) -> Iterator[Commit]:
        with self._refresh_lock:
            self._relist()
        for segment in self._catalog.segments:
            if not segment.sealed:
                with suppress(FileNotFoundError):  # dropped by retention
                    segment.commit_offset = self._scan(segment).commit_offset
        return super().commits()

    def close(self) -> None:
        """Close the files; the log and its writer are not affected."""
        self._reader.close()
        self._confirmed.close()

    def _proven_end(self, confirmed: int | None) -> int:
        """Return the end of the confirmed records, as far as the segments have valid frames.

        A writer begins a segment before it has written the last records of the one before.
        """
        end, complete, proven = 0, True, confirmed or 0
        for segment in self._catalog.segments:
            found = segment if segment.sealed else self._scan(segment)
            proven = max(proven, found.end_index if found.sealed else found.synced_index)
            if complete or segment.base_index == end:
                end, complete = found.end_index, found.sealed
        return min(proven, end)

    def _scan(self, segment: Segment) -> Segment:
        return scan(self._directory.map(segment.name), segment.name, segment.header)

    def _relist(self) -> None:
        """Update the catalog for new, sealed and dropped segments."""
        try:
            self._list_again({segment.name: segment for segment in self._catalog.segments})
        except LogCorruptError:
            # Our state may be out of date: a new writer may have truncated the log.
            for segment in self._catalog.segments:
                self._reader.forget(segment)
            self._list_again({})

    def _list_again(self, known: dict[str, Segment]) -> None:
        names = self._directory.segment_names()
        segments: list[Segment] = []
        gone = dict(known)
        for name in names:
            segment = before = gone.pop(name, None)
            # The last one may have been sealed, or reopened, since.
            if segment is None or name == names[-1] or not segment.sealed:
                segment = self._load(name, before)
            if segment is None:
                continue
            if before is None:
                check_link(self._directory, segments, segment)
            segments.append(segment)
        self._catalog.replace(segments)
        for segment in gone.values():
            self._reader.forget(segment)

    def _load(self, name: str, before: Segment | None) -> Segment | None:
        try:
            segment = load_segment(self._directory, name)
        except FileNotFoundError:
            return None
        if segment is None:
            if name not in self._directory.names():
                return None  # recycled meanwhile
            path = self._directory.path_of(name)
            raise LogFormatError(f"{path} is not a log segment, or is damaged")
        if segment.sealed or before is None or before.header.epoch != segment.header.epoch:
            return segment
        before.sealed = False  # keep the index that was built
        return before
