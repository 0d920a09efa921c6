"""MessageBus: envelopes, receiving, waiting, the schedule, and what it tells (R90 to R93, R98)."""

from __future__ import annotations

import asyncio
import json
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from pillarbox import (
    DurableMailbox,
    InvalidParameterError,
    MailboxClosedError,
    SerializationError,
)
from pillarbox.bus import AsyncMessageBus, Envelope, MessageBus, UnknownRecipientError
from pillarbox.bus.events import (
    DelayedAbandoned,
    DelayedForced,
    DelayedKept,
    MessageCancelled,
    MessageDelivered,
    MessageRescheduled,
    MessageScheduled,
)
from pillarbox.mailbox.waiters import ThreadWaiter
from pillarbox.testing import FakeClock
from pillarbox.testing.disk import SimDisk
from tests.bus.support import events_of
from tests.bus.worlds import DurableWorld
from tests.unit.support import WatchedClock, notices, start

NOON = "2027-01-15T08:00:0"  # where a fake clock starts


def make(*names: str) -> tuple[MessageBus, FakeClock]:
    clock = FakeClock()
    return MessageBus(*(names or ("ada", "bob")), clock=clock), clock


def test_R90_a_result_has_the_id_and_for_a_delayed_one_the_time_in_utc() -> None:
    bus, _ = make()
    now = bus.send(to="ada", sender="bob", payload={"n": 1})
    later = bus.send(to="ada", sender="bob", payload={"n": 2}, delay_ms=1_500)
    assert now.to_json() == {"messageId": now.message_id}
    assert later.scheduled_delivery_time == NOON + "1.500000Z"
    assert later.to_json() == {
        "messageId": later.message_id,
        "scheduledDeliveryTime": NOON + "1.500000Z",
    }
    assert now.message_id != later.message_id
    assert datetime.fromisoformat(NOON + "1.500000Z").tzinfo == UTC


def test_R90_a_time_between_microseconds_is_rounded_up_so_that_the_message_is_there_then() -> None:
    bus, clock = make()
    result = bus.send(to="ada", sender="bob", payload=1, delay_ms=0.000_5)  # 500 ns
    assert result.scheduled_delivery_time == NOON + "0.000001Z"
    clock.advance(0.000_000_499)
    assert bus.receive_next("ada") is None
    clock.advance(0.000_000_001)
    assert bus.receive_next("ada") is not None


@pytest.mark.parametrize("delay_ms", [0, 40])
def test_R91_an_envelope_has_what_was_sent_and_no_deliver_at(delay_ms: int) -> None:
    bus, clock = make()
    sent = bus.send(to="ada", sender="bob", payload=[1], task_id="t-1", delay_ms=delay_ms)
    clock.advance(0.04)
    got = bus.receive_next("ada")
    assert got == Envelope(
        id=sent.message_id,
        created_at=datetime(2027, 1, 15, 8, tzinfo=UTC),
        to="ada",
        sender="bob",
        payload=[1],
        task_id="t-1",
    )
    assert json.loads(json.dumps(got.to_json())) == {
        "id": sent.message_id,
        "createdAt": "2027-01-15T08:00:00Z",
        "to": "ada",
        "from": "bob",
        "payload": [1],
        "taskId": "t-1",
    }


def test_R91_without_a_task_the_wire_has_none() -> None:
    bus, _ = make()
    bus.send(to="ada", sender="bob", payload=None)
    got = bus.receive_next("ada")
    assert got is not None
    assert got.task_id is None
    assert "taskId" not in got.to_json()


def test_R92_what_is_due_is_delivered_by_time_then_as_sent_and_counted() -> None:
    bus, clock = make()
    for payload, delay in (("c", 30), ("a", 10), ("b", 10), ("d", 90)):
        bus.send(to="ada", sender="bob", payload=payload, delay_ms=delay)
    assert bus.deliver_due_messages() == 0
    clock.advance(0.03)
    assert bus.deliver_due_messages() == 3
    assert bus.deliver_due_messages() == 0
    assert [m.payload for m in bus.drain("ada")] == ["a", "b", "c"]


def test_R92_a_message_that_is_due_can_be_received_even_if_nobody_delivered_it() -> None:
    bus, clock = make()
    bus.send(to="ada", sender="bob", payload=1, delay_ms=10)
    clock.advance(0.01)
    got = bus.receive_next("ada")
    assert got is not None
    assert got.payload == 1


