"""R57: whoever hangs up, cancels or closes loses no message and burns no delivery."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Coroutine, Iterator
from typing import Any, TypeVar
from urllib.parse import urlsplit

import pytest

from pillarbox import open_async_mailbox, open_mailbox
from pillarbox.core.errors import MailboxClosedError
from pillarbox.mailbox.broker import wire
from pillarbox.mailbox.broker.async_channel import AsyncChannels
from pillarbox.testing.broker import RunningBroker, running_broker
from tests.broker.native.support import until

R = TypeVar("R")


@pytest.fixture
def broker() -> Iterator[RunningBroker]:
    with running_broker() as url:
        yield url


def run(work: Coroutine[Any, Any, R]) -> R:
    return asyncio.run(asyncio.wait_for(work, 30))


def parked(broker: RunningBroker, count: int = 1) -> None:
    waiters = broker.broker.store.sessions["orders"].waiters
    until(lambda: len(waiters) == count, f"{count} receives are parked")


def raw_poll(url: str, *, count: int = 1) -> socket.socket:
    """A parked receive, on a connection that a test can end as it likes."""
    parts = urlsplit(url)
    link = socket.create_connection((parts.hostname, parts.port), 10)
    command = wire.Receive(count, 30_000_000, 20_000_000)
    body = wire.encode(wire.Request(b"c" * 16, 1, "", [command]))
    head = (
        f"POST {wire.PATH}/orders HTTP/1.1\r\nHost: localhost\r\n"
        "Content-Type: application/msgpack\r\n"
    )
    link.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    return link


@pytest.mark.parametrize("how", ["close", "reset", "half"])
def test_R57_a_parked_client_that_is_gone_is_given_nothing(broker: RunningBroker, how: str) -> None:
    with open_mailbox(f"{broker}/orders", str) as box:
        link = raw_poll(broker)
        parked(broker)
        if how == "reset":
            link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        if how == "half":
            link.shutdown(socket.SHUT_WR)
        else:
            link.close()
        parked(broker, 0)
        box.send("a")
        assert [message.delivery_count for message in box.receive()] == [1]
        link.close()


def test_R57_an_answer_that_was_never_written_goes_back_to_the_front(
    broker: RunningBroker,
) -> None:
    """The broker's loop is held up, so that a message is given to a client that hangs up."""
    with open_mailbox(f"{broker}/orders", str) as box:
        link = raw_poll(broker, count=2)
        parked(broker)
        held, go_on = threading.Event(), threading.Event()
        broker.loop.call_soon_threadsafe(lambda: (held.set(), go_on.wait(10)))
        held.wait(10)
        broker.broker.store.sessions["orders"].send((b"a", b"b", b"c"))  # it is served right here
        link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        link.close()
        go_on.set()
        until(lambda: broker.broker.store.sessions["orders"].queue.in_flight == 0, "given back")
        found = box.receive(max_messages=10)
        assert [(m.body, m.delivery_count) for m in found] == [("a", 1), ("b", 1), ("c", 1)]


def test_R24_closing_beside_a_send_loses_nothing(broker: RunningBroker) -> None:
    """Either the closing receive has the message or it is still there; never neither."""
    with open_mailbox(f"{broker}/orders", str) as other:
        for number in range(50):
            box = open_mailbox(f"{broker}/orders", str)
            got: list[Any] = []
            taker = threading.Thread(
                target=lambda box=box, got=got: got.extend(box.receive(wait_time_seconds=20))
            )
            taker.start()
            parked(broker)
            sender = threading.Thread(target=lambda n=number: other.send(str(n)))
            sender.start()
            box.close()
            sender.join()
            taker.join()
            got = got or list(other.receive(wait_time_seconds=5))  # it is on its way back
            assert [(m.body, m.delivery_count) for m in got] == [(str(number), 1)]
            assert got[0].acknowledge() is True
        assert other.stats().total == 0


def test_R14_cancelling_a_parked_receive_loses_nothing_and_counts_nothing(
    broker: RunningBroker,
) -> None:
    async def case() -> None:
        box = await open_async_mailbox(f"{broker}/orders", str).open()
        task = asyncio.create_task(box.receive(wait_time_seconds=20))
        await asyncio.to_thread(parked, broker)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.to_thread(parked, broker, 0)
        await box.send("a")
        (message,) = await box.receive()
        assert message.delivery_count == 1
        await box.close()

    run(case())


async def some_turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def served_and_cancelled(broker: RunningBroker) -> list[tuple[str, int]]:
    """A receive is cancelled while its answer is on the way; what is there after that."""
    box = await open_async_mailbox(f"{broker}/orders", str).open()
    task = asyncio.create_task(box.receive(max_messages=2, wait_time_seconds=20))
    await asyncio.to_thread(parked, broker)
    session = broker.broker.store.sessions["orders"]
    session.send((b"a", b"b", b"c"))  # in this thread: our loop has no chance to read the answer
    until(lambda: broker.broker.metrics.of("orders").received == 2, "it was served")
    asyncio.run_coroutine_threadsafe(some_turns(), broker.loop).result(10)  # and written
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    found: list[tuple[str, int]] = []
    for _ in range(3):
        for message in await box.receive(max_messages=3, wait_time_seconds=2):
            found.append((message.body, message.delivery_count))
        if len(found) == 3:
            break
    await box.close()
    return found


def test_R14_cancelling_a_receive_that_was_just_served_gives_its_messages_back(
    broker: RunningBroker,
) -> None:
    found = run(served_and_cancelled(broker))
    assert sorted(found) == [("a", 1), ("b", 1), ("c", 1)]


def test_R14_control_without_the_leftover_the_messages_stay_with_nobody(
    broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(AsyncChannels, "_return_messages", lambda self, queue, answer: None)
    assert run(served_and_cancelled(broker)) == [("c", 1)]


def test_R14_a_receive_that_is_out_of_time_by_wait_for_loses_nothing(
    broker: RunningBroker,
) -> None:
    async def case() -> None:
        box = await open_async_mailbox(f"{broker}/orders", str).open()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(box.receive(wait_time_seconds=20), 0.05)
        await asyncio.to_thread(parked, broker, 0)
        await box.send("a")
        (message,) = await box.receive()
        assert message.delivery_count == 1
        await box.close()

    run(case())


def test_R24_a_closed_async_mailbox_refuses(broker: RunningBroker) -> None:
    async def case() -> None:
        async with open_async_mailbox(f"{broker}/orders", str) as box:
            polls = [asyncio.create_task(box.receive(wait_time_seconds=20)) for _ in range(20)]
            await asyncio.to_thread(parked, broker, 20)
        assert await asyncio.gather(*polls) == [[]] * 20
        with pytest.raises(MailboxClosedError):
            await box.send("a")
        await asyncio.to_thread(
            until, lambda: not broker.broker.http_server.connections, "all ended"
        )

    run(case())


def test_R58_a_broker_that_stops_answers_whoever_is_parked() -> None:
    with running_broker() as broker:
        box = open_mailbox(f"{broker}/orders", str)
        got: list[Any] = ["nothing yet"]
        taker = threading.Thread(
            target=lambda: got.__setitem__(0, box.receive(wait_time_seconds=20))
        )
        taker.start()
        parked(broker)
    taker.join(10)
    assert got == [[]]
    box.close()
