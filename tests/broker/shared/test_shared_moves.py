"""R141: move tasks are in the store: any broker lists and cancels them, and goes on with them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import msgspec
import pytest

from pillarbox.broker.moves import MoveTask
from pillarbox.broker.shared_moves import SharedMoves
from pillarbox.testing.broker import RunningBroker, running_broker
from tests.broker.server_process import Server
from tests.broker.shared.stores import KINDS, SharedClock, StoreKind
from tests.broker.support import Client, eventually


def dead_letters(sqs: Client, count: int) -> tuple[str, str]:
    """A queue, and its dead-letter queue with so many messages."""
    dead = sqs.create()
    policy = {"deadLetterTargetArn": sqs.arn(dead), "maxReceiveCount": 1}
    queue = sqs.create(RedrivePolicy=json.dumps(policy))
    for first in range(0, count, 10):
        entries = [
            {"Id": str(number), "MessageBody": str(number)}
            for number in range(first, min(first + 10, count))
        ]
        sqs("SendMessageBatch", QueueUrl=queue, Entries=entries)
    for _ in range(-(-count // 10)):
        sqs.receive(queue, VisibilityTimeout=0)
    while sqs.counts(dead)[0] < count:
        assert sqs.receive(queue) == []
    return queue, dead


def task_of(sqs: Client, arn: str) -> dict[str, Any]:
    task: dict[str, Any] = sqs("ListMessageMoveTasks", SourceArn=arn)["Results"][0]
    return task


@pytest.fixture
def fleeting(kind: StoreKind, clock: SharedClock) -> Iterator[RunningBroker]:
    """A third broker, which stops doing anything of its own accord when a test says so."""
    with running_broker(clock=clock, shared_store=kind.open()) as url:
        yield url


def freeze(url: RunningBroker) -> None:
    """No heartbeat and no task goes on, as if its process was killed."""
    broker = url.broker
    assert broker.shared is not None

    async def stop() -> None:
        tasks = [broker.shared.heartbeat._beating, *broker.moves._running.values()]  # type: ignore[union-attr]
        for each in tasks:
            assert each is not None
            each.cancel()
        await asyncio.gather(*filter(None, tasks), return_exceptions=True)

    asyncio.run_coroutine_threadsafe(stop(), url.loop).result()


def _abandoned(world: Any, fleeting: RunningBroker) -> tuple[str, str]:
    """The dead-letter queue, and its source, of a task whose broker died half-way."""
    sqs = world.sqs
    queue, dead = dead_letters(sqs, 5)
    arn = sqs.arn(dead)
    with Client(fleeting) as theirs:
        theirs("StartMessageMoveTask", SourceArn=arn, MaxNumberOfMessagesPerSecond=2)
    eventually(lambda: task_of(sqs, arn)["ApproximateNumberOfMessagesMoved"] == 2)
    freeze(fleeting)
    world.clock.advance(11)  # its heartbeat is too old
    return queue, arn


def test_R141_another_broker_goes_on_with_the_task_of_one_that_died(
    world: Any, fleeting: RunningBroker
) -> None:
    queue, arn = _abandoned(world, fleeting)
    eventually(lambda: task_of(world.sqs, arn)["ApproximateNumberOfMessagesMoved"] >= 4)
    assert task_of(world.sqs, arn)["Status"] == "RUNNING"  # at its rate
    world.clock.advance(1.1)
    eventually(lambda: task_of(world.sqs, arn)["ApproximateNumberOfMessagesMoved"] == 5)
    world.clock.advance(1.1)
    eventually(lambda: task_of(world.sqs, arn)["Status"] == "COMPLETED")
    assert sorted(world.sqs.bodies(queue)) == list("01234")


def test_R141_control_nobody_goes_on_if_nobody_looks(
    world: Any, fleeting: RunningBroker, brokers: list[RunningBroker], monkeypatch: Any
) -> None:
    async def look(self: SharedMoves, alive: set[str]) -> None:
        looked.append(alive)

    looked: list[set[str]] = []
    monkeypatch.setattr(SharedMoves, "look", look)
    queue, arn = _abandoned(world, fleeting)
    looked.clear()
    eventually(lambda: len(looked) >= 2 * len(brokers))
    assert task_of(world.sqs, arn)["ApproximateNumberOfMessagesMoved"] == 2
    assert len(world.sqs.bodies(queue)) == 2


def test_R141_a_broker_reports_on_though_it_can_not_read_the_tasks(
    brokers: list[RunningBroker], monkeypatch: Any
) -> None:
    """As if a newer broker had written them."""
    tries: list[int] = []

    async def look(self: SharedMoves, alive: set[str]) -> None:
        tries.append(1)
        raise msgspec.ValidationError("Expected `object`, got `array`")

    monkeypatch.setattr(SharedMoves, "look", look)
    eventually(lambda: len(tries) >= 2 * len(brokers) + 1)


def test_R141_a_broker_that_stops_takes_up_no_task(kind: StoreKind, clock: SharedClock) -> None:
    with running_broker(clock=clock, shared_store=kind.open()) as url, Client(url) as sqs:
        _, dead = dead_letters(sqs, 3)
        sqs("StartMessageMoveTask", SourceArn=sqs.arn(dead), MaxNumberOfMessagesPerSecond=1)
        broker = url.broker
        assert isinstance(broker.moves, SharedMoves)
        moves = broker.moves

        async def stop() -> set[str]:
            broker.closed = True
            await moves.stop()
            await moves.look(set())
            return set(moves._running)

        assert asyncio.run_coroutine_threadsafe(stop(), url.loop).result() == set()


def test_R141_a_task_runs_once_however_often_it_is_started(
    world: Any, brokers: list[RunningBroker]
) -> None:
    _, dead = dead_letters(world.sqs, 1)
    broker = brokers[0].broker
    task = MoveTask("task", dead.rpartition("/")[2], None, None, 1, 0, owner=broker.moves.id)

    async def run() -> int:
        before = len(asyncio.all_tasks())
        broker.moves._run(task)
        broker.moves._run(task)
        return len(asyncio.all_tasks()) - before

    assert asyncio.run_coroutine_threadsafe(run(), brokers[0].loop).result() == 1


def test_R141_a_move_keeps_the_order_of_a_group_that_was_looked_at(world: Any) -> None:
    sqs = world.sqs
    dead = sqs.create(fifo=True)
    policy = {"deadLetterTargetArn": sqs.arn(dead), "maxReceiveCount": 1}
    queue = sqs.create(fifo=True, RedrivePolicy=json.dumps(policy))
    for body in "abc":
        sqs.send(queue, body, MessageGroupId="g", MessageDeduplicationId=body)
    sqs.receive(queue, VisibilityTimeout=0)
    assert sqs.receive(queue) == []
    sqs.receive(dead, VisibilityTimeout=0)  # the group is behind the others now
    sqs("StartMessageMoveTask", SourceArn=sqs.arn(dead), MaxNumberOfMessagesPerSecond=1)

    def is_moved() -> bool:
        world.clock.advance(2)
        return bool(sqs.counts(queue)[0] == 3)

    eventually(is_moved)
    assert sqs.bodies(queue) == ["a", "b", "c"]


def test_R141_a_task_is_gone_with_its_queue(world: Any) -> None:
    sqs = world.sqs
    _, dead = dead_letters(sqs, 1)
    arn = sqs.arn(dead)
    sqs("StartMessageMoveTask", SourceArn=arn, MaxNumberOfMessagesPerSecond=1)
    sqs("DeleteQueue", QueueUrl=dead)
    name = dead.rpartition("/")[2]
    sqs("CreateQueue", QueueName=name)
    assert sqs("ListMessageMoveTasks", SourceArn=arn) == {"Results": []}


def _moved_on(task: dict[str, Any], before: int) -> bool:
    return task["Status"] == "COMPLETED" or task["ApproximateNumberOfMessagesMoved"] > before


@pytest.mark.soak
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_R141_a_move_survives_kill_9_of_the_broker_that_runs_it(kind: type[StoreKind]) -> None:
    count, store = 600, kind()
    with ExitStack() as stack:
        stack.callback(store.close)
        servers = [stack.enter_context(Server("--store", store.url)) for _ in range(2)]
        sqs = [stack.enter_context(Client(server.url)) for server in servers]
        queue, dead = dead_letters(sqs[0], count)
        arn = sqs[0].arn(dead)
        sqs[0]("StartMessageMoveTask", SourceArn=arn, MaxNumberOfMessagesPerSecond=100)
        for victim, other in ((0, 1), (1, 0)):
            before = task_of(sqs[other], arn)["ApproximateNumberOfMessagesMoved"]
            eventually(lambda: _moved_on(task_of(sqs[other], arn), before), 60)  # noqa: B023
            servers[victim].kill()
            servers[victim].start()
            sqs[victim] = stack.enter_context(Client(servers[victim].url))
        eventually(lambda: task_of(sqs[0], arn)["Status"] == "COMPLETED", 60)
        found: list[str] = []
        while more := sqs[0].bodies(queue, VisibilityTimeout=600):
            found += more
        assert sorted(map(int, found)) == list(range(count))
        assert sqs[0].counts(dead) == (0, 0, 0)