def test_R92_waiters_are_woken_only_if_something_is_delivered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    woken: list[ThreadWaiter] = []
    wake = ThreadWaiter.wake
    monkeypatch.setattr(ThreadWaiter, "wake", lambda self: woken.append(self) or wake(self))
    clock = WatchedClock()
    bus = MessageBus("ada", "bob", clock=clock)
    call = start(lambda: bus.wait_for_message("ada", 1_000))
    clock.wait_until(lambda: len(bus._recipients["ada"].session.waiters) == 1)
    bus.send(to="ada", sender="bob", payload="later", delay_ms=10)
    bus.send(to="bob", sender="ada", payload="not for ada")
    assert bus.deliver_due_messages() == 0
    assert woken == []
    clock.advance(0.01)
    bus.deliver_due_messages()
    assert call.result().payload == "later"
    assert len(woken) == 1


def test_R93_delayed_messages_are_counted_for_all_and_for_each() -> None:
    bus, clock = make()
    for to, delay in (("ada", 10), ("ada", 20), ("bob", 20), ("bob", 0)):
        bus.send(to=to, sender="me", payload=0, delay_ms=delay)
    assert [bus.delayed_count(name) for name in (None, "ada", "bob")] == [3, 2, 1]
    clock.advance(0.01)
    assert bus.delayed_count() == 3, "counting delivers nothing"
    assert bus.deliver_due_messages() == 1
    assert bus.delayed_count("ada") == 1


def test_R93_forcing_delivers_all_in_the_order_of_their_times() -> None:
    bus, clock = make()
    told = events_of(bus)
    for payload, delay in (("late", 900), ("soon", 100), ("due", 10), ("soon too", 100)):
        bus.send(to="ada", sender="me", payload=payload, delay_ms=delay)
    clock.advance(0.01)
    assert bus.force_deliver_all_delayed() == 4
    assert bus.delayed_count() == bus.force_deliver_all_delayed() == 0
    assert [m.payload for m in bus.drain("ada")] == ["due", "soon", "soon too", "late"]
    assert [event for event in told if isinstance(event, DelayedForced)] == [DelayedForced(3)]


def test_R93_a_cancelled_message_never_comes_and_a_delivered_one_can_not_be_cancelled() -> None:
    bus, clock = make()
    gone = bus.send(to="ada", sender="me", payload="gone", delay_ms=10)
    stays = bus.send(to="ada", sender="me", payload="stays", delay_ms=10)
    at_once = bus.send(to="bob", sender="me", payload="at once")
    assert bus.cancel(gone.message_id)
    assert not bus.cancel(gone.message_id)
    assert not bus.cancel(at_once.message_id)
    assert not bus.cancel("no such id")
    clock.advance(0.01)
    assert not bus.cancel(stays.message_id), "it is due, so it is delivered"
    assert [m.payload for m in bus.drain()] == ["stays", "at once"]


def test_R93_a_message_is_rescheduled_to_earlier_later_and_now() -> None:
    bus, clock = make()
    message_id = bus.send(to="ada", sender="me", payload=1, delay_ms=1_000).message_id
    sooner = bus.reschedule(message_id, 10)
    assert sooner is not None
    assert sooner.scheduled_delivery_time == NOON + "0.010000Z"
    assert bus.reschedule(message_id, 5_000) is not None
    clock.advance(1)
    assert bus.receive_next("ada") is None
    told = events_of(bus)
    now = bus.reschedule(message_id, -1)
    assert now is not None
    assert now.scheduled_delivery_time is None
    assert bus.delayed_count() == 0
    assert bus.reschedule(message_id, 1) is None
    assert bus.receive_next("ada") is not None
    assert [type(event) for event in told] == [MessageRescheduled, MessageDelivered]


def test_R95_recipients_are_registered_first_and_once_is_enough() -> None:
    bus, _ = make("ada")
    with pytest.raises(UnknownRecipientError, match=r"'bob' is not registered.*ada"):
        bus.send(to="bob", sender="ada", payload=1)
    bus.register("bob", "ada", "bob")
    assert bus.recipients == ("ada", "bob")
    bus.send(to="bob", sender="nobody in particular", payload=1)
    for name in ("", "a b", "x" * 77, "a.fifo", None, 7):
        with pytest.raises(InvalidParameterError, match="recipient must be"):
            bus.register(name)  # type: ignore[arg-type]


