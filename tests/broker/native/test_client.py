"""R35, R36: how `BrokerMailbox` is opened, what it shares, and what it leaves behind."""

from __future__ import annotations

import asyncio
import inspect
import os
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from pillarbox import (
    DeadLetterPolicy,
    InvalidParameterError,
    Mailbox,
    MailboxError,
    SerializationError,
    open_async_mailbox,
    open_mailbox,
)
from pillarbox.mailbox.broker import AsyncBrokerMailbox, BrokerMailbox
from pillarbox.mailbox.broker.address import Address
from pillarbox.mailbox.broker.login import Login
from pillarbox.mailbox.broker.wire import REQUEST_BYTES_MAX
from pillarbox.mailbox.request import RequestClient
from pillarbox.testing.broker import RunningBroker, running_broker
from tests.broker.native.support import Relay, until


@pytest.fixture
def broker() -> Iterator[RunningBroker]:
    with running_broker() as url:
        yield url


def test_R36_an_http_url_opens_a_mailbox_of_the_broker(broker: RunningBroker) -> None:
    with open_mailbox(f"{broker}/orders", str) as box:
        assert isinstance(box, BrokerMailbox)
        assert box.name == "orders"
        assert str(broker) in repr(box)
    assert isinstance(open_async_mailbox(f"{broker}/orders", str), AsyncBrokerMailbox)


def test_R36_a_queue_url_of_sqs_names_the_same_queue(broker: RunningBroker) -> None:
    with (
        open_mailbox(f"{broker}/000000000000/orders", str) as by_sqs,
        open_mailbox(f"{broker}/orders", str) as plain,
    ):
        by_sqs.send("a")
        assert [message.body for message in plain.receive()] == ["a"]


@pytest.mark.parametrize(
    "url",
    ["http://", "http:///orders", "http://host:port/orders", "http://h/orders?x=1", "http://h/"],
)
def test_R36_a_url_that_names_no_queue_is_refused(url: str) -> None:
    with pytest.raises(InvalidParameterError) as raised:
        open_mailbox(url, str)
    assert raised.value.parameter == "url"


@pytest.mark.parametrize(
    "rest",
    ["h:99999/q", "[::1/q", "/q", "h/q?x=1", "h/", "日本.example/q", "h/日本/q", "h/%E6%97%A5"],
)
@pytest.mark.parametrize("secret", ["SECRET", "SEC/RET", "SEC#RET", "SECRET@SECRET"])
def test_R36_an_error_about_a_url_does_not_show_its_secret(rest: str, secret: str) -> None:
    with pytest.raises(InvalidParameterError, match="url must be") as raised:
        open_mailbox(f"http://key:{secret}@{rest}", str)
    assert "SEC" not in str(raised.value)
    assert "RET" not in str(raised.value)


def test_R36_a_key_outside_of_Latin_1_is_refused() -> None:
    with pytest.raises(InvalidParameterError, match="Latin-1"):
        open_mailbox("http://%E6%97%A5:s@h/q", str)


def test_R35_a_worker_that_answers_many_clients_keeps_few_heads() -> None:
    heads = Login(Address("h", 9324)).heads
    for number in range(10_000):
        assert b"/q%d HTTP" % number in heads[f"q{number}"]
    assert len(heads) <= 1_000


def test_R36_an_unknown_option_is_refused_by_name(broker: RunningBroker) -> None:
    with pytest.raises(InvalidParameterError, match="durability"):
        open_mailbox(f"{broker}/orders", str, durability="fsync")
    with pytest.raises(InvalidParameterError, match="patience_seconds"):
        open_mailbox(f"{broker}/orders", str, patience_seconds=-1)


def test_R36_what_is_no_broker_is_told_apart() -> None:
    with running_broker() as url, pytest.raises(MailboxError, match="no Pillarbox broker"):
        open_mailbox(f"{url}/livez/orders", str, patience_seconds=0.1)


def test_R39_a_new_queue_has_the_broker_s_policy_unless_it_says_otherwise(
    broker: RunningBroker,
) -> None:
    with open_mailbox(f"{broker}/orders", str) as box:
        assert box.dead_letters is not None
        assert box.dead_letters.name == "orders_dlq"
        box.send("a")
        for _ in range(5):
            (message,) = box.receive()
            message.nack()
        assert [m.body for m in box.dead_letters.receive()] == ["a"]
    with open_mailbox(f"{broker}/free", str, dead_letters=None) as free:
        assert free.dead_letters is None
    own = DeadLetterPolicy(2, "graves")
    with open_mailbox(f"{broker}/other", str, dead_letters=own) as other:
        assert other.dead_letters is not None
        assert other.dead_letters.name == "graves"


