"""The backing log of a pipeline on a remote store: a small file for each entry, in order.

An entry is created under the next number, if nobody else has done so. A run claims the pipeline
with an entry of its own; a run that finds a later claim can't write any more. So there is one
order of all that was written, and no lock that a killed process could leave behind.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import socket
import threading
import uuid
from collections.abc import Sequence

import msgspec

from pillarbox.pipeline.errors import PipelineError
from pillarbox.pipeline.maps import LastMaps, Map
from pillarbox.spark.errors import FencedError, StorageError
from pillarbox.spark.files import remote_files_at

_ENTRIES_KEPT = 100  # then the newest maps are said again, and the entries before are removed


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """What was written at once, and by which run."""

    run: str
    id: str
    maps: list[Map] = []
    #: The entry begins a run, or says anew that it goes on; nothing of an earlier one follows.
    claims: bool = False
    #: The run begins no more steps.
    ends: bool = False
    #: Nothing before this entry matters any more.
    restates: bool = False
    time: datetime.datetime


_decode = msgspec.json.Decoder(Entry).decode


class EntryLog:
    """The entries, as far as they were read. Not safe for threads."""

    def __init__(self, location: str) -> None:
        self.location = location
        self.files = remote_files_at(location)
        self.next = 0

    def catch_up(self) -> list[tuple[int, Entry]]:
        """Entries that were not read yet, of those since the newest maps were restated."""
        while True:
            try:
                return self._read()
            except FileNotFoundError:
                continue  # it was removed: the newest maps were restated meanwhile

    def _read(self) -> list[tuple[int, Entry]]:
        numbers = [int(name.partition(".")[0]) for name in self.files.names()]
        found: list[tuple[int, Entry]] = []
        for number in reversed([each for each in numbers if each >= self.next]):
            found.append((number, _decode(self.files.read(_name(number)))))
            if found[-1][1].restates:
                break
        if numbers:
            self.next = max(self.next, numbers[-1] + 1)
        return found[::-1]

    def create(self, entry: Entry) -> bool:
        """Write an entry under the next number; False if there is one."""
        if not self.files.create(_name(self.next), msgspec.json.encode(entry)):
            return False
        self.next += 1
        return True

    def remove(self, numbers: Sequence[int]) -> None:
        self.files.remove_files(map(_name, numbers))


class RemoteBackingLog(LastMaps):
    """The maps of a pipeline, and who runs it. Safe from many threads."""

    def __init__(self, location: str, run: str, *, joined: bool = False) -> None:
        super().__init__()
        self._joined = joined  # to a run that other processes write for, too
        self._log = EntryLog(location)
        self._run = run
        self._lock = threading.Lock()
        #: What may go when the newest maps are restated: all but the beginnings of runs. One
        #: that was displaced would write in the place of the claim that did it, and finds it.
        self._old: list[int] = []
        self._claimed = False
        self._fenced: str | None = None
        self._catch_up()
        self._claimed = joined

    def _catch_up(self) -> None:
        for number, entry in self._log.catch_up():
            self._take_entry(number, entry)

    def claim(self) -> None:
        """Begin to run the pipeline: runs before this one can't write any more."""
        with self._lock:
            self._claimed = False  # runs that have begun meanwhile are earlier ones
            while True:
                self._catch_up()
                number = self._write(_entry(self._run, claims=True))
                self._catch_up()
                if self._log.next == number + 1:
                    break
                # Nobody sees it there: it took the place of an entry that was removed.
            self._claimed = True

    def release(self) -> None:
        """Say that the run is about to end, unless a later one has begun or nobody can hear it."""
        with self._lock, contextlib.suppress(FencedError, StorageError, OSError):
            self._write(_entry(self._run, ends=True))

    def write(self, *maps: Map) -> None:
        """Write maps, all or none; they are durable when this returns."""
        with self._lock:
            self._write(_entry(self._run, maps))
            if len(self._old) > _ENTRIES_KEPT:
                self._write(_entry(self._run, self.newest(), claims=True, restates=True))
                self._log.remove(self._old[:-1])
                self._old = self._old[-1:]

    def _write(self, entry: Entry) -> int:
        if self._fenced is not None:
            raise FencedError(self._fenced)
        if self._joined:
            self._catch_up()
        while not self._log.create(entry):
            self._catch_up()
        self._take_entry(self._log.next - 1, entry)
        return self._log.next - 1

    def _take_entry(self, number: int, entry: Entry) -> None:
        if self._claimed and entry.claims and entry.run != self._run:
            self._fenced = (
                f"a later run has taken over the pipeline in {self._log.location}"
                f" ({entry.run}, {entry.time}); this one must stop, and nothing that it does now is"
                " written"
            )
            raise FencedError(self._fenced)
        if entry.restates or not entry.claims:
            self._old.append(number)
        self.take(entry.maps)


def new_run() -> str:
    """A name for a run that no other has: machine, process, and something random."""
    return f"{socket.gethostname()} {os.getpid()} {uuid.uuid4().hex}"


def running_token(location: str) -> str | None:
    """The run that has claimed a pipeline and has not said that it ends."""
    held = None
    for _, entry in EntryLog(location).catch_up():
        if entry.claims:
            held = entry.run
        if entry.ends and entry.run == held:
            held = None
    return held


def read_entries(location: str) -> list[Map]:
    """All maps that are kept, oldest first, beside whoever writes."""
    found = list(EntryLog(location).catch_up())
    if not found:
        raise PipelineError(f"there is no pipeline in {location}; run it first")
    return [map_ for _, entry in found for map_ in entry.maps]


def _entry(run: str, maps: Sequence[Map] = (), **kind: bool) -> Entry:
    now = datetime.datetime.now(datetime.UTC)
    return Entry(run=run, id=uuid.uuid4().hex, maps=list(maps), time=now, **kind)


def _name(number: int) -> str:
    return f"{number:020}.json"
