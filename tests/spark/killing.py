"""The data source under test, with a real SIGKILL of its own process at a chosen moment.

A moment is a window of the algorithm. Killing needs a marker file, which is removed first: so
each kill happens once, and the replay after it gets through. What dies is the Python worker
(of a task, or the one on the driver that commits), its executor, or the whole driver.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pillarbox.log.frame import COMMIT, COMMITTING, FrameHeader
from pillarbox.log.segment_writer import SegmentWriter
from pillarbox.log.writer import Writer
from pillarbox.spark import commits as committing
from pillarbox.spark import sink
from pillarbox.spark.options import ReadOptions
from pillarbox.spark.readers import StreamReader
from pillarbox.spark.sink import LogStreamWriter
from pillarbox.spark.source import PillarboxSource

#: Window -> whether the step is in the output after a kill there.
WINDOWS = {
    "planning": False,
    "before the task": False,
    "in the task": False,
    "after the task": False,
    "before the commit": False,
    "after the offsets are durable": False,
    "before the commit frame": False,
    "torn commit frame": False,
    "after the commit frame": True,
    "before the pin": True,
    "after the commit": True,
}


class Trap:
    """Kills in one window, from batch 1 on, once."""

    def __init__(self, options: Any) -> None:
        self.window = options.get("killIn")
        self.marker = options.get("killMarker")
        self.victim = options.get("killVictim", "worker")

    def spring(self, window: str) -> None:
        if self.window != window or not self.marker:
            return
        try:
            os.unlink(self.marker)
        except FileNotFoundError:
            return
        if self.victim == "driver":
            os.killpg(int(os.environ["DRIVER_GROUP"]), signal.SIGKILL)
        if self.victim == "executor":
            daemon = os.getppid()
            os.kill(int(Path(f"/proc/{daemon}/stat").read_text().rsplit(")", 1)[1].split()[1]), 9)
        os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(60)


class KillingReader(StreamReader):
    def __init__(self, options: ReadOptions, schema: Any, trap: Trap) -> None:
        super().__init__(options, schema)
        self._trap = trap

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Any:
        if start["index"] > 0:
            self._trap.spring("planning")
        return super().partitions(start, end)


class KillingWriter(LogStreamWriter):
    def __init__(self, options: Any, columns: Any) -> None:
        super().__init__(options, columns)
        self._trap = Trap(options)

    def write(self, iterator: Iterator[Any]) -> Any:
        later = (Path(self.checkpoint) / "offsets" / "1").exists()
        if later:
            self._trap.spring("before the task")
        message = super().write(self._watched(iterator) if later else iterator)
        if later:
            self._trap.spring("after the task")
        return message

    def _watched(self, iterator: Iterator[Any]) -> Iterator[Any]:
        for batch in iterator:
            yield batch
            self._trap.spring("in the task")

    def commit(self, messages: Any, batchId: int) -> None:
        if batchId == 0:
            super().commit(messages, batchId)
            return
        self._trap.spring("before the commit")
        before = _armed(self._trap)
        try:
            super().commit(messages, batchId)
        finally:
            _disarmed(before)
        self._trap.spring("after the commit")


class KillingSource(PillarboxSource):
    @classmethod
    def name(cls) -> str:
        return "killing"

    def streamReader(self, schema: Any) -> StreamReader:
        return KillingReader(self._read_options(), schema, Trap(self.options))

    def streamWriter(self, schema: Any, overwrite: bool) -> LogStreamWriter:
        return KillingWriter(self.options, schema.fieldNames())


def _armed(trap: Trap) -> list[tuple[Any, str, Any]]:
    """Set the traps inside the commit; workers live on, so they are taken away afterwards."""
    before: list[tuple[Any, str, Any]] = []

    def patch(owner: Any, name: str, make: Callable[[Any], Any]) -> None:
        original = getattr(owner, name)
        before.append((owner, name, original))
        setattr(owner, name, make(original))

    def after(window: str) -> Callable[[Any], Any]:
        def make(original: Any) -> Any:
            def call(*args: Any, **options: Any) -> Any:
                result = original(*args, **options)
                trap.spring(window)
                return result

            return call

        return make

    def ahead(window: str) -> Callable[[Any], Any]:
        def make(original: Any) -> Any:
            def call(*args: Any, **options: Any) -> Any:
                trap.spring(window)
                return original(*args, **options)

            return call

        return make

    patch(sink, "make_durable", after("after the offsets are durable"))
    patch(Writer, "append_committed", ahead("before the commit frame"))
    patch(SegmentWriter, "write_frame", lambda original: _tearing(trap, original))
    patch(committing, "_pin_newest", ahead("before the pin"))
    return before


def _tearing(trap: Trap, original: Any) -> Any:
    """Half of a committing frame reaches the file, and then the process is gone; or all of it."""

    def write_frame(self: SegmentWriter, kind: int, *details: Any) -> FrameHeader:
        commits = kind == COMMIT or (len(details) == 6 and details[-1] == COMMITTING)
        torn = commits and trap.window == "torn commit frame" and os.path.exists(trap.marker)
        frame: FrameHeader = original(self, kind, *details)
        if torn:
            os.ftruncate(self._handle, (frame.offset + frame.end_offset) // 2)
            trap.spring("torn commit frame")
        if commits:
            trap.spring("after the commit frame")
        return frame

    return write_frame


def _disarmed(before: list[tuple[Any, str, Any]]) -> None:
    for owner, name, original in before:
        setattr(owner, name, original)
