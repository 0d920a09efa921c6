"""A reader of a log, in the writer's process or another; many may read while one writes.

It changes nothing but the positions of its named tailers and pins. It learns what is confirmed
from shared memory. If that is missing or invalid (the machine crashed), it counts only what the
frames themselves prove to be on disk.
"""

from __future__ import annotations

from pillarbox.closing import Closing
from pillarbox.log.catalog import Catalog, Segment, load_sealed, read_header
from pillarbox.log.confirmed import ConfirmedReader
from pillarbox.log.disk import Disk, opened
from pillarbox.log.errors import LogCorruptError, LogError, LogFormatError
from pillarbox.log.layout import FrameIndex, base_of_name, index_stride
from pillarbox.log.readable_log import ReadableLog
from pillarbox.log.recovery import load_image, segment_names
from pillarbox.log.scan import scan
from pillarbox.log.segment_links import why_not_here
from pillarbox.mutex import Mutex


class LogReader(ReadableLog, Closing):
    """A log open for reading only. Use `Log.open(path, readonly=True)`."""

    polls = True

    def __init__(self, path: str, disk: Disk) -> None:
        super().__init__(disk, path, Catalog([]), indexing=True)
        self._refresh_lock = Mutex()
        self._shared_word = ConfirmedReader(disk, path)
        self._end = 0
        try:
            confirmed = self._shared_word.get()
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
        confirmed = self._shared_word.get()
        if confirmed is None or confirmed <= self._end:
            return
        with self._refresh_lock:
            self._relist()
            self._end = max(self._end, confirmed)

    def close(self) -> None:
        """Close the files; the log and its writer are not affected."""
        self._reader.close()
        self._shared_word.close()

    def _proven_end(self, confirmed: int | None) -> int:
        """The end of the confirmed records, as far as the last segment has valid frames."""
        segments = self._catalog.segments
        if not segments:
            return 0
        last = segments[-1]
        if last.sealed:
            return last.end_index
        image = load_image(self._disk, self.path, last.name)
        found = scan(image.data, image.header)
        last.commit_offset = found.commit_offset
        proven = max(last.base_index, min(found.synced_index, found.end_index))
        return proven if confirmed is None else max(proven, min(confirmed, found.end_index))

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
        names = segment_names(self._disk, self.path)
        segments: list[Segment] = []
        gone = dict(known)
        for position, name in enumerate(names):
            segment = before = gone.pop(name, None)
            last = position == len(names) - 1
            # The last one may have been sealed, or reopened, since.
            if segment is None or last or not segment.sealed:
                segment = self._load(name, segment)
            if segment is None:
                continue
            if before is None:
                self._check_link(segments, segment)
            segments.append(segment)
        self._catalog.replace(segments)
        for segment in gone.values():
            self._reader.forget(segment)

    def _check_link(self, before: list[Segment], segment: Segment) -> None:
        what = why_not_here(self._disk, self.path, before, segment.header, segment.name)
        if what is not None:
            raise LogCorruptError(f"{self.path}/{segment.name}", what, 0, segment.base_index)

    def _load(self, name: str, before: Segment | None) -> Segment | None:
        try:
            sealed = load_sealed(self._disk, self.path, name)
            if sealed is not None:
                return sealed
            with opened(self._disk, f"{self.path}/{name}") as handle:
                header = read_header(self._disk, handle, name)
                size = self._disk.size(handle)
        except FileNotFoundError:
            return None
        if header is None:
            raise LogFormatError(f"{self.path}/{name} is not a log segment, or is damaged")
        if before is not None and before.header.epoch == header.epoch:
            before.sealed = False
            return before
        base = base_of_name(name)
        return Segment(name, base, base, header, FrameIndex(index_stride(size)))
