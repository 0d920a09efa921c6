"""The lock: one holder, given back whatever happens, and no thread is made to wait in vain.

Not to be run under a tracer (coverage): that raises interrupts between any two lines.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import sleep
from types import FrameType
from typing import Any

import pytest

from pillarbox import InMemoryMailbox, ReentrantCallError
from pillarbox.adaptive_lock import AdaptiveLock
from pillarbox.core import apply
from pillarbox.core.events import Event, Scheduled
from pillarbox.core.finish import finish
from pillarbox.core.queue import Queue
from pillarbox.mailbox import memory, queue_steps

THREADS = 8
STEPS = 2_000


class Interrupt(Exception):
    """What the handler of a signal raises, as Ctrl-C does."""


@contextmanager
def switching_often() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def lost_updates(run: Callable[[Callable[[], None]], None]) -> int:
    """How many of many threads' additions get lost if each is run like this."""
    box = [0]

    def add() -> None:
        seen = box[0]
        str(seen)  # long enough for another thread to come in between
        box[0] = seen + 1

    def add_often() -> None:
        for _ in range(STEPS):
            run(add)

    threads = [threading.Thread(target=add_often) for _ in range(THREADS)]
    with switching_often():
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return THREADS * STEPS - box[0]


def test_R38_an_adaptive_lock_has_one_holder() -> None:
    lock = AdaptiveLock()
    assert lost_updates(lock.run) == 0


def test_R38_control_without_an_adaptive_lock_updates_are_lost() -> None:
    assert any(lost_updates(lambda step: step()) for _ in range(20))


def waiting_for(lock: AdaptiveLock) -> tuple[threading.Thread, threading.Event]:
    """A thread that wants the lock, and whether it has had it."""
    got = threading.Event()

    def take() -> None:
        with lock:
            got.set()

    thread = threading.Thread(target=take)
    thread.start()
    return thread, got


def test_R38_whoever_finds_it_taken_gets_it_when_it_is_given_back() -> None:
    lock = AdaptiveLock()
    with lock:
        thread, got = waiting_for(lock)
        assert not got.wait(0.05)  # long past the yields: it waits by the clock now
    assert got.wait(10)
    thread.join()


def test_R38_an_error_gives_it_back() -> None:
    lock = AdaptiveLock()
    with pytest.raises(ValueError, match="no"), lock:
        raise ValueError("no")
    with lock:
        assert lock.token == []