def test_R95_who_is_unregistered_is_forgotten_with_all_messages_also_on_disk() -> None:
    world = DurableWorld()
    world.send("ada")
    world.send("ada", 5)
    world.send("bob", 5)
    waiting = start(lambda: world.bus.wait_for_message("cyd"))
    assert world.bus.unregister("ada") == 2
    assert world.bus.recipients == ("bob", "cyd")
    while not world.bus._recipients["cyd"].session.waiters:
        threading.Event().wait(0.001)
    with pytest.raises(UnknownRecipientError):
        world.send("ada")
    world.bus.unregister("cyd")
    assert waiting.result() is None, "nobody waits for ever"
    world.bus.close()
    world.bus = MessageBus.open("data", clock=world.clock, disk=world.disk)
    assert world.bus.recipients == ("bob",)
    world.bus.register("ada")
    assert (world.bus.delayed_count(), world.bus.drain("ada")) == (1, [])
    world.bus.close()


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"sender": ""}, InvalidParameterError),
        ({"sender": None}, InvalidParameterError),
        ({"task_id": 7}, InvalidParameterError),
        ({"payload": object()}, SerializationError),
        ({"payload": {"x": float("nan")}}, SerializationError),
        ({"payload": "x" * (1 << 20)}, InvalidParameterError),
    ],
)
def test_R95_a_refused_message_leaves_nothing_behind(
    wrong: dict[str, Any], error: type[Exception]
) -> None:
    bus, _ = make()
    with pytest.raises(error):
        bus.send(**{"to": "ada", "sender": "bob", "payload": 1, "delay_ms": 5} | wrong)
    assert (bus.delayed_count(), bus.drain()) == (0, [])


def test_R92_waiting_ends_with_a_message_with_the_time_or_with_the_bus() -> None:
    clock = WatchedClock()
    bus = MessageBus("ada", clock=clock)
    bus.send(to="ada", sender="me", payload="later", delay_ms=10_000)
    call = start(lambda: bus.wait_for_message("ada"))
    clock.wait_until_waiting(2)  # the receiver, and the timer that will wake it
    clock.advance(10)
    assert call.result().payload == "later"

    call = start(lambda: bus.wait_for_message("ada", 5))
    clock.wait_until_waiting(1)
    clock.advance(5)
    assert call.result() is None

    call = start(lambda: bus.wait_for_message("ada"))
    clock.wait_until(lambda: len(bus._recipients["ada"].session.waiters) == 1)
    bus.close()
    assert call.result() is None


def test_R98_the_bus_tells_what_it_scheduled_and_delivered_and_how_late() -> None:
    bus, clock = make()
    told = events_of(bus)
    bus.send(to="bob", sender="ada", payload="at once")
    sent = bus.send(to="ada", sender="bob", payload=1, delay_ms=100)
    clock.advance(0.35)
    bus.deliver_due_messages()
    assert told == [
        MessageScheduled(sent.message_id, "ada", "bob", 100.0, NOON + "0.100000Z"),
        MessageDelivered(
            sent.message_id, "ada", NOON + "0.100000Z", NOON + "0.350000Z", drift_ms=250.0
        ),
    ]
    other = bus.send(to="ada", sender="bob", payload=1, delay_ms=100)
    bus.cancel(other.message_id)
    assert told[3:] == [MessageCancelled(other.message_id, "ada")]


def test_R98_each_event_is_a_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "pillarbox")
    bus, clock = make()
    bus.send(to="ada", sender="bob", payload=1, delay_ms=100)
    clock.advance(0.35)
    bus.deliver_due_messages()
    scheduled, delivered = (record.getMessage() for record in caplog.records)
    assert scheduled.startswith("event='message scheduled' message_id=")
    assert "to='ada' sender='bob' delay_ms=100.0" in scheduled
    assert delivered.startswith("event='delayed message delivered' message_id=")
    assert "drift_ms=250.0" in delivered


def test_R98_a_subscriber_may_use_the_bus_and_a_bad_one_harms_nobody() -> None:
    bus, _ = make()

    def answer(event: MessageScheduled) -> None:
        bus.send(to="bob", sender="me", payload=event.message_id)
        raise RuntimeError("not today")

    bus.dispatcher.subscribe(MessageScheduled, answer)
    with notices() as said:
        sent = bus.send(to="ada", sender="bob", payload=1, delay_ms=5)
    got = bus.receive_next("bob")
    assert got is not None
    assert got.payload == sent.message_id
    assert any("not today" in line for line in said)


