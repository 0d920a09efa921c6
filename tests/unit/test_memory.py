"""What is particular to mailboxes in memory (R30): threads, wake-ups, forks, leaks, handles."""

from __future__ import annotations

import gc
import os
import select
import signal
import sys
import threading
import time
import weakref
from collections.abc import Callable
from itertools import chain
from typing import Any

import pytest

from pillarbox import DeadLetterPolicy, InMemoryMailbox, MailboxClosedError, open_mailbox
from pillarbox.clock import SystemClock
from pillarbox.core.queue import Lease
from pillarbox.mailbox.store import Store
from pillarbox.mailbox.waiters import ThreadWaiter
from pillarbox.testing import FakeClock
from tests.unit.support import PATIENCE_SECONDS, WatchedClock, start

STOP = -1


def test_R14_one_send_wakes_exactly_one_of_1000_parked_receivers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    woken: list[ThreadWaiter] = []
    wake = ThreadWaiter.wake
    monkeypatch.setattr(ThreadWaiter, "wake", lambda self: woken.append(self) or wake(self))
    clock = WatchedClock()
    box = InMemoryMailbox("box", str, clock=clock)
    calls = [start(lambda: box.receive(wait_time_seconds=1_000)) for _ in range(1_000)]
    clock.wait_until(lambda: len(box._session.waiters) == 1_000)
    box.send("for one")
    assert len(woken) == 1
    assert len(box._session.waiters) == 999
    box.close()
    bodies = [message.body for call in calls for message in call.result()]
    assert bodies == ["for one"]
    assert len(woken) == 1_000


def each_exactly_once(messages_each: int, **receiving: Any) -> None:
    """Four threads send, four receive and acknowledge; nobody's lease runs out."""
    box = InMemoryMailbox("box", int)

    def produce(first: int) -> None:
        for number in range(first, first + messages_each):
            box.send(number)

    def consume() -> list[int]:
        got: list[int] = []
        stops = 0
        while not stops:
            messages = box.receive(wait_time_seconds=60, visibility_timeout=3_600, **receiving)
            assert messages, "a wake-up was lost"
            if receiving:
                assert all(box.acknowledge_many(messages))
            else:
                assert all(message.acknowledge() for message in messages)
            bodies = [message.body for message in messages]
            stops = bodies.count(STOP)
            got += bodies
        box.send_many([STOP] * (stops - 1))  # it took those of others in its batch
        return got

    consumers = [start(consume) for _ in range(4)]
    producers = [start(lambda n=n: produce(n * messages_each)) for n in range(4)]  # type: ignore[misc]
    for producer in producers:
        producer.future.result()
    box.send_many([STOP] * 4)
    got = sorted(chain.from_iterable(consumer.future.result() for consumer in consumers))
    assert [number for number in got if number != STOP] == list(range(4 * messages_each))


def test_R20_no_wake_up_is_lost_among_8_threads_and_100_000_messages() -> None:
    each_exactly_once(25_000)


def test_R20_no_wake_up_is_lost_in_batches() -> None:
    each_exactly_once(12_500, max_messages=10)


@pytest.mark.soak
def test_R20_no_wake_up_is_lost_among_8_threads_and_400_000_messages() -> None:
    each_exactly_once(100_000)


class InterruptedClock(FakeClock):
    """Whoever waits is served and interrupted at the same moment, as by Ctrl-C."""

    before: Callable[[], object]

    def wait(self, gate: threading.Lock, until: int) -> None:
        self.before()
        raise KeyboardInterrupt


def test_R14_an_interrupted_receive_gives_back_what_it_was_given_uncounted() -> None:
    clock = InterruptedClock()
    box = InMemoryMailbox("box", str, clock=clock)
    clock.before = lambda: box.send_many(["a", "b", "c"])
    with pytest.raises(KeyboardInterrupt):
        box.receive(max_messages=2, wait_time_seconds=5)
    assert box.stats().ready == 3
    messages = box.receive(max_messages=10)
    assert [(m.body, m.delivery_count) for m in messages] == [("a", 1), ("b", 1), ("c", 1)]


def test_R14_an_interrupted_receive_that_was_given_nothing_is_gone() -> None:
    clock = InterruptedClock()
    clock.before = lambda: None
    box = InMemoryMailbox("box", str, clock=clock)
    with pytest.raises(KeyboardInterrupt):
        box.receive(wait_time_seconds=5)
    box.send("a")
    assert [m.delivery_count for m in box.receive()] == [1]


def test_R24_a_close_between_the_check_and_the_wait_is_not_missed() -> None:
    box = InMemoryMailbox("box", str)
    real = box._session.receive

    def close_first(*arguments: Any) -> list[Lease]:
        box.close()
        return real(*arguments)

    box._session.receive = close_first  # type: ignore[method-assign]
    assert list(start(lambda: box.receive(wait_time_seconds=1_000)).result()) == []
    with pytest.raises(MailboxClosedError):
        box.receive()


