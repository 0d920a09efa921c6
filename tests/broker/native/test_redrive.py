"""R35, R39: a client moves and deletes very many messages in parts, each answered in time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from pillarbox import open_async_mailbox, open_mailbox
from pillarbox.mailbox.broker import BrokerMailbox
from pillarbox.mailbox.broker import verbs as module
from pillarbox.mailbox.broker.verbs import PART
from pillarbox.mailbox.broker.wire import Moved
from pillarbox.mailbox.runner import run_sync
from pillarbox.testing.broker import RunningBroker, running_broker

COUNT = 2 * PART + 1
PARTS = 3


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with running_broker() as url:
        yield url


def filled(broker: RunningBroker, name: str, count: int) -> BrokerMailbox[int]:
    box = BrokerMailbox(name, int, url=str(broker))
    for first in range(0, count, PART):
        box.send_many(range(first, min(count, first + PART)))
    return box


def test_R39_a_long_redrive_is_asked_for_in_parts(broker: RunningBroker) -> None:
    box = filled(broker, "long", COUNT)
    with box, open_mailbox(f"{broker}/long-target", int) as target:
        asked = broker.broker.metrics.requests["StartMessageMoveTask"]

        assert box.redrive(to="long-target") == COUNT

        assert broker.broker.metrics.requests["StartMessageMoveTask"] == asked + PARTS
        assert (box.stats().ready, target.stats().ready) == (0, COUNT)
        assert [each.body for each in target.receive(max_messages=3)] == [0, 1, 2]


def test_R39_a_long_redrive_of_asyncio_is_asked_for_in_parts(broker: RunningBroker) -> None:
    filled(broker, "along", COUNT).close()

    async def main() -> None:
        async with (
            open_async_mailbox(f"{broker}/along", int) as source,
            open_async_mailbox(f"{broker}/along-target", int) as target,
        ):
            asked = broker.broker.metrics.requests["StartMessageMoveTask"]

            assert await source.redrive(to="along-target") == COUNT

            assert broker.broker.metrics.requests["StartMessageMoveTask"] == asked + PARTS
            assert (await target.stats()).ready == COUNT

    asyncio.run(main())


def test_R39_a_redrive_moves_what_was_there_and_not_what_comes_meanwhile(
    broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PART", 2)
    with filled(broker, "busy", 5) as box, open_mailbox(f"{broker}/busy-target", int):
        moved: list[int] = []
        real = box._connection.do

        def do(call: Any) -> Any:
            answer = real(call)
            if isinstance(answer, Moved):
                moved.append(answer.moved)
                box.send_many([100, 101, 102])
            return answer

        monkeypatch.setattr(box, "_run", partial(run_sync, do))

        assert box.redrive(to="busy-target") == 5
        assert moved == [2, 2, 1]
        assert box.stats().ready == 3 * len(moved)


def test_R39_messages_without_a_source_do_not_stand_in_the_way(
    broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PART", 2)
    with open_mailbox(f"{broker}/mixed", int) as box:
        dead = box.dead_letters
        assert dead is not None
        dead.send_many([1, 2, 3])
        box.send_many([4, 5, 6])
        for message in box.receive(max_messages=3):
            message.reject("no")

        assert dead.redrive() == 3

        assert [each.body for each in dead.peek()] == [1, 2, 3]
        assert [each.body for each in box.peek()] == [4, 5, 6]


def test_R39_more_ids_than_one_request_may_name_are_deleted(broker: RunningBroker) -> None:
    with BrokerMailbox("deleted", int, url=str(broker)) as box:
        ids = [each for _ in range(6) for each in box.send_many(range(PART))]

        assert box.delete(ids) == 6 * PART
