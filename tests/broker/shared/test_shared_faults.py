"""R141: lost answers, queues that come and go, and work that is done in part."""

from __future__ import annotations

import asyncio
import json
from itertools import pairwise
from typing import Any

import pytest

from pillarbox import DeadLetterPolicy, MailboxConnectionError, open_mailbox
from pillarbox.broker.config import Config, DeclaredQueue
from pillarbox.core.limits import SECOND_NS
from pillarbox.dashboard.admin import QueueAdmin
from pillarbox.mailbox.redis.shared import RedisSharedStore
from pillarbox.mailbox.runner import run_async
from pillarbox.mailbox.shared import StaleQueueError
from pillarbox.testing.broker import RunningBroker, running_broker
from pillarbox.testing.redis import shared_server
from tests.broker.shared.stores import SharedClock, StoreKind
from tests.broker.support import Client, Refused
from tests.redis.test_moves import Died, die_at
from tests.redis.world import new_name, open_box


def policy(arn: str, most: int = 1) -> str:
    return json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": most})


def test_R39_a_chain_may_be_declared_in_any_order(kind: StoreKind, clock: SharedClock) -> None:
    names = [new_name(word) for word in ("first", "second", "last")]
    queues = {
        name: DeclaredQueue(
            attributes={
                "RedrivePolicy": {
                    "deadLetterTargetArn": f"arn:aws:sqs:us-east-1:000000000000:{dead}",
                    "maxReceiveCount": 2,
                }
            }
        )
        for name, dead in pairwise(names)
    } | {names[-1]: DeclaredQueue(attributes={"VisibilityTimeout": 7})}
    config = Config(port=0, data=None, queues=queues)
    with (
        running_broker(config=config, clock=clock, shared_store=kind.open()) as url,
        Client(url) as sqs,
    ):
        for name, dead in pairwise(names):
            assert dead in sqs.attributes(name)["RedrivePolicy"]
        assert sqs.attributes(names[-1])["VisibilityTimeout"] == "7"


def test_R141_a_mailbox_may_bring_a_deleted_queue_back(world: Any, kind: StoreKind) -> None:
    sqs = world.sqs
    name = new_name()
    sqs("CreateQueue", QueueName=name)
    with open_mailbox(f"{kind.url}/{name}", str) as box:
        sqs("DeleteQueue", QueueUrl=name)
        box.send("a")
        sqs("CreateQueue", QueueName=name)
        assert sqs.bodies(name) == ["a"]


