"""Selects the entries that `log cat` prints: by range, queue and kind."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator
from typing import Any, Protocol

from pillarbox.cli.entries import describe, describe_raw
from pillarbox.cli.output import UsageError
from pillarbox.core import journal
from pillarbox.log import Frame, LogCorruptError, LogReader, RealDisk, Record
from pillarbox.mailbox.data_directory import DataDirectory
from pillarbox.mailbox.message_ids import Names
from pillarbox.mailbox.store_files import read_snapshot, refuse_foreign
from pillarbox.spark.errors import OptionError
from pillarbox.spark.options import time_ns

_AGO = re.compile(r"(\d+(?:\.\d+)?)([smhd])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_POLL_SECONDS = 1.0


def seconds_of(text: str) -> float | None:
    """Parse a duration such as 90s, 10m, 2h or 7d; return None if the text is not one."""
    match = _AGO.fullmatch(text)
    return float(match[1]) * _SECONDS[match[2]] if match else None


class Timed(Protocol):
    """A log that can be searched by time."""

    def index_at_time(self, time_ns: int) -> int: ...


def index_of(reader: Timed, option: str, text: str) -> int:
    """Return the index for a position: 1200, 2026-05-01T12:00 (UTC), or 10m (ago)."""
    if text.isdecimal():
        return int(text)
    ago = seconds_of(text)
    if ago is not None:
        return reader.index_at_time(time.time_ns() - int(ago * 1e9))
    try:
        return reader.index_at_time(time_ns(option, text))
    except OptionError:
        raise UsageError(
            f"{option} must be an index (1200), a time in UTC (2026-05-01T12:00) or a duration"
            f" before now (90s, 10m, 2h, 7d); got {text!r}."
        ) from None


def kinds_of(words: Iterable[str]) -> frozenset[int]:
    """Parse the kinds of `--kind sent,leased`; empty means all."""
    numbers = {name: number for number, name in journal.KINDS.items()}
    names = [name.strip() for word in words for name in word.split(",")]
    for name in names:
        if name not in numbers:
            raise UsageError(f"--kind must be one of {', '.join(numbers)}; got {name!r}.")
    return frozenset(numbers[name] for name in names)


class LogFilter:
    """Reads the records of one log and describes those that match."""

    def __init__(
        self, data: DataDirectory, reader: LogReader, queue: str | None, kinds: frozenset[int]
    ) -> None:
        self._reader, self._kinds = reader, kinds
        self._queue = queue
        self._names: Names | None = None
        self._data = data
        if data.store is None and (queue is not None or kinds):
            raise UsageError(f"{data.log} is a plain log, without queues and kinds.")

    def read(self, start: int, stop: int | None, *, follow: bool) -> Iterator[dict[str, Any]]:
        """Yield the entries from `start` up to `stop`; with `follow`, wait for new entries."""
        start = max(start, self._reader.first_index)
        if self._data.store is not None:
            self._names = self._names_at(start)
            if self._queue is not None and not follow:
                self._must_exist(self._queue)
        tailer = self._reader.tailer().to_index(start)
        while stop is None or tailer.index < stop:
            batch = tailer.wait(timeout=_POLL_SECONDS) if follow else tailer.read()
            if not batch and not follow:
                return
            for record in batch:
                if stop is not None and record.index >= stop:
                    return
                entry = self._describe(record)
                if entry is not None:
                    yield entry

    def _describe(self, record: Record) -> dict[str, Any] | None:
        if self._names is None:
            return describe_raw(record.index, record.time_ns, record.data)
        entry = journal.decode(record.data)
        self._names.learn(entry)
        if self._kinds and entry.kind not in self._kinds:
            return None
        fields = describe(record.index, record.time_ns, entry, self._names)
        if self._queue not in (None, fields.get("queue"), fields.get("target")):
            return None
        return fields

    def _names_at(self, start: int) -> Names:
        """Return the names of the queues declared before `start`."""
        assert self._data.store is not None
        state = read_snapshot(RealDisk(), self._data.store)
        refuse_foreign(state, self._data.store, self._reader)
        names = Names.of(state)
        first = max(state.index if state is not None else 0, self._reader.first_index)
        try:
            if first < start:
                names.learn_from(_records(self._reader.frames(first, start)))
            elif state is None:
                names.learn_from(_records(self._reader.frames(start, start + 1)))
        except LogCorruptError:
            pass  # show numbers instead of names; reading the entries will report the damage
        return names

    def _must_exist(self, queue: str) -> None:
        assert self._names is not None
        known = Names(queues=dict(self._names.queues))
        if queue not in known.queues.values():
            try:
                known.learn_from(_records(self._reader.frames(self._reader.first_index)))
            except LogCorruptError:
                return
        if queue not in known.queues.values():
            names = ", ".join(sorted(known.queues.values())) or "none"
            raise UsageError(f"there is no queue {queue!r} in {self._data.name}; it has {names}.")


def _records(frames: Iterable[Frame]) -> Iterator[bytes]:
    return (data for frame in frames for data in frame.records)