def test_R95_closing_a_bus_in_memory_warns_with_the_count(caplog: pytest.LogCaptureFixture) -> None:
    bus, _ = make()
    told = events_of(bus)
    for _ in range(3):
        bus.send(to="ada", sender="bob", payload=1, delay_ms=5)
    bus.close()
    bus.close()
    assert told[3:] == [DelayedAbandoned(3)]
    (warning,) = (record for record in caplog.records if record.levelname == "WARNING")
    assert "abandoned" in warning.getMessage()
    assert "count=3" in warning.getMessage()
    for verb in (
        lambda: bus.send(to="ada", sender="bob", payload=1),
        lambda: bus.receive_next("ada"),
        lambda: bus.register("eve"),
        bus.deliver_due_messages,
    ):
        with pytest.raises(MailboxClosedError):
            verb()


@pytest.mark.parametrize(
    "url", ["http://localhost:9324/agents", "redis://localhost/agents", "memory:agents"]
)
def test_R91_a_url_is_no_directory_for_a_bus(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidParameterError, match="a directory on this machine") as refused:
        MessageBus.open(url, "ada")
    assert url in str(refused.value)
    assert list(tmp_path.iterdir()) == []


def test_R91_a_file_url_is_the_directory_it_names(tmp_path: Path) -> None:
    with MessageBus.open(f"file:{tmp_path}/bus", "ada") as bus:
        bus.send(to="ada", sender="bob", payload="tea")
    with MessageBus.open(tmp_path / "bus") as bus:
        assert bus.receive_next("ada").payload == "tea"  # type: ignore[union-attr]


def test_R91_on_disk_recipients_messages_and_times_survive(tmp_path: Path) -> None:
    clock = FakeClock()
    with MessageBus.open(tmp_path / "bus", "ada", "bob", clock=clock) as bus:
        told = events_of(bus)
        first = bus.send(to="ada", sender="bob", payload={"n": 1})
        later = bus.send(to="ada", sender="bob", payload={"n": 2}, delay_ms=100)
    assert told[-1] == DelayedKept(1)
    with MessageBus.open(tmp_path / "bus", clock=clock) as bus:
        assert bus.recipients == ("ada", "bob")
        got = bus.receive_next("ada")
        assert got is not None
        assert (got.id, got.payload) == (first.message_id, {"n": 1})
        clock.advance(0.1)
        assert bus.deliver_due_messages() == 1
        assert [m.id for m in bus.drain()] == [later.message_id]


def test_R91_what_a_dead_process_held_comes_back_at_once_and_is_counted() -> None:
    world = DurableWorld()
    world.send("ada")
    held = world.bus._lease("ada")
    assert held is not None
    asyncio.run(world.bus._store.recorded())
    world.restart("kill")
    again = world.bus._lease("ada")
    assert again is not None
    assert (again.id, again.delivery_count) == (held.id, 2)
    world.bus.close()


def test_R91_what_kills_its_process_each_time_reaches_the_dead_letters() -> None:
    world = DurableWorld()
    poison = world.send("ada")
    for _ in range(5):
        assert world.bus._lease("ada") is not None
        asyncio.run(world.bus._store.recorded())
        world.restart("kill")
    assert world.bus.receive_next("ada") is None
    assert [m.id for m in world.bus.dead_letters("ada")] == [poison.result.message_id]
    assert world.bus.recipients == ("ada", "bob", "cyd")
    assert world.bus.redrive("ada") == 1
    assert world.bus.receive_next("ada") is not None
    world.bus.close()


def test_R91_a_message_that_was_received_does_not_come_back_after_power_loss() -> None:
    world = DurableWorld()
    world.send("ada")
    assert world.bus.receive_next("ada") is not None
    world.restart("power")
    assert world.bus.receive_next("ada") is None
    world.bus.close()


def test_R20_many_threads_send_and_receive_and_each_message_comes_once() -> None:
    bus = MessageBus("ada", "bob", "cyd")
    names = ("ada", "bob", "cyd")

    def write(first: int) -> None:
        for number in range(first, first + 300):
            bus.send(
                to=names[number % 3], sender="me", payload=number, delay_ms=number % 2 and 0.01
            )

    def read(name: str) -> list[int]:
        got: list[int] = []
        while (message := bus.wait_for_message(name, 20)) and message.payload is not None:
            got.append(message.payload)
        return got

    readers = [start(lambda n=n: read(n)) for n in names]  # type: ignore[misc]
    writers = [start(lambda n=n: write(n * 300)) for n in range(4)]  # type: ignore[misc]
    for writer in writers:
        writer.future.result()
    bus.force_deliver_all_delayed()
    for name in names:
        bus.send(to=name, sender="me", payload=None)
    got = sorted(number for reader in readers for number in reader.future.result())
    assert got == list(range(1_200))