def in_child(work: Callable[[], str]) -> str:
    """What a forked child answers; it is killed if it hangs."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        answer = "failed"
        try:
            signal.alarm(PATIENCE_SECONDS)  # deadlocked: the child is ended by the system
            answer = work()
        except BaseException as error:  # noqa: BLE001 - the parent reports it
            answer = repr(error)
        finally:
            os.write(writing, answer.encode())
            os._exit(0)
    os.close(writing)
    try:
        assert select.select([reading], [], [], PATIENCE_SECONDS + 5)[0]
        return os.read(reading, 10_000).decode()
    finally:
        os.close(reading)
        os.waitpid(child, 0)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_R20_a_forked_child_is_not_deadlocked_by_a_thread_of_its_parent() -> None:
    box = InMemoryMailbox("box", str)
    box.send("from the parent")

    def work() -> str:
        (message,) = box.receive()
        return f"{message.body}, {message.acknowledge()}"

    locked, done = threading.Event(), threading.Event()

    def hold() -> None:
        with box._store.lock:
            locked.set()
            done.wait(PATIENCE_SECONDS)

    holder = start(hold)
    locked.wait(PATIENCE_SECONDS)
    assert in_child(work) == "from the parent, True"
    done.set()
    holder.result()
    assert box.approximate_count() == 1


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_R1_the_ids_of_a_forked_child_are_not_those_of_its_parent() -> None:
    for box in (InMemoryMailbox("box", str), open_mailbox("memory:forked", str)):
        parent = box.send("p")

        def send(box: Any = box) -> str:
            sent: str = box.send("c")
            return sent

        child = in_child(send)
        assert len(child) == len(parent) == 36
        assert child[:18] != parent[:18]  # the part of an id that names the store


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_R15_a_handle_of_the_parent_is_nothing_to_a_forked_child() -> None:
    box = InMemoryMailbox("box", str)
    box.send("a")
    (message,) = box.receive()
    handle = message.receipt_handle

    def work() -> str:
        return str(box._store.lease_of(box._session.queue, handle))

    assert box._store.lease_of(box._session.queue, handle) is message._delivery
    assert in_child(work) == "None"


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_R14_in_a_forked_child_nobody_is_parked_and_timers_fire() -> None:
    box = InMemoryMailbox("box", str)
    parked = start(lambda: box.receive(wait_time_seconds=1_000))
    box.send("later", delay_seconds=1_000)  # whoever parks arms the timer for it

    def work() -> str:
        box.send("now")
        box.receive(visibility_timeout=0.05)
        return ", ".join(m.body for m in box.receive(wait_time_seconds=PATIENCE_SECONDS))

    assert in_child(work) == "now"
    box.send("for the one in the parent")
    assert [m.body for m in parked.result()] == ["for the one in the parent"]


def pulses() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "pillarbox-pulse"]


def test_R53_the_timer_s_thread_ends_when_nothing_is_left_to_wait_for() -> None:
    before = set(pulses())
    box = InMemoryMailbox("box", str)
    box.send("soon", delay_seconds=0.02)
    assert len(box.receive(wait_time_seconds=PATIENCE_SECONDS)) == 1
    for thread in set(pulses()) - before:
        thread.join(PATIENCE_SECONDS)
        assert not thread.is_alive()


def test_R53_without_anybody_who_waits_there_is_no_thread() -> None:
    before = set(pulses())
    box = InMemoryMailbox("box", str)
    box.send("later", delay_seconds=5)
    box.send("now")
    box.receive(visibility_timeout=5)
    assert set(pulses()) == before


def test_R53_the_timer_s_thread_does_not_keep_a_store_alive() -> None:
    before = set(pulses())
    store = Store()
    box = InMemoryMailbox("box", str, store=store)
    box.send("much later", delay_seconds=10_000)
    assert list(box.receive(wait_time_seconds=0.01)) == []
    (thread,) = set(pulses()) - before
    gone = weakref.ref(store)
    del store, box
    gc.collect()
    assert gone() is None
    thread.join(PATIENCE_SECONDS)
    assert not thread.is_alive()


def test_R30_two_mailboxes_on_one_store_are_the_same_queue() -> None:
    store = Store()
    one = InMemoryMailbox("box", str, store=store)
    two = InMemoryMailbox("box", str, store=store)
    other = InMemoryMailbox("other", str, store=store)
    one.send("a")
    (message,) = two.receive()
    assert one.receive() == []
    assert one.acknowledge_many([message]) == [True]
    assert (two.approximate_count(), other.approximate_count()) == (0, 0)
    assert InMemoryMailbox("box", str).approximate_count() == 0


def test_R30_closing_one_mailbox_leaves_the_others_on_its_queue_open() -> None:
    store = Store()
    one = InMemoryMailbox("box", str, store=store)
    two = InMemoryMailbox("box", str, store=store)
    one.close()
    two.send("a")
    assert [m.body for m in two.receive()] == ["a"]


class CountedClock(SystemClock):
    """Real time; who waits for it is counted."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[str] = []

    def wait(self, gate: threading.Lock, until: int) -> None:
        self.waits.append(threading.current_thread().name)
        super().wait(gate, until)


