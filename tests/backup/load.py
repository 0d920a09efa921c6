"""Producers and consumers at work on a mailbox, with a record of all that was confirmed."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from pillarbox import open_mailbox
from pillarbox.mailbox.protocol import Mailbox

MESSAGES_MAX = 6_000
STATES = ("ready", "scheduled", "in_flight")


@dataclass
class Record:
    """Message ids. Sets are only added to, so that a copy is a moment's state."""

    sending: set[str] = field(default_factory=set)  # bodies that may have been sent
    sent: set[str] = field(default_factory=set)
    deleting: set[str] = field(default_factory=set)
    deleted: set[str] = field(default_factory=set)


class Load:
    """Threads that send and that receive and acknowledge, until they are told to stop."""

    def __init__(self, box: Mailbox[str]) -> None:
        self._box = box
        self.record = Record()
        self._stop = threading.Event()
        self._failures: list[BaseException] = []
        self._threads = [
            threading.Thread(target=self._run, args=(work, number))
            for number in range(2)
            for work in (self._send, self._consume)
        ]

    def _run(self, work: Callable[[int], None], number: int) -> None:
        try:
            while not self._stop.is_set():
                work(number)
        except BaseException as error:
            self._failures.append(error)
            raise

    def _send(self, number: int) -> None:
        if len(self.record.sent) - len(self.record.deleted) > MESSAGES_MAX // 2:
            self._consume(number)
            return
        bodies = [f"{number}-{len(self.record.sending)}-{n}-" + "x" * 100 for n in range(5)]
        self.record.sending.update(bodies)
        self._box.send_many(bodies)
        self.record.sent.update(bodies)

    def _consume(self, number: int) -> None:
        messages = self._box.receive(
            max_messages=5, wait_time_seconds=0.01, visibility_timeout=3_600
        )  # no lease ends while a copy is looked at, one state after the other
        keep = 1 if len(self.record.sent) % 7 == 0 else 0  # some stay in flight
        done = list(messages)[keep:]
        self.record.deleting.update(message.body for message in done)
        for message, gone in zip(done, self._box.acknowledge_many(done), strict=True):
            if gone:
                self.record.deleted.add(message.body)

    def until(self, holds: Callable[[], bool]) -> None:
        """Wait until something has come of the work."""
        while not holds():
            assert not self._failures
            threading.Event().wait(0.002)

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()
        assert self._failures == []


@contextmanager
def moments(record: Record) -> Iterator[tuple[set[str], set[str], set[str], set[str]]]:
    """What was confirmed before the block, and (when it is over) what was begun in its course."""
    sent, deleted = set(record.sent), set(record.deleted)
    sending, deleting = set[str](), set[str]()
    yield sent, deleted, sending, deleting
    deleting |= record.deleting
    sending |= record.sending


def bodies_in(store: Path) -> set[str]:
    """The bodies of all messages of a store, which is opened for it."""
    with open_mailbox(f"file:{store}/orders", str, create=False) as box:
        found = [
            message.body
            for state in STATES
            for message in box.peek(MESSAGES_MAX, state=state)  # type: ignore[arg-type]
        ]
    assert len(found) == len(set(found))
    assert len(found) < MESSAGES_MAX, "more than a peek shows"
    return set(found)  # type: ignore[arg-type]


def wrong(found: set[str], at: tuple[set[str], set[str], set[str], set[str]]) -> list[str]:
    """What a copy lacks, or should not have, if it was made within the moments `at`."""
    sent, deleted, sending, deleting = at
    problems = [f"lost: {len(lost)}"] if (lost := sent - deleting - found) else []
    problems += [f"back: {len(back)}"] if (back := found & deleted) else []
    problems += [f"strange: {len(other)}"] if (other := found - sending) else []
    return problems


def careless_copy(path: Path, to: Path) -> None:
    """Copy a file, or the files of a directory that are still there when it comes to them."""
    for each in sorted(path.iterdir()) if path.is_dir() else [path]:
        target = to / each.name if path.is_dir() else to
        target.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError):
            shutil.copyfile(each, target)
