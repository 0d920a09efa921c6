"""What the type checker must know of mailboxes. Never run: `make lint` has mypy read it.

Each `type: ignore` is an error that users must see; where mypy sees none it complains that the
comment is not needed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, assert_type

from pillarbox import (
    AsyncInMemoryMailbox,
    AsyncMailbox,
    AsyncMessage,
    DeadLetterPolicy,
    DurableMailbox,
    InMemoryMailbox,
    Mailbox,
    Message,
    RequestClient,
    Undecodable,
    open_async_mailbox,
    open_mailbox,
)
from pillarbox.mailbox.broker import BrokerMailbox
from pillarbox.mailbox.redis import RedisMailbox
from pillarbox.mailbox.sqs import SQSMailbox
from pillarbox.testing import CollectingMailbox, FakeClock, FakeMailbox, NullMailbox


@dataclass
class Order:
    tea: str
    grams: int


def bodies_are_typed() -> None:
    box = InMemoryMailbox("orders", Order)
    box.send(Order("Assam", 100))
    box.send("Assam")  # type: ignore[arg-type]
    box.send_many([Order("Assam", 100)])
    box.send_many(["Assam"])  # type: ignore[list-item]
    for message in box.receive():
        assert_type(message, Message[Order])
        assert_type(message.body, Order)
        assert_type(message.acknowledge(), bool)
        message.body.sugar  # type: ignore[attr-defined]  # noqa: B018
    for seen in box.peek():
        assert_type(seen.body, Order | Undecodable)
    InMemoryMailbox("x", str).send(5)  # type: ignore[arg-type]


def the_declared_type_is_that_of_the_bodies() -> None:
    right: InMemoryMailbox[int] = InMemoryMailbox("x", int)
    wrong: InMemoryMailbox[int] = InMemoryMailbox("x", str)  # type: ignore[arg-type]
    structural: Mailbox[int] = InMemoryMailbox("x", str)  # type: ignore[assignment]
    async_wrong: AsyncInMemoryMailbox[int] = AsyncInMemoryMailbox("x", str)  # type: ignore[arg-type]
    either: InMemoryMailbox[int | str] = InMemoryMailbox("x", int | str)
    anything: InMemoryMailbox[Any] = InMemoryMailbox("x", Any)
    InMemoryMailbox("x", 5)  # type: ignore[arg-type]
    del right, wrong, structural, async_wrong, either, anything
    on_disk: DurableMailbox[int] = DurableMailbox("x", str, path="x")  # type: ignore[arg-type]
    on_redis: RedisMailbox[int] = RedisMailbox("x", str)  # type: ignore[arg-type]
    on_sqs: SQSMailbox[int] = SQSMailbox("x", str)  # type: ignore[arg-type]
    remote: BrokerMailbox[int] = BrokerMailbox("x", str)  # type: ignore[arg-type]
    some: DurableMailbox[int | str] = DurableMailbox("x", int | str, path="x")
    del on_disk, on_redis, on_sqs, remote, some


def the_type_in_brackets_is_as_good() -> None:
    box = InMemoryMailbox[Order]("orders")
    box.send(5)  # type: ignore[arg-type]


def without_a_type_anything_goes() -> None:
    box: InMemoryMailbox[Any] = InMemoryMailbox()
    box.send(5)
    box.send({"tea": "Assam"})


def messages_are_frozen(message: Message[str]) -> None:
    message.body = "other"  # type: ignore[misc]


def options_have_names_and_types() -> None:
    InMemoryMailbox("x", str, dead_letters=DeadLetterPolicy(3), redelivery="original", capacity=9)
    InMemoryMailbox("x", str, clock=FakeClock())
    InMemoryMailbox("x", str, redelivery="front")  # type: ignore[arg-type]
    InMemoryMailbox("x", str).send("a", 5)  # type: ignore[call-arg]
    InMemoryMailbox("x", str).send("a", priority="high")  # type: ignore[arg-type]
    InMemoryMailbox("x", str).peek(state="lost")  # type: ignore[arg-type]


def every_mailbox_is_one() -> None:
    boxes: list[Mailbox[str]] = [
        InMemoryMailbox("x", str),
        NullMailbox("x", str),
        CollectingMailbox("x", str),
        FakeMailbox("x", str),
    ]
    for box in boxes:
        assert_type(box.send("a"), str)
    not_async: AsyncMailbox[str] = InMemoryMailbox("x", str)  # type: ignore[assignment]
    del not_async


async def async_is_the_same_with_await() -> None:
    box: AsyncMailbox[Order] = AsyncInMemoryMailbox("orders", Order)
    assert_type(await box.send(Order("Assam", 100)), str)
    await box.send("Assam")  # type: ignore[arg-type]
    for message in await box.receive():
        assert_type(message, AsyncMessage[Order])
        assert_type(await message.acknowledge(), bool)


async def urls_open_typed_mailboxes() -> None:
    assert_type(open_mailbox("memory:orders", Order), Mailbox[Order])
    assert_type(open_mailbox("memory:orders"), Mailbox[Any])
    open_mailbox("memory:orders", Order, create=False, dead_letters=DeadLetterPolicy(3))
    open_mailbox("redis://host/orders", Order, journal=True)
    open_mailbox("memory:orders", Order, capacity="many")  # type: ignore[arg-type]
    open_mailbox("memory:orders", Order, max_deliverys=3)  # type: ignore[call-arg]
    assert_type(open_async_mailbox("memory:orders", Order), AsyncMailbox[Order])


def requests_and_answers_are_typed(
    requests: Mailbox[Order], replies: Mailbox[int], clock: FakeClock
) -> None:
    client = RequestClient(requests, replies, clock=clock)
    assert_type(client.ask(Order("Assam", 100), timeout=5), int)
    client.ask("Assam", timeout=5)  # type: ignore[arg-type]
    client.ask(Order("Assam", 100))  # type: ignore[call-arg]


def redrive_may_choose(letters: Mailbox[Order]) -> None:
    letters.redrive(where=lambda message: isinstance(message.body, Order))
    letters.redrive(where=lambda message: message.body.tea == "x")  # type: ignore[union-attr]
