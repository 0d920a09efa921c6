"""A read-only mailbox of a store on disk, whether or not another process writes to the store.

It takes no lock and writes nothing. Each call sees the queue as of that moment.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from pillarbox.cli.replica import Replica, read_replica, retry_while_compacting
from pillarbox.clock import WallClock
from pillarbox.closing import Closing
from pillarbox.core import journal
from pillarbox.core.errors import MailboxError
from pillarbox.core.queue import Queue, Record
from pillarbox.log import LogReader, RealDisk, RecordLostError
from pillarbox.mailbox.local import LocalMailbox
from pillarbox.mailbox.message import Message
from pillarbox.mailbox.protocol import State, Stats
from pillarbox.mailbox.queue_session import QueueSession
from pillarbox.mailbox.store import Store

R = TypeVar("R")


class _Desk(QueueSession):
    """A queue of a replica, whose bodies are read from the log."""

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


class ReadOnlyMailbox(Closing):
    """The part of a mailbox that `peek` and `tail` use."""

    def __init__(self, store: str, log: str, queue: str) -> None:
        self._store, self._log, self.name = store, log, queue

    def stats(self) -> Stats:
        return self._read(lambda box: box.stats())

    def peek(self, max_messages: int = 10, *, state: State = "ready") -> Sequence[Message[Any]]:
        return self._read(lambda box: box.peek(max_messages, state=state))

    def close(self) -> None:
        """Nothing is open."""

    def _read(self, verb: Callable[[LocalMailbox[bytes]], R]) -> R:
        return retry_while_compacting(lambda: self._read_once(verb))

    def _read_once(self, verb: Callable[[LocalMailbox[bytes]], R]) -> R:
        replica = read_replica(self._store, self._log, lambda done, total: None)
        queue = next((each for each in replica.queues.values() if each.name == self.name), None)
        if queue is None:
            raise MailboxError(f"the queue {self.name!r} in {self._store} no longer exists")
        store = Store(WallClock())
        store.prefix = replica.names.prefix or store.prefix
        with LogReader(self._log, RealDisk()) as log:
            return verb(LocalMailbox(_Desk(store, queue, replica, log), bytes, open_reply=_refuse))


def _refuse(name: str) -> Any:
    raise MailboxError("a message from a read-only mailbox can't be answered")
