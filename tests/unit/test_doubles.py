"""R25: mailboxes for tests: one that drops, one that remembers, one that fails on demand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pillarbox import (
    DeadLetterPolicy,
    InvalidParameterError,
    Mailbox,
    MailboxClosedError,
    MailboxConnectionError,
    ReceiptHandleExpiredError,
    SerializationError,
)
from pillarbox.testing import CollectingMailbox, FakeClock, FakeMailbox, NullMailbox

DOUBLES = [NullMailbox, CollectingMailbox, FakeMailbox]
every_double = pytest.mark.parametrize("double", DOUBLES)


@every_double
def test_R25_a_double_is_a_mailbox(double: Any) -> None:
    box = double("box", str)
    assert isinstance(box, Mailbox)
    assert (box.name, box.closed, box.dead_letters) == ("box", False, None)
    assert double[str]("typed").name == "typed"


@every_double
def test_R25_a_double_refuses_what_a_mailbox_refuses(double: Any) -> None:
    box = double("box", str)
    with pytest.raises(SerializationError):
        box.send(5)
    with pytest.raises(InvalidParameterError):
        box.send("a", priority=256)
    with pytest.raises(InvalidParameterError):
        box.receive(max_messages=0)
    box.close()
    with pytest.raises(MailboxClosedError):
        box.send("a")
    with pytest.raises(MailboxClosedError):
        box.receive()


def test_R25_null_takes_everything_and_delivers_nothing() -> None:
    box = NullMailbox("nowhere", str)
    ids = [box.send("a"), box.send("b", delay_seconds=5, priority=1), *box.send_many(["c", "d"])]
    assert len(set(ids)) == 4
    assert list(box.receive(max_messages=10)) == []
    assert box.approximate_count() == 0
    assert box.purge() == 0


def test_R25_null_does_not_fill_up() -> None:
    box = NullMailbox("nowhere", str, capacity=1)
    for _ in range(3):
        box.send("a")
    assert box.approximate_count() == 0


def test_R25_collecting_remembers_bodies_options_and_ids_in_order() -> None:
    box = CollectingMailbox("orders", str)
    first = box.send("a", priority=3)
    rest = box.send_many(iter(["b", "c"]), attributes={"colour": "red"})
    assert box.bodies == ["a", "b", "c"]
    assert [sent.id for sent in box.sent] == [first, *rest]
    assert [dict(sent.options) for sent in box.sent] == [
        {"priority": 3},
        {"attributes": {"colour": "red"}},
        {"attributes": {"colour": "red"}},
    ]


def test_R25_collecting_remembers_nothing_that_was_refused() -> None:
    box = CollectingMailbox("orders", str)
    with pytest.raises(InvalidParameterError):
        box.send("a", priority=-1)
    with pytest.raises(SerializationError):
        box.send_many(["b", 5])  # type: ignore[list-item]
    assert box.sent == []


def test_R25_what_was_collected_can_be_received_as_well() -> None:
    box = CollectingMailbox("orders", str)
    box.send("a")
    (message,) = box.receive()
    assert message.acknowledge()
    assert box.bodies == ["a"]


def test_R25_fake_expires_a_handle() -> None:
    box = FakeMailbox("orders", str)
    box.send("a")
    (message,) = box.receive()
    box.expire(message)
    assert message.acknowledge() is False
    assert message.extend_visibility(5) is False
    with pytest.raises(ReceiptHandleExpiredError):
        message.nack(strict=True)
    (again,) = box.receive()
    assert (again.body, again.delivery_count) == ("a", 2)
    assert again.acknowledge() is True


def test_R25_an_expired_message_may_die_of_it() -> None:
    box = FakeMailbox("orders", str, dead_letters=DeadLetterPolicy(1))
    box.send("a")
    (message,) = box.receive()
    box.expire(message)
    assert box.receive() == []
    assert box.stats().dead == 1


def test_R25_fake_expires_only_its_own_messages() -> None:
    box, other = FakeMailbox("orders", str), FakeMailbox("orders", str)
    other.send("a")
    (message,) = other.receive()
    with pytest.raises(InvalidParameterError, match="messages"):
        box.expire(message)
    assert message.acknowledge() is True


VERBS: dict[str, Callable[[FakeMailbox[str]], object]] = {
    "send": lambda box: box.send("b"),
    "send_many": lambda box: box.send_many(["b"]),
    "messages": lambda box: next(box.messages()),
    "receive": lambda box: box.receive(),
    "acknowledge_many": lambda box: box.acknowledge_many([]),
    "nack_many": lambda box: box.nack_many([]),
    "extend_visibility_many": lambda box: box.extend_visibility_many([], 5),
    "release_many": lambda box: box.release_many([]),
    "purge": lambda box: box.purge(),
    "approximate_count": lambda box: box.approximate_count(),
    "stats": lambda box: box.stats(),
    "peek": lambda box: box.peek(),
    "delete": lambda box: box.delete([]),
    "redrive": lambda box: box.redrive(),
}


def test_R25_every_verb_of_a_mailbox_is_among_those_that_fail() -> None:
    verbs = {name for name in vars(Mailbox) if callable(getattr(Mailbox, name))}
    public = {name for name in verbs if not name.startswith("_")}
    assert public - {"close"} == set(VERBS)


@pytest.mark.parametrize("verb", VERBS.values(), ids=VERBS.keys())
def test_R25_a_broken_connection_fails_every_verb_and_loses_nothing(
    verb: Callable[[FakeMailbox[str]], object],
) -> None:
    box = FakeMailbox("orders", str)
    box.send("a")
    box.break_connection("the cable is out")
    with pytest.raises(MailboxConnectionError, match=r"'orders'.*the cable is out"):
        verb(box)
    box.restore_connection()
    assert [m.body for m in box.receive()] == ["a"]


@pytest.mark.parametrize("verb", ["acknowledge", "nack", "release"])
def test_R25_a_broken_connection_fails_the_verbs_of_a_message(verb: str) -> None:
    box = FakeMailbox("orders", str)
    box.send("before")
    assert box.receive()[0].acknowledge()  # in use, so that the quick way is open
    box.send("a", reply_to="answers")
    (message,) = box.receive()
    box.break_connection()
    with pytest.raises(MailboxConnectionError):
        getattr(message, verb)()
    for call in (
        lambda: message.extend_visibility(5),
        lambda: message.reject("why"),
        lambda: message.reply("b"),
    ):
        with pytest.raises(MailboxConnectionError):
            call()
    box.restore_connection()
    assert message.acknowledge() is True


def test_R25_a_broken_mailbox_can_be_named_and_closed() -> None:
    box = FakeMailbox("orders", str)
    box.break_connection()
    assert isinstance(box, Mailbox)
    assert box.name == "orders"
    box.close()
    assert box.closed


def test_R25_fake_injects_a_message_that_does_not_decode() -> None:
    box = FakeMailbox("orders", dict[str, int], dead_letters=DeadLetterPolicy(3))
    bad = box.inject(b"{not json", priority=9)
    good = box.inject(b'{"tea": 2}')
    (message,) = box.receive(max_messages=10)
    assert (message.id, message.body) == (good, {"tea": 2})
    assert box.dead_letters is not None
    assert [m.id for m in box.dead_letters.peek()] == [bad]


def test_R25_an_injected_message_may_have_a_delay() -> None:
    clock = FakeClock()
    box = FakeMailbox("orders", str, clock=clock)
    box.inject(b"later", delay_seconds=5)
    assert box.receive() == []
    clock.advance(5)
    assert [m.body for m in box.receive()] == ["later"]