def test_R141_what_a_batch_could_not_send_fails_by_entry(
    brokers: list[RunningBroker], monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = brokers[0].broker.shared
    assert shared is not None
    real, calls = shared.store.do, []

    async def do(request: Any) -> Any:
        script = getattr(request, "script", None)
        if (script is not None and script.name == "send") or "pillarbox.send(" in getattr(
            request, "statement", ""
        ):
            calls.append(1)
            if len(calls) == 2:
                raise MailboxConnectionError("the server can't be reached")
        return await real(request)

    with Client(brokers[0]) as sqs:
        queue = sqs.create()
        monkeypatch.setattr(shared.store, "do", do)
        entries = [
            {"Id": str(delay), "MessageBody": str(delay), "DelaySeconds": delay}
            for delay in (0, 1, 2)
        ]
        answer = sqs("SendMessageBatch", QueueUrl=queue, Entries=entries)
        assert [each["Id"] for each in answer["Successful"]] == ["0"]
        assert [(each["Id"], each["SenderFault"]) for each in answer["Failed"]] == [
            ("1", False),
            ("2", False),
        ]
        monkeypatch.undo()
        assert sqs.counts(queue) == (1, 0, 0)


def test_R39_a_queue_whose_dead_letter_queue_is_away_can_be_tagged(world: Any) -> None:
    sqs = world.sqs
    dead = sqs.create()
    arn = sqs.arn(dead)
    queue = sqs.create(RedrivePolicy=policy(arn))
    sqs("DeleteQueue", QueueUrl=dead)
    sqs("TagQueue", QueueUrl=queue, Tags={"team": "one"})
    sqs("CreateQueue", QueueName=dead.rpartition("/")[2])
    assert sqs("ListDeadLetterSourceQueues", QueueUrl=dead) == {"queueUrls": [queue]}
    sqs.send(queue, "a")
    assert sqs.bodies(queue, VisibilityTimeout=0) == ["a"]
    assert sqs.bodies(queue) == []
    assert sqs.bodies(dead) == ["a"]


def test_R39_the_dead_letters_of_a_mailbox_stay_when_its_queue_is_tagged(
    world: Any, kind: StoreKind
) -> None:
    name = new_name()
    with open_mailbox(f"{kind.url}/{name}", str, dead_letters=DeadLetterPolicy(1)) as box:
        world.sqs("TagQueue", QueueUrl=name, Tags={"team": "one"})
        box.send("a")
        assert box.receive()[0].nack()
        assert box.stats().dead == 1


def test_R150_a_queue_that_can_not_be_is_not_there(world: Any) -> None:
    for name in ("a\0b", "a,b", "x" * 3_000):
        with pytest.raises(Refused, match="NonExistentQueue"):
            world.sqs.send(name, "a")


# -- a call is made again if its answer was lost ------------------------------------------------


def _twice(url: RunningBroker, what: str, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """From now on this script, command or function is called twice, and answers the second time."""
    shared = url.broker.shared
    assert shared is not None
    real, first = shared.store.do, list[Any]()

    async def do(request: Any) -> Any:
        script = getattr(request, "script", None)
        names = (script.name,) if script is not None else getattr(request, "arguments", ())[:1]
        if what in names or what in getattr(request, "statement", ""):
            first.append(await real(request))
        return await real(request)

    monkeypatch.setattr(shared.store, "do", do)
    return first


def test_R141_a_queue_that_was_created_twice_has_its_dead_letter_queue(
    brokers: list[RunningBroker], monkeypatch: pytest.MonkeyPatch
) -> None:
    with Client(brokers[0]) as sqs:
        dead = sqs.create()
        arn = sqs.arn(dead)
        first = _twice(brokers[0], "configure", monkeypatch)
        queue = sqs.create(RedrivePolicy=policy(arn))
        monkeypatch.undo()
        assert len(first) == 1
        assert sqs("ListDeadLetterSourceQueues", QueueUrl=dead) == {"queueUrls": [queue]}


@pytest.mark.parametrize("what", ["SET", "note_fact"])
def test_R141_a_purge_that_was_begun_twice_is_done(
    kind: StoreKind, clock: SharedClock, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        running_broker(clock=clock, shared_store=kind.open(), purge_interval_seconds=60) as url,
        Client(url) as sqs,
    ):
        queue = sqs.create()
        sqs.send(queue, "a")
        _twice(url, what, monkeypatch)
        sqs("PurgeQueue", QueueUrl=queue)
        assert sqs.counts(queue) == (0, 0, 0)
        with pytest.raises(Refused, match="PurgeQueueInProgress"):
            sqs("PurgeQueue", QueueUrl=queue)


def test_R116_sends_to_a_queue_of_a_mailbox_leave_no_key_each() -> None:
    server = shared_server()
    name = new_name()
    with (
        open_mailbox(f"{server.url}/{name}", str),
        running_broker(shared_store=RedisSharedStore(server.url)) as url,
        Client(url) as sqs,
    ):
        for number in range(20):
            sqs.send(name, str(number))
        keys = server.ask("KEYS", f"{{queue:{name}}}:session:*")
        assert len(keys) <= 2


def test_R15_a_lease_that_ran_out_among_many_is_not_extended(world: Any) -> None:
    sqs, count = world.sqs, 110
    queue = sqs.create(fifo=True, VisibilityTimeout=5, ContentBasedDeduplication="true")
    for first in range(0, count, 10):
        entries = [
            {"Id": str(n), "MessageBody": str(n), "MessageGroupId": str(n)}
            for n in range(first, first + 10)
        ]
        sqs("SendMessageBatch", QueueUrl=queue, Entries=entries)
    held = [message for _ in range(0, count, 10) for message in sqs.receive(queue)]
    assert len(held) == count
    world.clock.advance(6)
    for message in held[-1:]:
        with pytest.raises(Refused, match="InvalidParameterValue"):
            sqs(
                "ChangeMessageVisibility",
                QueueUrl=queue,
                ReceiptHandle=message["ReceiptHandle"],
                VisibilityTimeout=30,
            )


def test_R39_messages_on_their_way_out_of_a_deleted_queue_arrive(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server, graveyard = shared_server(), new_name("graveyard")
    with (
        open_box(dead_letters=DeadLetterPolicy(1, graveyard)) as box,
        open_box(name=graveyard) as dead,
        running_broker(shared_store=RedisSharedStore(server.url)) as url,
        Client(url) as sqs,
    ):
        box.send("a")
        assert box.receive()[0].nack()
        die_at(dead, "accept", monkeypatch)
        with pytest.raises(Died):
            dead.redrive()
        sqs("DeleteQueue", QueueUrl=graveyard)
        assert [m.body for m in box.receive()] == ["a"]


def test_R141_a_queue_is_deleted_though_its_source_is_changed_meanwhile(
    brokers: list[RunningBroker], monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = brokers[0].broker.shared
    assert shared is not None
    real, tries = shared.store.drop, []

    def drop(name: str, recent_seconds: int) -> Any:
        tries.append(name)
        if len(tries) == 1:
            raise StaleQueueError("the queue was changed")
        return real(name, recent_seconds)

    with Client(brokers[0]) as sqs:
        name = sqs.create().rpartition("/")[2]
        monkeypatch.setattr(shared.store, "drop", drop)
        admin = QueueAdmin(brokers[0].broker)  # as the dashboard does it
        admin.delete(name)
        assert tries == [name, name]
        with pytest.raises(Refused, match="NonExistentQueue"):
            sqs.send(name, "a")


def test_R57_who_hangs_up_while_dead_letters_are_moved_burns_no_delivery() -> None:
    server = shared_server()
    with running_broker(shared_store=RedisSharedStore(server.url)) as url, Client(url) as sqs:
        queue = sqs.create(RedrivePolicy=policy(sqs.arn(sqs.create())))
        sqs.send(queue, "dies")
        assert sqs.bodies(queue, VisibilityTimeout=0) == ["dies"]
        sqs.send(queue, "stays")
        asyncio.run(_hang_up(RedisSharedStore(server.url), queue.rpartition("/")[2]))
        (message,) = sqs.receive(queue, AttributeNames=["ApproximateReceiveCount"])
        assert message["Body"] == "stays"
        assert message["Attributes"] == {"ApproximateReceiveCount": "1"}


async def _hang_up(store: RedisSharedStore, queue: str) -> None:
    """A receive that is cancelled when it has leased a message, and moves another one."""
    moves = []

    async def do(request: Any) -> Any:
        if request.script is not None and request.script.name == "tick" and not moves:
            moves.append(request)
            raise asyncio.CancelledError
        return await store.do(request)

    verbs = store.queue(queue, "", 100)
    with pytest.raises(asyncio.CancelledError):
        await run_async(do, verbs.receive_shared(10, 30 * SECOND_NS, 0, None))
    assert moves
    await store.close()
