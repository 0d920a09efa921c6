"""The history of the broker's queues, read by index over the private protocol.

A key that may receive from a queue may read that queue's history; the history of all queues needs
a key with every right. Entries are read in a thread, a few megabytes at a time, and sent in the
Arrow layout that they have on disk.
"""

from __future__ import annotations

import asyncio
from array import array
from typing import Final

from pillarbox.backup.files import StoreFiles
from pillarbox.core import journal
from pillarbox.core.errors import MailboxError, MailboxStorageError
from pillarbox.log import Log, LogError, LogIndexError
from pillarbox.log.frame import encode_records
from pillarbox.mailbox.broker import wire
from pillarbox.mailbox.broker.errors import QueueNotFoundError
from pillarbox.mailbox.durable_session import DurableQueueSession
from pillarbox.mailbox.durable_store import DurableStore
from pillarbox.mailbox.store import Store

_ANSWER_BYTES: Final = 4 << 20  # how much of the log one response covers
_RECORD_BYTES: Final = 32  # overhead of an entry
_SECRET: Final = bytes((journal.IDENTITY,))  # the entry with the secret of receipt handles
_OF_NO_QUEUE: Final = bytes((journal.IDENTITY, journal.RESTATED))
_QUEUE_AT: Final = slice(4, 8)  # of an entry's head: see journal.HEAD
_COPIED_SECONDS: Final = 2.0  # compaction pauses so long after files are listed for a backup


class History:
    """The retained history of a store's queues."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def answer(self, command: wire.Command, name: str) -> wire.Result:
        if isinstance(command, wire.ListFiles | wire.ReadFile):
            return await asyncio.to_thread(self._file, command)
        assert isinstance(command, wire.Outline | wire.Recall)
        log, numbers = self._log, self._queues(name)
        number = next(iter(numbers)) if name else None
        try:
            if isinstance(command, wire.Recall):
                return await asyncio.to_thread(_recall, log, command, number)
            return await asyncio.to_thread(self._outline, command, numbers)
        except LogError as error:
            raise MailboxStorageError(f"the history can't be read: {error}") from error

    @property
    def _log(self) -> Log:
        if not isinstance(self._store, DurableStore):
            raise MailboxError(
                "this broker keeps its queues in memory, without a history: start it with "
                "--data, or consume the queue instead"
            )
        return self._store.log

    def _file(self, command: wire.ListFiles | wire.ReadFile) -> wire.Result:
        """List or read the files of the store, for a backup."""
        if not isinstance(self._store, DurableStore):
            raise MailboxError("this broker keeps its queues in memory; there are no files to copy")
        files = StoreFiles(self._store.path)
        if isinstance(command, wire.ListFiles):
            self._store.compactor.hold(_COPIED_SECONDS)
            return files.listing()
        try:
            return wire.Piece(files.read(command.name, command.offset, command.size))
        except FileNotFoundError:
            return wire.Piece(None)
        except (LogError, OSError) as error:
            raise MailboxStorageError(f"{command.name} can't be read: {error}") from error

    def _queues(self, name: str) -> dict[int, str]:
        """Return the log's numbers of the requested queues, with their names."""
        sessions = self._store.sessions
        if name and name not in sessions:
            raise QueueNotFoundError(f"the broker has no queue {name!r}, and so no history of it")
        wanted = [sessions[name]] if name else list(sessions.values())
        return {
            each.number: each.queue.name for each in wanted if isinstance(each, DurableQueueSession)
        }

    def _outline(self, command: wire.Outline, names: dict[int, str]) -> wire.Outlined:
        log = self._log
        first, end = log.first_index, log.end_index
        marks, before = [(first, 0)], 0
        for stop, size in log.sealed_segments():
            before += size
            marks.append((stop, before))
        if end > marks[-1][0]:
            marks.append((end, log.size_bytes))
        at = None if command.time_ns is None else log.index_at_time(command.time_ns)
        return wire.Outlined(first, end, marks, self._store.prefix, names, at)


def _recall(log: Log, command: wire.Recall, number: int | None) -> wire.Recalled:
    """Return entries of a queue, or of all, from an index on: those in the next few megabytes."""
    indices, times, records = array("q"), array("q"), list[bytes]()
    queue = None if number is None else number.to_bytes(4, "little")
    hidden = _SECRET if queue is None else _OF_NO_QUEUE
    kinds = bytes(kind for kind in command.kinds or journal.KINDS if kind not in hidden)
    stop = min(command.stop, log.end_index)
    end, room = command.start, _ANSWER_BYTES
    try:
        for frame in log.frames(command.start, stop):
            kept = [
                (index, entry)
                for index, entry in enumerate(frame.records, frame.first_index)
                if entry[0] in kinds and (queue is None or entry[_QUEUE_AT] == queue)
            ]
            indices.extend([index for index, _ in kept])
            times.extend([frame.time_ns] * len(kept))
            records += [entry for _, entry in kept]
            end = frame.end_index
            room -= sum(map(len, frame.records)) + _RECORD_BYTES * len(frame.records)
            if room <= 0:
                break
        else:
            end = max(end, stop)  # skip a gap that a repair left
    except LogIndexError:
        pass  # retention deleted these meanwhile; `first` shows that
    payload = encode_records(records)[0] if records else b""
    return wire.Recalled(
        log.first_index, end, len(records), indices.tobytes(), times.tobytes(), payload
    )