@pytest.mark.parametrize("how", ["delay", "lease", "nack"])
def test_R14_a_parked_receive_wakes_when_a_time_comes_and_nobody_polls(how: str) -> None:
    clock = CountedClock()
    box = InMemoryMailbox("box", str, clock=clock)
    box.send("a", delay_seconds=0.1 if how == "delay" else 0)
    if how != "delay":
        (message,) = box.receive(visibility_timeout=0.1)
        if how == "nack":
            assert message.nack(visibility_timeout=0.1)
    began = time.monotonic()
    (message,) = box.receive(wait_time_seconds=PATIENCE_SECONDS)
    took = time.monotonic() - began
    assert 0.05 < took < PATIENCE_SECONDS / 2
    assert len(clock.waits) <= 3
    assert clock.waits.count(threading.current_thread().name) == 1


def test_R30_ten_thousand_cycles_leave_nothing_behind() -> None:
    box = InMemoryMailbox("box", str)

    def cycles(count: int) -> None:
        for _ in range(count):
            box.send("a")
            (message,) = box.receive()
            assert message.acknowledge()
            box.send("b", priority=3, group="g", attributes={"colour": "red"})
            (message,) = box.receive(visibility_timeout=7)
            assert message.nack()
            (message,) = box.receive()
            assert message.acknowledge()

    cycles(100)
    gc.collect()
    gc.disable()
    try:
        before = sys.getallocatedblocks()
        cycles(10_000)
        assert gc.collect() == 0, "cycles of references were made"
        assert sys.getallocatedblocks() - before < 500
    finally:
        gc.enable()


HANDLE_CHARACTERS = "0123456789abcdefABCDEF.-_ /x\n\x00é\ud800"


def test_R15_only_the_exact_handle_is_accepted() -> None:
    box = InMemoryMailbox("box", str)
    box.send("a")
    (message,) = box.receive()
    handle = message.receipt_handle
    lease_of = box._store.lease_of
    assert lease_of(box._session.queue, handle) is message._delivery
    for at in range(len(handle)):
        for other in HANDLE_CHARACTERS:
            if other != handle[at]:
                assert lease_of(box._session.queue, handle[:at] + other + handle[at + 1 :]) is None
            assert lease_of(box._session.queue, handle[:at] + other + handle[at:]) is None
        assert lease_of(box._session.queue, handle[:at] + handle[at + 1 :]) is None
    for nonsense in ("", ".", "....", handle + ".", handle * 2, handle[::-1], "é" * 50):
        assert lease_of(box._session.queue, nonsense) is None
    assert message.acknowledge()
    assert lease_of(box._session.queue, handle) is None


def test_R15_a_handle_is_good_for_one_queue_of_one_store() -> None:
    store = Store(FakeClock())
    names = ("box", "box2", "box.fifo", "b")
    boxes = {name: InMemoryMailbox(name, str, store=store) for name in names}
    boxes["box.fifo"].send("a")
    (message,) = boxes["box.fifo"].receive()
    handle = message.receipt_handle
    for name in ("box", "box2", "b"):
        for spelling in (handle, f"fifo.{handle}", f".fifo.{handle}", f"fifo{handle}"):
            assert store.lease_of(boxes[name]._session.queue, spelling) is None
    assert Store().lease_of(boxes["box.fifo"]._session.queue, handle) is None


@pytest.mark.parametrize("spelling", ["{}", "+{}", " {}", "0{}", "{}_0", "{}\n", "-{}", "\u0663"])
def test_R1_an_id_has_one_spelling(spelling: str) -> None:
    box = InMemoryMailbox("box", str)
    sent = box.send("a")
    prefix, _, key = sent.partition("-")
    other = f"{prefix}-{spelling.format(key)}"
    assert box.delete([other, key, prefix, "-" + key]) == (1 if other == sent else 0)


def test_R39_redrive_by_id_finds_a_message_whose_last_lease_has_just_expired() -> None:
    clock = FakeClock()
    box = InMemoryMailbox("orders", str, clock=clock, dead_letters=DeadLetterPolicy(1))
    assert box.dead_letters is not None
    message_id = box.send("a")
    box.receive(visibility_timeout=1)
    clock.advance(2)

    assert box.dead_letters.redrive([message_id]) == 1
    assert [message.id for message in box.receive()] == [message_id]