def test_R38_a_child_of_a_fork_starts_with_a_free_lock() -> None:
    lock = AdaptiveLock()
    with lock:
        child = os.fork()
        if child == 0:
            lock.restart_after_fork()
            with lock:
                os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def interrupted(work: Callable[[], None], times: int) -> Iterator[None]:
    """Do the work over and over, and interrupt it so often; yields after each time."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise Interrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        for number in range(times):
            try:
                soon = 0.000_2 + number % 97 * 0.000_001
                signal.setitimer(signal.ITIMER_REAL, soon, 1)  # one may meet what swallows it
                while True:
                    work()
            except Interrupt:
                signal.setitimer(signal.ITIMER_REAL, 0)
                yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_R38_an_interrupt_never_leaves_a_mailbox_taken() -> None:
    box: InMemoryMailbox[str] = InMemoryMailbox("interrupted", str)
    token = box._store.lock.token

    def cycle() -> None:
        box.send("a letter")
        for message in box.receive():
            message.acknowledge()

    for _ in interrupted(cycle, 3_000):
        assert token == [None]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # swallowed ones
def test_R38_an_interrupt_within_any_verb_gives_the_lock_back() -> None:
    box: InMemoryMailbox[str] = InMemoryMailbox("interrupted", str)
    lock = box._store.lock
    most = 0
    for _ in interrupted(lambda: box.send("a letter", delay_seconds=100), 2_000):
        assert (lock.token, lock.holder) == ([None], 0)
        most = max(most, count := box.approximate_count())
        if count > 1_000:  # what was interrupted is finished by looking at all of them
            box.purge()
    assert most > 0


def finish_under_fire(queue: Queue, event: Event) -> None:
    """Finish an event, while a handler raises every millisecond."""
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
    finish(queue, event)


def interrupt(*_: object) -> None:
    raise Interrupt


class Interrupting(deque[Any]):
    """The head of a line, whose receiver is interrupted."""

    def popleft(self) -> Any:
        super().popleft()
        interrupt()


def interrupt_send(box: InMemoryMailbox[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """By the general way."""
    scheduled = apply.HOW[Scheduled]

    def once(*event: Any) -> None:
        monkeypatch.setitem(apply.HOW, Scheduled, scheduled)  # `finish` applies it, too
        interrupt()

    monkeypatch.setitem(apply.HOW, Scheduled, once)
    box.send("one more", delay_seconds=100)


def interrupt_receive(box: InMemoryMailbox[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """By the quick way."""
    box.receive(visibility_timeout=30)  # from now on there is a line of such leases
    box.send("one more")
    lane = box._session.queue.lanes[0]
    lane.head = lane.tail = Interrupting(lane.head)
    box.receive(visibility_timeout=30)


def all_after_interrupts(
    interrupt_verb: Callable[[InMemoryMailbox[str], pytest.MonkeyPatch], None],
    monkeypatch: pytest.MonkeyPatch,
) -> bool:
    """Interrupt a verb half way, and what finishes it all the time: is every message there?"""
    for module in (queue_steps, memory):
        monkeypatch.setattr(module, "finish", finish_under_fire)
    box: InMemoryMailbox[str] = InMemoryMailbox("interrupted", str)
    box.send_many(["a letter"] * 20_000, delay_seconds=100)  # finishing takes many milliseconds
    alarm = [True]

    def handle(number: int, frame: FrameType | None) -> None:
        if alarm:
            raise Interrupt

    before = signal.signal(signal.SIGALRM, handle)
    try:
        interrupt_verb(box, monkeypatch)
    except Interrupt:
        alarm.clear()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert not alarm, "the verb was not interrupted"
    stats = box.stats()
    return stats.ready == 0 and stats.scheduled + stats.in_flight == 20_001


@pytest.mark.parametrize("verb", [interrupt_send, interrupt_receive])
def test_R111_what_was_decided_happens_however_often_a_handler_raises(
    verb: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert all_after_interrupts(verb, monkeypatch)


@pytest.mark.parametrize("verb", [interrupt_send, interrupt_receive])
def test_R111_control_what_is_finished_in_the_same_thread_is_interrupted_again(
    verb: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (queue_steps, memory):
        monkeypatch.setattr(module, "uninterrupted", lambda finish, *args: finish(*args))
    assert not all_after_interrupts(verb, monkeypatch)


@pytest.mark.parametrize("quick", [True, False])
def test_R111_a_thread_that_has_the_lock_is_refused_and_keeps_it(quick: bool) -> None:
    lock = AdaptiveLock()

    def take_again() -> None:
        assert lock.is_mine()
        with pytest.raises(ReentrantCallError, match="SimpleQueue"):
            lock.run(str)
        with pytest.raises(ReentrantCallError, match="interrupted"), lock:
            pass
        assert lock.token == []

    def in_a_quick_verb() -> None:
        del lock.token[0]
        held = lock.token
        try:
            take_again()
        finally:
            del held
            lock.give(None)

    for _ in range(2):
        in_a_quick_verb() if quick else lock.run(take_again)
        assert (lock.token, lock.holder) == ([None], 0)
        assert not lock.is_mine()


def test_R38_those_who_hold_it_again_and_again_make_way_for_one_who_waits() -> None:
    lock = AdaptiveLock()
    rounds = 0
    with lock:
        thread, got = waiting_for(lock)
        while not lock.queue:
            sleep(0.001)
    while not got.is_set():
        lock.run(sleep, 0.000_1)  # it gives up the interpreter only while it has the lock
        rounds += 1
        assert rounds < 1_000_000, "it starves"
    thread.join()


def test_R38_control_a_lock_that_is_acquired_by_a_call_is_left_taken() -> None:
    lock = threading.Lock()

    def cycle() -> None:
        lock.acquire()
        try:
            pass
        finally:
            lock.release()

    assert any(lock.locked() for _ in interrupted(cycle, 3_000))
