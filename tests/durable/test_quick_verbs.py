"""The quick verbs for one message do what the general ones do, down to the bytes in the log."""

from __future__ import annotations

import os
import random
import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pillarbox import (
    DeadLetterPolicy,
    DurableMailbox,
    MailboxClosedError,
    MailboxStorageError,
)
from pillarbox.log import Durability
from pillarbox.mailbox.queue_session import QueueSession
from pillarbox.testing.clock import FakeClock
from pillarbox.testing.disk import SimDisk
from tests.durable.world import state_of

LEVELS: tuple[Durability, ...] = ("fsync", "os", "memory")


OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {},
    {"priority": 7},
    {"attributes": {"colour": "red"}},
    {"group": "g"},
    {"deduplication_id": "once"},
    {"delay_seconds": 1},
)


def _slow(box: DurableMailbox[bytes]) -> None:
    """Have it take the general way only."""
    session: Any = box._session
    session.send = partial(QueueSession.send, session)
    session.acknowledge = partial(QueueSession.acknowledge, session)
    session.acknowledge_one = lambda lease: session.acknowledge((lease,))[0]
    session.receive_one = lambda timeout: None


def _work(box: DurableMailbox[bytes], clock: FakeClock) -> list[bytes]:
    """The same calls, whatever way they take; the log's entries."""
    chance, held = random.Random(7), []
    for number in range(600):
        what = chance.random()
        if what < 0.5:
            box.send(b"%d" % number, **chance.choice(OPTIONS))
        elif what < 0.75:
            held += box.receive(visibility_timeout=chance.choice((1, 30)))
        elif what < 0.95 and held:
            held.pop(chance.randrange(len(held))).acknowledge()
        else:
            clock.advance(chance.choice((0.1, 2)))
    box._store.log.flush()
    return [record for frame in box._store.log.frames(1) for record in frame.records]


@pytest.mark.parametrize(
    "options",
    [{}, {"redelivery": "original"}, {"fair": True}, {"dead_letters": DeadLetterPolicy(2)}],
)
@pytest.mark.parametrize("level", LEVELS)
def test_R31_the_quick_verbs_write_and_do_what_the_general_ones_do(
    level: Durability, options: Any
) -> None:
    found = []
    for quickly in (True, False):
        clock = FakeClock()
        box: DurableMailbox[bytes] = DurableMailbox(
            "orders", bytes, path="data", disk=SimDisk(), clock=clock, durability=level, **options
        )
        if not quickly:
            _slow(box)
        found.append((_work(box, clock), state_of(box._store)["queues"]))
        box.close()
    assert found[0] == found[1]


def test_R31_a_mailbox_whose_queue_was_deleted_refuses_to_send(tmp_path: Path) -> None:
    with DurableMailbox("orders", str, path=tmp_path) as box:
        box.send("before")
        box._store.drop("orders")
        with pytest.raises(MailboxClosedError, match="was deleted"):
            box.send("after")
    with DurableMailbox("orders", str, path=tmp_path) as box:
        assert box.approximate_count() == 0


def test_R58_a_failed_sync_of_a_lone_sender_leaves_nobody_waiting() -> None:
    disk = SimDisk()
    box = DurableMailbox("orders", str, path="data", disk=disk)
    box.send("safe")
    in_sync, go_on = threading.Event(), threading.Event()

    def before(operation: str, _path: str) -> None:
        if operation == "fdatasync":
            in_sync.set()
            go_on.wait(30)
            raise OSError(5, "input/output error")

    disk.before = before
    errors: list[Exception] = []

    def send(body: str) -> None:
        try:
            box.send(body)
        except MailboxStorageError as error:
            errors.append(error)

    threads = [threading.Thread(target=send, args=(str(number),)) for number in range(10)]
    threads[0].start()
    assert in_sync.wait(30)
    for thread in threads[1:]:
        thread.start()
    go_on.set()
    for thread in threads:
        thread.join()
    assert len(errors) == 10
    with pytest.raises(MailboxStorageError):
        box.send("after")
    disk.before = None
    box.close()


def test_R31_a_forked_child_can_neither_use_nor_close_the_store_of_its_parent(
    tmp_path: Path,
) -> None:
    box = DurableMailbox("orders", str, path=tmp_path)
    box.send("before")
    child = os.fork()
    if child == 0:
        status = 1
        try:
            box.send("from the child")
        except MailboxClosedError:
            box.close()
            status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    box.send("after")
    box.close()
    with DurableMailbox("orders", str, path=tmp_path) as again:
        bodies = [message.body for message in again.receive(max_messages=10)]
        assert bodies == ["before", "after"]