def test_R35_threads_share_a_few_connections(broker: RunningBroker) -> None:
    box = open_mailbox(f"{broker}/orders", str)
    for _ in range(20):
        threads = [threading.Thread(target=box.send, args=("a",)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert box.stats().ready == 80
    assert len(broker.broker.http_server.connections) <= 4
    box.close()
    until(lambda: not broker.broker.http_server.connections, "every connection is closed")


def test_R35_mailboxes_of_one_broker_share_their_connections(broker: RunningBroker) -> None:
    boxes = [open_mailbox(f"{broker}/queue-{number}", str) for number in range(10)]
    for box in boxes:
        box.send("a")
    assert len(broker.broker.http_server.connections) == 1
    for box in boxes[1:]:
        box.close()
    boxes[0].send("b")
    assert len(broker.broker.http_server.connections) == 1
    boxes[0].close()
    until(lambda: not broker.broker.http_server.connections, "every connection is closed")


def test_R35_gathered_sends_travel_together(broker: RunningBroker) -> None:
    async def case(relay: Relay) -> None:
        async with open_async_mailbox(f"{relay.url}/orders", str) as box:
            await box.send("first")
            before = relay.requests
            ids = await asyncio.gather(*(box.send(str(n)) for n in range(1_000)))
            assert len(set(ids)) == 1_000
            assert relay.requests - before <= 4
            assert (await box.stats()).ready == 1_001

    with Relay(broker) as relay:
        asyncio.run(asyncio.wait_for(case(relay), 20))


def test_R35_of_gathered_sends_only_the_bad_ones_fail(broker: RunningBroker) -> None:
    async def case() -> None:
        async with open_async_mailbox(f"{broker}/small", str, capacity=5) as box:
            sends = [box.send("x") for _ in range(8)]
            found = await asyncio.gather(*sends, return_exceptions=True)
            assert [isinstance(each, str) for each in found] == [True] * 5 + [False] * 3
            assert (await box.stats()).ready == 5

    asyncio.run(asyncio.wait_for(case(), 20))


def test_R35_a_batch_past_what_a_request_may_hold_is_refused_whole(broker: RunningBroker) -> None:
    with open_mailbox(f"{broker}/orders", bytes) as box:
        with pytest.raises(InvalidParameterError, match=f"{REQUEST_BYTES_MAX:,}"):
            box.send_many([b"x" * 1_000_000] * 9)
        assert box.stats().total == 0
        assert len(box.send_many([b"x" * 1_000_000] * 8)) == 8


def test_R11_batches_have_a_limit_with_a_name(broker: RunningBroker) -> None:
    with open_mailbox(f"{broker}/orders", str) as box:
        with pytest.raises(InvalidParameterError, match="50,000") as raised:
            box.send_many(["x"] * 50_001)
        assert raised.value.parameter == "bodies"
        assert len(set(box.send_many(["x"] * 50_000))) == 50_000
        messages = [m for _ in range(5) for m in box.receive(max_messages=10_000)]
        with pytest.raises(InvalidParameterError, match="50,000"):
            box.acknowledge_many([*messages, messages[0]])
        assert box.acknowledge_many(messages) == [True] * 50_000


def test_R38_the_type_in_brackets_is_the_body_s_type(broker: RunningBroker) -> None:
    with BrokerMailbox[list[int]]("numbers", url=str(broker)) as box:
        box.send([1, 2])

    async def case() -> None:
        async with AsyncBrokerMailbox[list[int]]("numbers", url=str(broker)) as box:
            (message,) = await box.receive()
            assert message.body == [1, 2]
            with pytest.raises(SerializationError):
                await box.send("text")  # type: ignore[arg-type]

    asyncio.run(case())


def test_R35_a_forked_child_has_connections_of_its_own(broker: RunningBroker) -> None:
    box = open_mailbox(f"{broker}/orders", str)
    box.send("parent")
    child = os.fork()
    if child == 0:
        try:
            box.send("child")
        except BaseException:  # noqa: BLE001 - whatever it is, the parent sees that it failed
            os._exit(1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    box.send("parent again")
    assert [message.body for message in box.peek()] == ["parent", "child", "parent again"]
    box.close()


def test_R20_an_async_mailbox_refuses_a_second_event_loop(broker: RunningBroker) -> None:
    box = open_async_mailbox(f"{broker}/orders", str)
    first = asyncio.new_event_loop()
    try:
        first.run_until_complete(box.send("a"))
        with pytest.raises(InvalidParameterError, match="loop"):
            asyncio.run(_send(box))
        first.run_until_complete(box.close())
    finally:
        first.close()


async def _send(box: Any) -> None:
    await box.send("b")


def test_R21_requests_are_answered_through_the_broker(broker: RunningBroker) -> None:
    sums = open_mailbox(f"{broker}/sums", list[int])
    totals = open_mailbox(f"{broker}/totals", int)

    def work() -> None:
        for request in sums.receive(wait_time_seconds=20):
            request.reply(sum(request.body))
            request.acknowledge()

    worker = threading.Thread(target=work)
    worker.start()
    assert RequestClient(sums, totals).ask([2, 3], timeout=20) == 5
    worker.join()
    sums.close()
    totals.close()


def test_R58_what_a_durable_broker_confirmed_is_there_after_a_restart(tmp_path: Any) -> None:
    data = str(tmp_path / "data")
    with running_broker(data, "fsync") as url, open_mailbox(f"{url}/orders", str) as box:
        ids = box.send_many(["a", "b", "c"])
        (first,) = box.receive()
        assert first.acknowledge() is True
    with running_broker(data, "fsync") as url, open_mailbox(f"{url}/orders", str) as box:
        assert [message.id for message in box.peek()] == ids[1:]


@pytest.mark.parametrize("kind", [BrokerMailbox, AsyncBrokerMailbox])
def test_R9_every_verb_takes_what_the_protocol_says(kind: Any) -> None:
    for verb in (name for name in vars(Mailbox) if not name.startswith("_")):
        mine, wanted = (inspect.getattr_static(each, verb) for each in (kind, Mailbox))
        assert inspect.getdoc(mine)
        if not isinstance(wanted, property):
            parameters = [
                [(p.name, p.kind, p.default) for p in inspect.signature(each).parameters.values()]
                for each in (mine, wanted)
            ]
            assert parameters[0] == parameters[1], verb
