"""What the owner of a log may ask and decide about disk space."""

from __future__ import annotations

from pillarbox.log.writer import Writer
from pillarbox.mutex import not_reentrant


class DiskSpace:
    """The disk space of one log. Thread-safe."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    @property
    def full(self) -> bool:
        """Whether the disk was full when space was last needed; urgent records still fit."""
        return self._writer.full

    @property
    def segment_bytes(self) -> int:
        """The size of a new segment, which is smaller on a small disk."""
        return self._writer.segment_bytes_now()

    def reserve(self, size_bytes: int) -> None:
        """Reserve space for urgent records; while that fails, the log counts as full."""
        with not_reentrant(self._writer.lock):
            self._writer.reserve_for_urgent(size_bytes)

    def check(self) -> bool:
        """Whether a full disk has space again for a record like the last one refused."""
        with not_reentrant(self._writer.lock):
            return self._writer.check_space()

    def release(self, size_bytes: int, leave: int) -> bool:
        """Free this much of the reserve, if at least `leave` bytes of it remain."""
        with not_reentrant(self._writer.lock):
            return self._writer.reserve.release(size_bytes, leave)
