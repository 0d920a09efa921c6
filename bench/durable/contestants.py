"""Everyone in the races: Pillarbox, its peers, and the bare disk, each with the same two verbs.

A peer is driven through its own public calls. `synced` asks it to have each message on disk
before a verb returns; else it may leave that to the operating system. SQLite syncs each
commit at `synchronous=FULL`, and never at OFF.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import diskcache
import litequeue
import persistqueue
from huey.storage import SqliteStorage

from pillarbox import DurableMailbox
from pillarbox.core import journal
from pillarbox.log.disk import RealDisk
from pillarbox.log.frame import frame_bytes
from pillarbox.log.segment_writer import zero_fill

BODY = b"an order for two pillar boxes, red. ".ljust(200, b".")
TEXT = BODY.decode()
RAW_FILE_BYTES = 16 << 20
TURNS_BETWEEN_CLEANING = 1_000  # where acknowledged messages stay until one asks
_TAKES_AWAY = "acknowledge, lease: what is taken is gone"

Verb = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Verbs:
    """`send` puts one message in; `cycle` does that, takes one, and acknowledges it if it can."""

    send: Verb
    cycle: Verb


@dataclass(frozen=True, slots=True)
class Contestant:
    name: str
    opened: Callable[[Path, bool], AbstractContextManager[Verbs]]  # in a directory; synced or not
    lacks: str = ""
    acknowledges: bool = False
    syncs: bool = True  # whether it can be asked to have each message on disk
    waits_by_sleeping: bool = False  # in a crowd: so slow that a tenth of the work tells it


@contextmanager
def _pillarbox(path: Path, synced: bool) -> Iterator[Verbs]:
    level = "fsync" if synced else "os"
    with DurableMailbox("bench", bytes, path=path / "store", durability=level) as box:
        send, receive = box.send, box.receive

        def cycle() -> None:
            send(BODY)
            (message,) = receive()
            message.acknowledge()

        yield Verbs(lambda: send(BODY), cycle)


@contextmanager
def _raw(path: Path, synced: bool) -> Iterator[Verbs]:
    """The bytes that Pillarbox writes for the same verbs, into a file that has its blocks."""
    disk = RealDisk()
    handle = disk.open(str(path / "raw"), write=True, create=True)
    zero_fill(disk, handle, 0, RAW_FILE_BYTES)
    os.fsync(handle)
    head = journal.HEAD.size
    sent = bytes(frame_bytes(1, head + len(BODY)))
    settled = bytes(frame_bytes(2, 2 * head + 8))  # the receive and the acknowledge
    position = 0

    def append(data: bytes) -> None:
        nonlocal position
        if position + len(data) > RAW_FILE_BYTES:
            position = 0
        os.pwrite(handle, data, position)
        if synced:
            os.fdatasync(handle)
        position += len(data)

    def cycle() -> None:
        append(sent)
        append(settled)

    try:
        yield Verbs(lambda: append(sent), cycle)
    finally:
        os.close(handle)


@contextmanager
def _persist_queue(path: Path, synced: bool) -> Iterator[Verbs]:
    line = persistqueue.SQLiteQueue(str(path / "queue"), multithreading=True)
    _persist_pragma(line, synced)

    def cycle() -> None:
        line.put(BODY)
        assert line.get(block=False) == BODY

    with closing(line):
        yield Verbs(lambda: line.put(BODY), cycle)


@contextmanager
def _persist_ack_queue(path: Path, synced: bool) -> Iterator[Verbs]:
    line = persistqueue.SQLiteAckQueue(str(path / "ack"), multithreading=True)
    _persist_pragma(line, synced)

    turns = count(1)

    def cycle() -> None:
        line.put(BODY)
        line.ack(id=line.get(block=False, raw=True)["pqid"])
        if next(turns) % TURNS_BETWEEN_CLEANING == 0:
            line.clear_acked_data(max_delete=2 * TURNS_BETWEEN_CLEANING, keep_latest=0)

    with closing(line):
        yield Verbs(lambda: line.put(BODY), cycle)


def _persist_pragma(line: persistqueue.SQLiteQueue, synced: bool) -> None:
    for connection in (line._putter, line._getter):  # it has no option for this
        connection.execute(f"PRAGMA synchronous={'FULL' if synced else 'OFF'}")


@contextmanager
def _persist_file_queue(path: Path, synced: bool) -> Iterator[Verbs]:
    assert not synced, "it syncs once in a chunk of messages and can't be asked to do more"
    place = path / "files"
    place.mkdir()
    line = persistqueue.Queue(str(place), tempdir=str(place))

    def cycle() -> None:
        line.put(BODY)
        assert line.get(block=False) == BODY
        line.task_done()

    yield Verbs(lambda: line.put(BODY), cycle)


@contextmanager
def _litequeue(path: Path, synced: bool) -> Iterator[Verbs]:
    line = litequeue.LiteQueue(str(path / "lite.db"))
    line.conn.execute(f"PRAGMA synchronous={'FULL' if synced else 'OFF'}")
    lock = threading.Lock()  # its transactions are of a connection, which the threads share

    turns = count(1)

    def send() -> None:
        with lock:
            line.put(TEXT)

    def cycle() -> None:
        with lock:
            line.put(TEXT)
        with lock:
            message = line.pop()
        with lock:
            line.done(message.message_id)
        if next(turns) % TURNS_BETWEEN_CLEANING == 0:
            with lock:
                line.prune()

    with closing(line.conn):
        yield Verbs(send, cycle)


@contextmanager
def _huey(path: Path, synced: bool) -> Iterator[Verbs]:
    storage = SqliteStorage("bench", str(path / "huey.db"), fsync=synced)

    def cycle() -> None:
        storage.enqueue(BODY)
        assert storage.dequeue()

    with closing(storage):
        yield Verbs(lambda: storage.enqueue(BODY), cycle)


@contextmanager
def _diskcache(path: Path, synced: bool) -> Iterator[Verbs]:
    level = 2 if synced else 0
    options = {"eviction_policy": "none", "sqlite_synchronous": level}
    with diskcache.Cache(str(path / "cache"), **options) as cache:

        def cycle() -> None:
            cache.push(BODY)
            cache.pull()

        yield Verbs(lambda: cache.push(BODY), cycle)


PILLARBOX = Contestant("Pillarbox", _pillarbox, acknowledges=True)
RAW = Contestant("the bare disk", _raw, "everything but the bytes")
SQLITE = (
    Contestant("persist-queue SQLiteQueue", _persist_queue, _TAKES_AWAY),
    Contestant(
        "persist-queue SQLiteAckQueue",
        _persist_ack_queue,
        "time limit of a lease, delivery count",
        acknowledges=True,
    ),
    Contestant("litequeue", _litequeue, "time limit of a lease, delivery count", acknowledges=True),
    Contestant("huey SqliteStorage", _huey, _TAKES_AWAY),
    Contestant("diskcache push/pull", _diskcache, _TAKES_AWAY, waits_by_sleeping=True),
)
FILES = Contestant(
    "persist-queue Queue (files)",
    _persist_file_queue,
    "sync of each message; acknowledge, lease",
    syncs=False,
)
