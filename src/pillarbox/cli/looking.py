"""A mailbox of a store on disk for someone who only looks: read beside its writer, or without one.

No lock is taken and nothing is written. Each look sees the queue as of that moment.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Self, TypeVar

from pillarbox.cli.output import Advance
from pillarbox.cli.replica import TRIES, Replica, replica_of
from pillarbox.clock import WallClock
from pillarbox.core import journal
from pillarbox.core.errors import MailboxError
from pillarbox.core.queue import Queue, Record
from pillarbox.log import LogIndexError, LogReader, RealDisk, RecordLostError
from pillarbox.mailbox.desk import Desk
from pillarbox.mailbox.local import LocalMailbox
from pillarbox.mailbox.message import Message
from pillarbox.mailbox.protocol import State, Stats
from pillarbox.mailbox.store import Store

R = TypeVar("R")


class _Desk(Desk):
    """A queue as a replica has it; the bodies are in the log."""

    def __init__(self, store: Store, queue: Queue, replica: Replica, log: LogReader) -> None:
        super().__init__(store, queue)
        self._replica, self._log = replica, log

    def bodies(self, records: Sequence[Record], *, wait: bool = True) -> list[bytes | None]:
        return [self._body(record) for record in records]

    def _body(self, record: Record) -> bytes | None:
        try:
            return journal.body_of(self._log.get(self._replica.index_of(record)))
        except RecordLostError:
            return None


class StoreLook:
    """What `peek` and `tail` need of a mailbox."""

    def __init__(self, store: str, log: str, queue: str) -> None:
        self._store, self._log, self.name = store, log, queue

    def stats(self) -> Stats:
        return self._look(lambda box: box.stats())

    def peek(self, max_messages: int = 10, *, state: State = "ready") -> Sequence[Message[Any]]:
        return self._look(lambda box: box.peek(max_messages, state=state))

    def close(self) -> None:
        """Nothing is open."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _look(self, what: Callable[[LocalMailbox[bytes]], R]) -> R:
        for _ in range(TRIES - 1):
            try:
                return self._look_once(what)
            except (LogIndexError, FileNotFoundError):
                continue  # the compactor has just dropped what was to be read
        return self._look_once(what)

    def _look_once(self, what: Callable[[LocalMailbox[bytes]], R]) -> R:
        replica = replica_of(self._store, self._log, _nobody_watches)
        queue = next((each for each in replica.queues.values() if each.name == self.name), None)
        if queue is None:
            raise MailboxError(f"there is no queue {self.name!r} in {self._store} any more")
        store = Store(WallClock())
        store.prefix = replica.names.prefix or store.prefix
        with LogReader(self._log, RealDisk()) as log:
            return what(LocalMailbox(_Desk(store, queue, replica, log), bytes, open_reply=_refuse))


def _refuse(name: str) -> Any:
    raise MailboxError("a message that was only looked at can't be answered")


_nobody_watches: Advance = lambda done, total: None  # noqa: E731
