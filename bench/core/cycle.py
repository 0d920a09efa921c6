"""Send, receive, acknowledge: the full cycle of a message, one at a time and in batches."""

from __future__ import annotations

import asyncio
import importlib
import queue
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from bench.harness import Contender, Race, Run, Sized, Versus
from pillarbox import AsyncInMemoryMailbox, InMemoryMailbox

T = TypeVar("T")

kombu: Any = importlib.import_module("kombu")  # it hides its names from type checkers

BODY = "an order for two pillar boxes, red"
BATCH = 100
SLICES = 20  # a round of each race here is so many short turns: the machine is noisy for all


def cycling(box: InMemoryMailbox[T], body: T) -> Run:
    """Each operation is one message's life, through the calls that users make."""

    def run(operations: int) -> None:
        send, receive = box.send, box.receive
        for _ in range(operations):
            send(body)
            (message,) = receive()
            message.acknowledge()

    return run


@contextmanager
def pillarbox_cycle() -> Iterator[Run]:
    box: InMemoryMailbox[str] = InMemoryMailbox("bench", str)

    yield cycling(box, BODY)
    assert box.approximate_count() == 0


@contextmanager
def pillarbox_batches() -> Iterator[Run]:
    box: InMemoryMailbox[str] = InMemoryMailbox("bench", str)
    bodies = [BODY] * BATCH

    def run(operations: int) -> None:
        for _ in range(max(1, operations // BATCH)):
            box.send_many(bodies)
            box.acknowledge_many(box.receive(max_messages=BATCH))

    yield run
    assert box.approximate_count() == 0


@contextmanager
def queue_cycle() -> Iterator[Run]:
    line: queue.Queue[str] = queue.Queue()

    def run(operations: int) -> None:
        put, get, task_done = line.put, line.get, line.task_done
        for _ in range(operations):
            put(BODY)
            get()
            task_done()

    yield run
    assert line.empty()


@contextmanager
def simple_queue_cycle() -> Iterator[Run]:
    line: queue.SimpleQueue[str] = queue.SimpleQueue()

    def run(operations: int) -> None:
        put, get = line.put, line.get
        for _ in range(operations):
            put(BODY)
            get()

    yield run
    assert line.empty()


@contextmanager
def kombu_simple() -> Iterator[Run]:
    """What kombu's documentation shows first."""
    with kombu.Connection("memory://") as connection:
        line = connection.SimpleQueue("bench-simple")

        def run(operations: int) -> None:
            for _ in range(operations):
                line.put(BODY)
                message = line.get(block=False)
                assert message.payload
                message.ack()

        yield run
        line.close()


@contextmanager
def kombu_producer() -> Iterator[Run]:
    """The quickest of the calls meant for applications: plain text, nothing declared again."""
    with kombu.Connection("memory://") as connection:
        channel = connection.channel()
        line = kombu.Queue("bench-producer")(channel)
        line.declare()
        producer = kombu.Producer(channel, routing_key=line.name, auto_declare=False)

        def run(operations: int) -> None:
            for _ in range(operations):
                producer.publish(BODY, content_type="text/plain", content_encoding="utf-8")
                message = line.get()
                assert message.payload
                message.ack()

        yield run


@contextmanager
def kombu_channel() -> Iterator[Run]:
    """Beneath that: the calls of a channel, with messages put together by hand."""
    with kombu.Connection("memory://") as connection:
        channel = connection.channel()
        kombu.Queue("bench-channel")(channel).declare()

        def run(operations: int) -> None:
            prepare, publish = channel.prepare_message, channel.basic_publish
            for _ in range(operations):
                message = prepare(BODY, 0, "text/plain", "utf-8", {}, {"delivery_mode": 1})
                publish(message, "", "bench-channel")
                received = channel.basic_get("bench-channel")
                assert received.payload
                channel.basic_ack(received.delivery_tag)

        yield run


@contextmanager
def async_pillarbox_cycle() -> Iterator[Run]:
    box: AsyncInMemoryMailbox[str] = AsyncInMemoryMailbox("bench", str)

    async def cycle(operations: int) -> None:
        for _ in range(operations):
            await box.send(BODY)
            (message,) = await box.receive()
            await message.acknowledge()

    with asyncio.Runner() as runner:
        yield lambda operations: runner.run(cycle(operations))
        assert runner.run(box.approximate_count()) == 0


@contextmanager
def async_queue_cycle() -> Iterator[Run]:
    line: asyncio.Queue[str] = asyncio.Queue()

    async def cycle(operations: int) -> None:
        for _ in range(operations):
            await line.put(BODY)
            await line.get()
            line.task_done()

    with asyncio.Runner() as runner:
        yield lambda operations: runner.run(cycle(operations))
        assert line.empty()


def one_thread(sized: Sized) -> Race:
    many, few = sized(200_000), sized(10_000)
    versus = (
        Versus("queue.Queue", speed_at_least=1.0),
        Versus("queue.SimpleQueue"),
        Versus("kombu Producer", speed_at_least=15),
        Versus("kombu SimpleQueue", speed_at_least=15),
        Versus("kombu channel"),
    )
    return Race(
        "full cycle, one thread",
        (
            Contender("Pillarbox", pillarbox_cycle, many, versus),
            Contender("queue.Queue", queue_cycle, many),
            Contender("queue.SimpleQueue", simple_queue_cycle, many),
            Contender("kombu Producer", kombu_producer, few),
            Contender("kombu SimpleQueue", kombu_simple, few),
            Contender("kombu channel", kombu_channel, few),
        ),
        slices=SLICES,
    )


def event_loop(sized: Sized) -> Race:
    many = sized(200_000)
    return Race(
        "full cycle, one event loop",
        (
            Contender("Pillarbox", async_pillarbox_cycle, many, (Versus("asyncio.Queue"),)),
            Contender("asyncio.Queue", async_queue_cycle, many),
        ),
        slices=SLICES,
    )


def batches(sized: Sized) -> Race:
    many = sized(200_000)
    versus = (Versus("queue.Queue", speed_at_least=4),)
    return Race(
        f"full cycle of a message, in batches of {BATCH}",
        (
            Contender("Pillarbox", pillarbox_batches, many, versus),
            Contender("queue.Queue", queue_cycle, many),
        ),
        slices=SLICES,
    )
