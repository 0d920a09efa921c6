"""The backing log of a pipeline on a remote store: one small, numbered file per entry.

An entry is created under the next number, with a conditional write that fails if the number is
taken. A run claims the pipeline with an entry; a run that finds a later claim stops writing. All
writes are therefore totally ordered, and a killed process leaves no lock behind.
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

_ENTRIES_KEPT = 100  # after that, rewrite the newest maps and remove the entries before them


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """The maps that one run wrote in one atomic write."""

    run: str
    id: str
    maps: list[Map] = []
    #: The entry starts a run or renews its claim. Entries of earlier runs can't follow it.
    claims: bool = False
    #: The run starts no more steps.
    ends: bool = False
    #: The entry repeats the newest maps, so readers can ignore all entries before it.
    restates: bool = False
    time: datetime.datetime


_decode = msgspec.json.Decoder(Entry).decode


class EntryLog:
    """Reads and creates entries, from the last position on. Not thread-safe."""

    def __init__(self, location: str) -> None:
        self.location = location
        self.files = remote_files_at(location)
        self.next = 0

    def catch_up(self) -> list[tuple[int, Entry]]:
        """Return the entries not read yet, from the last restatement of the maps on."""
        while True:
            try:
                return self._read()
            except FileNotFoundError:
                continue  # removed meanwhile, after another process restated the maps

    def _read(self) -> list[tuple[int, Entry]]:
        numbers = [int(name.partition(".")[0]) for name in self.files.names()]
        newest_first: list[tuple[int, Entry]] = []
        for number in reversed([each for each in numbers if each >= self.next]):
            newest_first.append((number, _decode(self.files.read(_name(number)))))
            if newest_first[-1][1].restates:
                break
        if numbers:
            self.next = max(self.next, numbers[-1] + 1)
        return newest_first[::-1]

    def create(self, entry: Entry) -> bool:
        """Create an entry under the next number; return False if the number is taken."""
        if not self.files.create(_name(self.next), msgspec.json.encode(entry)):
            return False
        self.next += 1
        return True

    def remove(self, numbers: Sequence[int]) -> None:
        self.files.remove_files(map(_name, numbers))


class RemoteBackingLog(LastMaps):
    """The maps of a pipeline and the claim of its current run. Thread-safe."""

    def __init__(self, location: str, run: str, *, joined: bool = False) -> None:
        super().__init__()
        self._joined = joined  # other processes also write for this run
        self._log = EntryLog(location)
        self._run = run
        self._lock = threading.Lock()
        #: Entries to remove at the next restatement: all but the claims that start a run. A
        #: displaced run tries to write under the number of the claim that displaced it, so
        #: that claim must stay for the write to fail.
        self._old: list[int] = []
        self._claimed = False
        self._fenced: str | None = None
        self._catch_up()
        self._claimed = joined

    def _catch_up(self) -> None:
        for number, entry in self._log.catch_up():
            self._take_entry(number, entry)

    def claim(self) -> None:
        """Claim the pipeline: earlier runs can no longer write."""
        with self._lock:
            self._claimed = False  # runs that started meanwhile count as earlier ones
            while True:
                self._catch_up()
                number = self._write(_entry(self._run, claims=True))
                self._catch_up()
                if self._log.next == number + 1:
                    break
                # Readers would skip it: it reused the number of a removed entry.
            self._claimed = True

    def release(self) -> None:
        """Record that the run is ending, unless a later run has claimed or the store fails."""
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
                f" ({entry.run}, {entry.time}); this run must stop and can write nothing more"
            )
            raise FencedError(self._fenced)
        if entry.restates or not entry.claims:
            self._old.append(number)
        self.take(entry.maps)


def new_run() -> str:
    """Return a unique name for a run: host, process id and a random part."""
    return f"{socket.gethostname()} {os.getpid()} {uuid.uuid4().hex}"


def running_token(location: str) -> str | None:
    """Return the run that has claimed a pipeline and has not ended, or None."""
    owner = None
    for _, entry in EntryLog(location).catch_up():
        if entry.claims:
            owner = entry.run
        if entry.ends and entry.run == owner:
            owner = None
    return owner


def read_entries(location: str) -> list[Map]:
    """Return all retained maps, oldest first. Safe while a run is writing."""
    entries = EntryLog(location).catch_up()
    if not entries:
        raise PipelineError(f"there is no pipeline in {location}; run it first")
    return [map_ for _, entry in entries for map_ in entry.maps]


def _entry(run: str, maps: Sequence[Map] = (), **kind: bool) -> Entry:
    now = datetime.datetime.now(datetime.UTC)
    return Entry(run=run, id=uuid.uuid4().hex, maps=list(maps), time=now, **kind)


def _name(number: int) -> str:
    return f"{number:020}.json"
