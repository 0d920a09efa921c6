"""What the owner of a log may know and decide about the room on its disk."""

from __future__ import annotations

from pillarbox.log.writer import Writer


class Headroom:
    """The room of one log; safe from any thread."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    @property
    def full(self) -> bool:
        """Whether the disk had no room when it was last needed: only urgent records go in."""
        return self._writer.full

    @property
    def segment_bytes(self) -> int:
        """How large a segment is that begins now: on a small disk they are smaller."""
        return self._writer.segment_bytes_now()

    def hold_back(self, size_bytes: int) -> None:
        """Keep so much room on disk for urgent records; while it can't be had, the log is full."""
        with self._writer.lock:
            self._writer.hold_back(size_bytes)

    def look(self) -> bool:
        """See whether a full disk has room again for a record like the last one refused."""
        with self._writer.lock:
            return self._writer.look_for_room()

    def give_up(self, size_bytes: int, leave: int) -> bool:
        """Give so much of what is held back to the disk, if `leave` bytes are left of it."""
        with self._writer.lock:
            return self._writer.reserve.give_up(size_bytes, leave)
