"""BusProcessor (R97): turns, bounds, isolation, and both ways to stop (P6, R95)."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from pillarbox import InvalidParameterError, MailboxClosedError, MailboxStorageError
from pillarbox.bus import BusProcessor, Envelope, MessageBus, Processed
from pillarbox.bus.events import DelayedAbandoned, DelayedKept, HandlerFailed
from pillarbox.testing import FakeClock
from pillarbox.worker.job import Reject, Release, Retry
from pillarbox.worker.retry import RetryPolicy
from tests.bus.properties import EXAMPLES, delays, few, names
from tests.bus.support import PATIENCE_SECONDS, events_of, until
from tests.bus.worlds import NAMES, DurableWorld, World
from tests.unit.support import notices, start

AT_ONCE = RetryPolicy(backoff=0)


def make(*recipients: str) -> tuple[MessageBus, FakeClock]:
    clock = FakeClock()
    return MessageBus(*(recipients or NAMES), clock=clock), clock


def drive(story: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            await story

    asyncio.run(bounded())


class Log:
    """A handler that remembers, and finds out how many run at once."""

    def __init__(self) -> None:
        self.got: list[Envelope] = []
        self.now: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self._lock = threading.Lock()

    def begin(self, message: Envelope) -> None:
        with self._lock:
            self.now[message.to] += 1
            self.now["all"] += 1
            for name, count in self.now.items():
                self.most[name] = max(self.most[name], count)

    def end(self, message: Envelope) -> None:
        with self._lock:
            self.now[message.to] -= 1
            self.now["all"] -= 1
            self.got.append(message)

    async def slowly(self, message: Envelope) -> None:
        self.begin(message)
        await asyncio.sleep(0.001)
        self.end(message)

    def plainly(self, message: Envelope) -> None:
        self.begin(message)
        threading.Event().wait(0.001)
        self.end(message)

    @property
    def payloads(self) -> list[Any]:
        return [message.payload for message in self.got]


# -- P6 ------------------------------------------------------------------------------------


def stop_in_the_middle(
    world: World, kind: type[BusProcessor], plan: list[tuple[str, Any]], after_ms: float
) -> tuple[list[Any], Processed]:
    """Send, let the processor work for a while, stop it gracefully."""
    log: list[Any] = []

    async def handle(message: Envelope) -> None:
        log.append(message.payload)

    async def story() -> Processed:
        processor = kind(world.bus, handle, concurrency=2)
        for to, delay in plan:
            world.send(to, delay)
        running = asyncio.create_task(processor.run_async())
        await until(lambda: len(log) == sum(m.due <= world.clock.now() for m in messages))
        world.clock.advance(after_ms / 1_000)
        await until(lambda: len(log) >= sum(m.due <= world.clock.now() for m in messages))
        processor.stop()
        return await running

    messages = world.sent.values()
    return log, asyncio.run(story())


plans = st.tuples(
    st.lists(st.tuples(names, few | delays), min_size=1, max_size=8), few | st.floats(0, 300)
)


def p6_a_graceful_stop_delivers_all(
    plan: Any, kind: type[BusProcessor] = BusProcessor, world: type[World] = World
) -> None:
    here = world()
    log, done = stop_in_the_middle(here, kind, *plan)
    assert sorted(log) == sorted(here.sent), "each was handled before the stop was over"
    assert (here.bus.delayed_count(), done.left) == (0, 0)
    assert done.handled == len(here.sent)
    assert done.forced == sum(m.due > here.clock.now() for m in here.sent.values())
    here.bus.close()


def p6_on_disk_a_graceful_stop_keeps_the_schedule(plan: Any) -> None:
    here = DurableWorld()
    log, done = stop_in_the_middle(here, BusProcessor, *plan)
    later = sorted(m.number for m in here.sent.values() if m.due > here.clock.now())
    assert sorted(log) == sorted(here.sent.keys() - set(later))
    assert (done.forced, done.left) == (0, len(later))
    here.restart("close")
    here.walk()
    assert sorted(here.seen_numbers()) == later
    assert all(seen.at == here.sent[seen.envelope.payload].due for seen in here.seen)
    here.bus.close()


def r95_a_forced_exit_warns_with_the_count(
    plan: Any, kind: type[BusProcessor] = BusProcessor
) -> None:
    here = World()
    told = events_of(here.bus)
    for to, delay in plan[0]:
        here.send(to, delay)
    delayed = here.bus.delayed_count()
    processor = kind(here.bus, print)
    processor.stop(force=True)
    with notices() as said:
        done = processor.run()
    assert (done.handled, done.forced, done.left) == (0, 0, delayed)
    warned = [event.count for event in told if isinstance(event, DelayedAbandoned)]
    assert warned == ([delayed] if delayed else [])
    assert [f"count={count}" in line for count, line in zip(warned, said, strict=True)] == [
        True for _ in warned
    ]


def ask(holds: Callable[[Any], None], *, shrink: bool = True) -> None:
    asked = 0

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        phases=[Phase.generate, Phase.shrink] if shrink else [Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(plans)
    def each(plan: Any) -> None:
        nonlocal asked
        asked += 1
        holds(plan)

    each()
    assert asked >= EXAMPLES


def test_R94_P6_a_graceful_stop_delivers_all() -> None:
    ask(p6_a_graceful_stop_delivers_all)


def test_R94_P6_on_disk_a_graceful_stop_keeps_the_schedule() -> None:
    ask(p6_on_disk_a_graceful_stop_keeps_the_schedule)


def test_R94_P6_control_a_stop_that_forces_nothing_is_found_out() -> None:
    class Hasty(BusProcessor):
        async def _finish(self) -> int:
            return 0

    with pytest.raises((AssertionError, ExceptionGroup)):
        ask(lambda plan: p6_a_graceful_stop_delivers_all(plan, Hasty), shrink=False)


def test_R95_a_forced_exit_warns_with_the_count() -> None:
    ask(r95_a_forced_exit_warns_with_the_count)


def test_R95_control_a_forced_exit_that_says_nothing_is_found_out() -> None:
    class Silent(BusProcessor):
        async def run_async(self) -> Processed:
            self.bus._report_delayed = lambda: None  # type: ignore[method-assign]
            return await super().run_async()

    with pytest.raises((AssertionError, ExceptionGroup)):
        ask(lambda plan: r95_a_forced_exit_warns_with_the_count(plan, Silent), shrink=False)


# -- R97 -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["slowly", "plainly"])
def test_R97_one_at_a_time_for_each_recipient_and_many_recipients_at_once(kind: str) -> None:
    bus, _ = make("a", "b", "c", "d")
    log = Log()
    for number in range(40):
        bus.send(to="abcd"[number % 4], sender="me", payload=number)
    processor = BusProcessor(bus, getattr(log, kind), concurrency=3)
    processor.stop()
    assert processor.run().handled == 40
    assert {name: log.most[name] for name in "abcd"} == dict.fromkeys("abcd", 1)
    assert log.most["all"] == 3, "as many as may, and no more"
    for name in "abcd":
        mine = [m.payload for m in log.got if m.to == name]
        assert mine == sorted(mine), "in the order of sending"


def test_R97_recipients_take_turns_however_much_one_of_them_has() -> None:
    bus, _ = make("greedy", "modest")
    log = Log()
    for number in range(50):
        bus.send(to="greedy", sender="me", payload=number)
    for number in range(5):
        bus.send(to="modest", sender="me", payload=number)
    processor = BusProcessor(bus, log.slowly, concurrency=1)
    processor.stop()
    processor.run()
    assert [m.to for m in log.got[:10]] == ["greedy", "modest"] * 5


def test_R97_what_is_due_is_delivered_first_and_the_loop_wakes_for_what_comes() -> None:
    async def story() -> None:
        bus, clock = make("a")
        log = Log()
        processor = BusProcessor(bus, log.slowly)
        running = asyncio.create_task(processor.run_async())
        bus.send(to="a", sender="me", payload="second", delay_ms=2_000)
        first = bus.send(to="a", sender="me", payload="first", delay_ms=9_000)
        await until(lambda: clock.waiting == 1)
        clock.advance(1)
        bus.reschedule(first.message_id, 500)
        await until(lambda: clock.waiting == 1)
        clock.advance(0.5)
        await until(lambda: log.payloads == ["first"])
        clock.advance(0.5)
        await until(lambda: log.payloads == ["first", "second"])
        bus.send(to="a", sender="me", payload="at once")
        await until(lambda: len(log.got) == 3)
        bus.register("new")
        bus.send(to="new", sender="me", payload="to a new recipient")
        await until(lambda: len(log.got) == 4)
        processor.stop()
        assert await running == Processed(handled=4, failed=0, forced=0, left=0)
        assert clock.waiting == 0, "no timer is left behind"

    drive(story())


def test_R97_a_handler_that_fails_concerns_its_message_alone() -> None:
    bus, clock = make()
    told = events_of(bus)
    log = Log()

    def handle(message: Envelope) -> None:
        if message.payload == "bad":
            raise ValueError("can't do that")
        if message.payload == "exit":
            raise SystemExit(3)
        if message.payload == "stop":
            raise StopIteration
        log.end(message)

    for payload in ("bad", "good", "exit", "stop", "good too"):
        bus.send(to="ada", sender="me", payload=payload)
    bus.send(to="bob", sender="me", payload="other")
    processor = BusProcessor(bus, handle)
    processor.stop()
    done = processor.run()
    assert (done.handled, done.failed) == (3, 3)
    assert sorted(log.payloads) == ["good", "good too", "other"]
    failures = [event for event in told if isinstance(event, HandlerFailed)]
    assert [(f.to, f.delivery_count) for f in failures] == [("ada", 1)] * 3
    assert failures[0].error == "ValueError: can't do that"
    clock.advance(3_600)
    assert len(bus.drain("ada")) == 3, "they are not lost"


def test_R97_a_message_that_fails_too_often_goes_to_the_dead_letters() -> None:
    async def story() -> None:
        bus, clock = make("a")
        tries: list[float] = []

        async def handle(message: Envelope) -> None:
            tries.append(clock.now())
            raise ValueError("never")

        bus.send(to="a", sender="me", payload="poison")
        processor = BusProcessor(bus, handle, retry=RetryPolicy(backoff=1, jitter=0))
        running = asyncio.create_task(processor.run_async())
        for number in range(1, 5):
            await until(lambda n=number: len(tries) == n and bus.delayed_count() == 1)  # type: ignore[misc]
            await until(lambda: clock.waiting == 1)
            clock.advance(2 ** (number - 1))
        await until(lambda: len(bus.dead_letters("a")) == 1)
        assert len(tries) == 5
        assert bus.delayed_count() == 0
        assert bus.redrive("a") == 1
        await until(lambda: len(tries) == 6)
        processor.stop()
        await running

    drive(story())


def test_R97_a_handler_may_decide_itself() -> None:
    bus, _ = make()
    left = {"retry": 1, "release": 1, "reject": 1}
    log = Log()

    async def handle(message: Envelope) -> None:
        if left.get(message.payload, 0):
            left[message.payload] -= 1
            if message.payload == "retry":
                raise Retry(0)
            if message.payload == "release":
                raise Release
            raise Reject("not my job")
        log.end(message)
        if len(log.got) == 2:
            processor.stop()

    for payload in left:
        bus.send(to="ada", sender="me", payload=payload)
    processor = BusProcessor(bus, handle, retry=AT_ONCE)
    processor.run()
    assert sorted(log.payloads) == ["release", "retry"]
    assert [m.payload for m in bus.dead_letters("ada")] == ["reject"]


def test_R97_a_stop_ends_even_if_handlers_go_on_writing_to_each_other() -> None:
    bus, _ = make()
    count = 0

    def handle(message: Envelope) -> None:
        nonlocal count
        count += 1
        bus.send(to="bob", sender="ada", payload="and you?")
        bus.send(to="ada", sender="bob", payload="later", delay_ms=1_000)

    bus.send(to="ada", sender="me", payload="go")
    bus.send(to="bob", sender="me", payload="go", delay_ms=500)
    processor = BusProcessor(bus, handle)
    processor.stop()
    done = start(processor.run).result()
    assert (done.handled, count) == (2, 2), "what was sent before the stop, and no more"
    assert bus.delayed_count() == 0
    assert Counter(m.payload for m in bus.drain()) == {"and you?": 2, "later": 2}


@pytest.mark.parametrize("verdict", [Retry(0), Retry(5), Release()])
def test_R97_a_stop_ends_even_if_a_handler_never_wants_its_messages(verdict: Exception) -> None:
    bus = MessageBus("ada", dead_letters=None)

    def handle(message: Envelope) -> None:
        raise verdict

    for number in range(3):
        bus.send(to="ada", sender="me", payload=number)
    processor = BusProcessor(bus, handle)
    processor.stop()
    assert start(processor.run).result().failed == 3, "each was tried"
    assert [m.payload for m in bus.drain()] == [0, 1, 2]


def test_R97_what_was_claimed_but_never_begun_is_given_back_by_a_forced_exit() -> None:
    bus, _ = make()
    bus.send(to="ada", sender="me", payload="held")

    class Interrupted(BusProcessor):
        def _start(self) -> None:
            super()._start()
            self.stop(force=True)  # before the task has had its first step
            self._wakeup.set()

    log = Log()
    processor = Interrupted(bus, log.slowly)
    assert start(processor.run).result().handled == 0
    assert log.got == []
    assert [m.payload for m in bus.drain()] == ["held"]


def test_R97_a_run_on_a_bus_that_is_closed_meanwhile_says_so() -> None:
    bus, _ = make()

    def handle(message: Envelope) -> None:
        bus.close()

    bus.send(to="ada", sender="me", payload=1)
    with pytest.raises(MailboxClosedError, match="bus is closed"):
        start(BusProcessor(bus, handle).run).result()


def test_R97_a_mapping_gives_each_recipient_its_own_handler() -> None:
    bus, _ = make()
    got: list[str] = []

    class Agent:
        async def __call__(self, message: Envelope) -> None:
            got.append(f"agent {message.payload}")

    handlers = {"ada": Agent(), "bob": lambda message: got.append(f"plain {message.payload}")}
    for name in NAMES:
        bus.send(to=name, sender="me", payload=name)
    processor = BusProcessor(bus, handlers)
    processor.stop()
    assert processor.run().handled == 2
    assert sorted(got) == ["agent ada", "plain bob"]
    assert [m.payload for m in bus.drain()] == ["cyd"]


@pytest.mark.parametrize("plain", [False, True])
def test_R95_R97_a_forced_exit_warns_with_the_count_and_gives_back_what_it_held(
    plain: bool,
) -> None:
    bus, _ = make()
    told = events_of(bus)
    busy, go_on = threading.Event(), threading.Event()

    async def hang(message: Envelope) -> None:
        busy.set()
        await asyncio.sleep(3_600)

    def hang_plainly(message: Envelope) -> None:
        busy.set()
        go_on.wait(PATIENCE_SECONDS)

    bus.send(to="ada", sender="me", payload="held")
    bus.send(to="ada", sender="me", payload="waits")
    for _ in range(3):
        bus.send(to="bob", sender="me", payload="later", delay_ms=500)
    processor = BusProcessor(bus, hang_plainly if plain else hang)
    call = start(processor.run)
    assert busy.wait(PATIENCE_SECONDS)
    with notices() as said:
        processor.stop(force=True)
        done = call.result()
    go_on.set()
    assert done == Processed(handled=0, failed=0, forced=0, left=3)
    assert sorted(m.payload for m in bus.drain("ada")) == ["held", "waits"]
    assert DelayedAbandoned(3) in told
    assert any("abandoned by a forced exit" in line and "count=3" in line for line in said)


def test_R97_a_graceful_stop_that_takes_too_long_can_be_forced() -> None:
    async def story() -> None:
        bus, _ = make()
        busy = asyncio.Event()

        async def hang(message: Envelope) -> None:
            busy.set()
            await asyncio.sleep(3_600)

        bus.send(to="ada", sender="me", payload="held")
        bus.send(to="bob", sender="me", payload="later", delay_ms=500)
        processor = BusProcessor(bus, {"ada": hang})
        running = asyncio.create_task(processor.run_async())
        await busy.wait()
        processor.stop()
        await until(lambda: bus.delayed_count() == 0)
        assert not running.done()
        processor.stop(force=True)
        assert await running == Processed(handled=0, failed=0, forced=1, left=0)
        assert [m.payload for m in bus.drain()] == ["held", "later"]

    drive(story())


def test_R95_a_forced_exit_at_once_delivers_nothing_and_warns() -> None:
    bus, clock = make()
    told = events_of(bus)
    for _ in range(4):
        bus.send(to="ada", sender="me", payload="later", delay_ms=500)
    processor = BusProcessor(bus, lambda message: None)
    processor.stop(force=True)
    processor.stop()  # no way back
    with notices() as said:
        assert processor.run() == Processed(handled=0, failed=0, forced=0, left=4)
    assert told[-1] == DelayedAbandoned(4)
    assert any("WARNING" not in line and "count=4" in line for line in said)
    clock.advance(1)
    assert len(bus.drain()) == 4, "the bus itself is still there"


def test_R97_on_disk_what_a_killed_handler_held_is_handled_again() -> None:
    world = DurableWorld()
    world.send("ada")

    async def die(message: Envelope) -> None:
        world.disk = world.disk.kill()  # what a kill would leave, at this very moment
        processor.stop(force=True)
        await asyncio.sleep(3_600)

    processor = BusProcessor(world.bus, die)
    told = events_of(world.bus)
    processor.run()
    assert not [event for event in told if isinstance(event, DelayedKept)]
    world.bus = world.open()
    log = Log()
    again = BusProcessor(world.bus, log.slowly)

    async def story() -> None:
        running = asyncio.create_task(again.run_async())
        await until(lambda: len(log.got) == 1)
        again.stop()
        await running

    drive(story())
    assert world.bus._recipients["ada"].session.queue.size == 0
    world.bus.close()


def test_R97_what_a_cancelled_run_held_goes_back() -> None:
    async def story() -> None:
        bus, _ = make()
        busy = asyncio.Event()

        async def hang(message: Envelope) -> None:
            busy.set()
            await asyncio.sleep(3_600)

        bus.send(to="ada", sender="me", payload="held")
        running = asyncio.create_task(BusProcessor(bus, hang).run_async())
        await busy.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert [m.payload for m in bus.drain()] == ["held"]

    drive(story())


def test_R97_a_recipient_may_be_unregistered_by_its_own_handler() -> None:
    bus, _ = make()
    log = Log()

    def handle(message: Envelope) -> None:
        if message.to == "ada":
            bus.unregister("ada")
        log.end(message)

    for name in ("ada", "ada", "bob"):
        bus.send(to=name, sender="me", payload=name)
    processor = BusProcessor(bus, handle, concurrency=1)
    processor.stop()
    assert start(processor.run).result().failed == 0
    assert log.payloads == ["ada", "bob"]


def test_R97_a_disk_that_fails_ends_the_run_with_its_error() -> None:
    world = DurableWorld()
    world.send("ada")

    def fail(operation: str, path: str) -> None:
        if operation == "fdatasync":
            raise OSError(errno.EIO, "the disk is broken")

    def handle(message: Envelope) -> None:
        world.disk.before = fail

    processor = BusProcessor(world.bus, handle)
    with pytest.raises(MailboxStorageError):
        start(processor.run).result()


def test_R97_a_recipient_on_disk_may_be_unregistered_while_it_is_worked_for() -> None:
    world = DurableWorld()
    world.send("ada")
    world.send("bob")

    def handle(message: Envelope) -> None:
        world.bus.unregister(message.to)
        if not {"ada", "bob"} & set(world.bus.recipients):
            processor.stop()

    processor = BusProcessor(world.bus, handle)
    assert start(processor.run).result().failed == 0
    assert world.bus.recipients == ("cyd",)
    world.bus.close()


def test_R97_a_handler_that_is_cancelled_from_inside_has_failed() -> None:
    bus, _ = make()

    async def handle(message: Envelope) -> None:
        raise asyncio.CancelledError

    bus.send(to="ada", sender="me", payload=1)
    processor = BusProcessor(bus, handle)
    processor.stop()
    assert start(processor.run).result().failed == 1


def test_R97_handlers_may_send_and_a_chain_of_agents_comes_to_its_end() -> None:
    bus = MessageBus(*NAMES)
    log = Log()

    async def handle(message: Envelope) -> None:
        log.end(message)
        if message.payload == 60:
            processor.stop()
        else:
            following = NAMES[(NAMES.index(message.to) + 1) % 3]
            delay = message.payload % 2
            bus.send(to=following, sender=message.to, payload=message.payload + 1, delay_ms=delay)

    bus.send(to="ada", sender="me", payload=0)
    processor = BusProcessor(bus, handle)
    assert start(processor.run).result().handled == 61
    assert log.payloads == list(range(61))


@pytest.mark.parametrize("concurrency", [0, -1, 1.5, True, "8"])
def test_R97_concurrency_is_a_whole_number_from_one(concurrency: Any) -> None:
    with pytest.raises(InvalidParameterError, match="concurrency"):
        BusProcessor(MessageBus(), print, concurrency=concurrency)