def test_R90_the_async_bus_has_the_same_verbs() -> None:
    async def story(bus: AsyncMessageBus, clock: FakeClock) -> None:
        async with bus:
            told = events_of(bus.bus)
            await bus.send(to="ada", sender="bob", payload="now", task_id="t")
            got = await bus.receive_next("ada")
            assert got is not None
            assert (got.payload, got.task_id) == ("now", "t")
            assert await bus.receive_next("ada") is None

            waiting = asyncio.create_task(bus.wait_for_message("ada", 60))
            await asyncio.sleep(0)
            later = await bus.send(to="ada", sender="bob", payload="later", delay_ms=10)
            assert await bus.delayed_count("ada") == 1
            clock.advance(0.01)
            assert (await waiting).payload == "later"  # type: ignore[union-attr]
            assert [type(event) for event in told] == [MessageScheduled, MessageDelivered]
            assert not await bus.cancel(later.message_id)

            ids = [
                (await bus.send(to="bob", sender="ada", payload=n, delay_ms=9)).message_id
                for n in range(4)
            ]
            assert await bus.cancel(ids[0])
            assert (await bus.reschedule(ids[1], 500)) is not None
            clock.advance(0.009)
            assert await bus.deliver_due_messages() == 2
            assert await bus.force_deliver_all_delayed() == 1
            assert [m.payload for m in await bus.drain()] == [2, 3, 1]

            with pytest.raises(UnknownRecipientError):
                await bus.wait_for_message("eve")
            for _ in range(2):  # what was removed can be registered again
                await bus.register("eve")
                await bus.send(to="eve", sender="ada", payload=1)
                got = await bus.wait_for_message("eve")
                assert got is not None
                assert await bus.unregister("eve") == 0
            await bus.send(to="ada", sender="bob", payload="bad")
            (message,) = bus.bus._recipient("ada").box.receive()
            assert message.reject("unreadable")
            assert [m.payload for m in await bus.dead_letters("ada")] == ["bad"]
            assert await bus.redrive("ada") == 1
            assert (await bus.receive_next("ada")).payload == "bad"  # type: ignore[union-attr]
        assert bus.bus.closed

    for open_bus in (
        lambda clock: MessageBus("ada", "bob", clock=clock),
        lambda clock: MessageBus.open("data", "ada", "bob", clock=clock, disk=SimDisk()),
    ):
        clock = FakeClock()
        asyncio.run(story(AsyncMessageBus(open_bus(clock)), clock))


def test_R90_the_async_wait_ends_with_the_time_and_gives_back_what_a_cancelled_one_got() -> None:
    async def story() -> None:
        clock = FakeClock()
        bus = AsyncMessageBus(MessageBus("ada", clock=clock))
        waiting = asyncio.create_task(bus.wait_for_message("ada", 5))
        await asyncio.sleep(0)
        clock.advance(5)
        assert await waiting is None

        waiting = asyncio.create_task(bus.wait_for_message("ada"))
        await asyncio.sleep(0)
        await bus.send(to="ada", sender="me", payload=1)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert await bus.receive_next("ada") is not None

    asyncio.run(story())


def test_R90_an_async_send_on_disk_does_not_block_the_loop_while_it_syncs() -> None:
    entered, go_on = threading.Event(), threading.Event()
    disk = SimDisk()
    bus = MessageBus.open("data", "ada", disk=disk, clock=FakeClock())
    syncing = False

    def slow(operation: str, path: str) -> None:
        if operation == "fdatasync" and syncing:
            entered.set()
            assert go_on.wait(20)

    async def story() -> None:
        nonlocal syncing
        syncing = True
        told = events_of(bus)
        sending = asyncio.create_task(
            AsyncMessageBus(bus).send(to="ada", sender="me", payload=1, delay_ms=5)
        )
        while not entered.is_set():  # noqa: ASYNC110 - the sync is in another thread
            await asyncio.sleep(0)
        assert not sending.done()
        assert told == [], "nothing is told before it is confirmed"
        go_on.set()
        await sending
        assert len(told) == 1

    disk.before = slow
    asyncio.run(story())
    bus.close()


def test_R91_dead_letters_of_another_program_are_shown(tmp_path: Path) -> None:
    MessageBus.open(tmp_path, "ada").close()
    with DurableMailbox("ada", str, path=tmp_path) as box:
        box.send("no letter")
    with MessageBus.open(tmp_path) as bus:
        assert bus.receive_next("ada") is None
        (dead,) = bus.dead_letters("ada")
        assert (dead.to, dead.sender) == ("ada", "")
        assert "can't be read as Letter" in dead.payload["undecodable"]
