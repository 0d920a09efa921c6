"""R22: the error classes; a wrong call raises an error that names the parameter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from pillarbox.core import errors
from pillarbox.core.errors import InvalidParameterError, MailboxError
from pillarbox.mailbox.message import Message
from pillarbox.mailbox.protocol import DeadLetterPolicy, Mailbox
from pillarbox.testing.contract.backend import Bounds, Capability, needs
from pillarbox.testing.contract.cases.case import Case

ERRORS = [
    errors.InvalidParameterError,
    errors.MailboxClosedError,
    errors.MailboxConnectionError,
    errors.MailboxFullError,
    errors.ReceiptHandleExpiredError,
    errors.SerializationError,
]


class Timed(NamedTuple):
    """A method that takes a time, its parameter, and the largest value allowed."""

    call: Callable[[Mailbox[Any], Message[Any], Any], object]
    parameter: str
    most: Callable[[Bounds], int]


TIMED = {
    "send": Timed(
        lambda box, held, t: box.send("b", delay_seconds=t),
        "delay_seconds",
        lambda bounds: bounds.delay_seconds_max,
    ),
    "send_many": Timed(
        lambda box, held, t: box.send_many(["b", "c"], delay_seconds=t),
        "delay_seconds",
        lambda bounds: bounds.delay_seconds_max,
    ),
    "receive": Timed(
        lambda box, held, t: box.receive(visibility_timeout=t),
        "visibility_timeout",
        lambda bounds: bounds.visibility_seconds_max,
    ),
    "receive with a wait": Timed(
        lambda box, held, t: box.receive(wait_time_seconds=t),
        "wait_time_seconds",
        lambda bounds: bounds.wait_seconds_max,
    ),
    "nack": Timed(
        lambda box, held, t: held.nack(visibility_timeout=t),
        "visibility_timeout",
        lambda bounds: bounds.visibility_seconds_max,
    ),
    "nack_many": Timed(
        lambda box, held, t: box.nack_many([held], visibility_timeout=t),
        "visibility_timeout",
        lambda bounds: bounds.visibility_seconds_max,
    ),
    "extend_visibility": Timed(
        lambda box, held, t: held.extend_visibility(t),
        "timeout",
        lambda bounds: bounds.visibility_seconds_max,
    ),
    "extend_visibility_many": Timed(
        lambda box, held, t: box.extend_visibility_many([held], t),
        "timeout",
        lambda bounds: bounds.visibility_seconds_max,
    ),
}

BAD_TIMES: dict[str, Any] = {
    "negative": -1,
    "slightly negative": -1e-9,
    "not a number": float("nan"),
    "infinite": float("inf"),
    "minus infinite": float("-inf"),
    "text": "1",
    "none": None,
    "true": True,
    "false": False,
    "a list": [1],
}

SENDS: dict[str, Callable[..., object]] = {
    "send": lambda box, **options: box.send("b", **options),
    "send_many": lambda box, **options: box.send_many(["b", "c"], **options),
}

every_send = pytest.mark.parametrize("send", SENDS.values(), ids=SENDS.keys())

NO_WHOLE_NUMBERS: list[Any] = [-1, 1.5, 1.0, "1", None, True, False, float("nan")]

BAD_ATTRIBUTES: dict[str, Any] = {
    "no mapping": ["colour", "red"],
    "text": "colour=red",
    "a name that is no str": {1: "red"},
    "an empty name": {"": "red"},
    "a name that is too long": {"x" * 257: "red"},
    "a value that is no str": {"colour": 1},
    "a value of bytes": {"colour": b"red"},
    "no value": {"colour": None},
    "a name that UTF-8 can't carry": {"\ud800": "red"},
    "a value that UTF-8 can't carry": {"colour": "red \udfff"},
    "a reserved name": {"pillarbox.reply_to": "elsewhere"},
    "a reserved name in capitals": {"Pillarbox.x": "y"},
}

BAD_TOKENS: list[Any] = ["", "x" * 129, "with a blank", "größe", "line\n", 7, b"a"]


class Refusals(Case):
    def refused(self, call: Callable[[], object], parameter: str) -> InvalidParameterError:
        """Assert that the call fails with an error that names the parameter and its limit."""
        with pytest.raises(InvalidParameterError) as raised:
            self.call(call).result()
        error = raised.value
        assert error.parameter.startswith(parameter)
        assert parameter in str(error)
        assert error.allowed in str(error)
        return error

    def test_R22_every_error_is_a_mailbox_error(self) -> None:
        assert all(issubclass(error, MailboxError) for error in ERRORS)
        assert issubclass(InvalidParameterError, ValueError)

    @pytest.mark.parametrize("bad", BAD_TIMES.values(), ids=BAD_TIMES.keys())
    @pytest.mark.parametrize("verb", TIMED.values(), ids=TIMED.keys())
    def test_R22_a_bad_time_is_refused_and_changes_nothing(self, verb: Timed, bad: Any) -> None:
        box = self.open_with("a")
        held = self.one(box)
        box.send("ready")
        error = self.refused(lambda: verb.call(box, held, bad), verb.parameter)
        assert f"{verb.most(self.backend.bounds):,}" in error.allowed
        self.unchanged(box, held)

    @pytest.mark.parametrize("verb", TIMED.values(), ids=TIMED.keys())
    def test_R22_a_time_past_the_limit_is_refused_and_changes_nothing(self, verb: Timed) -> None:
        box = self.open_with("a")
        held = self.one(box)
        box.send("ready")
        most = verb.most(self.backend.bounds)
        error = self.refused(lambda: verb.call(box, held, most + 1), verb.parameter)
        assert f"{most:,}" in error.allowed
        self.unchanged(box, held)

    @pytest.mark.parametrize("verb", TIMED.values(), ids=TIMED.keys())
    def test_R22_a_time_at_the_limit_is_taken(self, verb: Timed) -> None:
        box = self.open_with("a")
        held = self.one(box)
        box.send("ready")
        verb.call(box, held, verb.most(self.backend.bounds))

    def unchanged(self, box: Mailbox[Any], held: Message[Any]) -> None:
        """Assert that a failed call changed neither the message in flight nor the ready one."""
        self.counts(box, 2)
        ready = self.one(box)
        assert (ready.body, ready.delivery_count) == ("ready", 1)
        self.nothing(box)
        assert held.acknowledge() is True

    @pytest.mark.parametrize("priority", [256, 1_000, *NO_WHOLE_NUMBERS])
    @every_send
    def test_R22_a_bad_priority_is_refused(
        self, send: Callable[..., object], priority: Any
    ) -> None:
        box = self.open()
        error = self.refused(lambda: send(box, priority=priority), "priority")
        assert "0" in error.allowed
        assert "255" in error.allowed
        self.empty(box)

    @pytest.mark.parametrize("most", [0, *NO_WHOLE_NUMBERS])
    def test_R22_a_bad_max_messages_is_refused(self, most: Any) -> None:
        box = self.open_with("a")
        error = self.refused(lambda: box.receive(max_messages=most), "max_messages")
        assert f"{self.backend.bounds.messages_max:,}" in error.allowed
        assert self.one(box).delivery_count == 1

    @pytest.mark.parametrize("parameter", ["max_messages", "visibility_timeout"])
    @pytest.mark.parametrize("bad", [True, "1", None])
    def test_R22_a_bad_number_is_refused_though_a_good_one_was_taken_before(
        self, parameter: str, bad: Any
    ) -> None:
        box = self.open()
        good = {"max_messages": 1, "visibility_timeout": 1}
        assert list(box.receive(**good)) == []
        box.send("a")
        self.refused(lambda: box.receive(**{**good, parameter: bad}), parameter)
        assert self.one(box).delivery_count == 1

    def test_R22_more_messages_than_the_limit_are_refused(self) -> None:
        box = self.open_with("a")
        most = self.backend.bounds.messages_max
        self.refused(lambda: box.receive(max_messages=most + 1), "max_messages")
        assert len(box.receive(max_messages=most)) == 1

    @needs(Capability.PEEK)
    @pytest.mark.parametrize("most", [0, *NO_WHOLE_NUMBERS])
    def test_R22_a_bad_number_to_peek_at_is_refused(self, most: Any) -> None:
        box = self.open()
        self.refused(lambda: box.peek(most), "max_messages")

    @pytest.mark.parametrize("bad", BAD_ATTRIBUTES.values(), ids=BAD_ATTRIBUTES.keys())
    @every_send
    def test_R22_bad_attributes_are_refused(self, send: Callable[..., object], bad: Any) -> None:
        box = self.open()
        self.refused(lambda: send(box, attributes=bad), "attributes")
        self.empty(box)

    @every_send
    def test_R22_too_many_attributes_are_refused(self, send: Callable[..., object]) -> None:
        box = self.open()
        most = self.backend.bounds.attributes_max
        many = {f"name-{n}": "x" for n in range(most + 1)}
        error = self.refused(lambda: send(box, attributes=many), "attributes")
        assert str(most) in error.allowed
        many.popitem()
        self.nothing(box)
        send(box, attributes=many)
        assert dict(self.one(box).attributes) == many

    @pytest.mark.parametrize("value", ["x" * 100, "ü" * 50], ids=["ASCII", "UTF-8"])
    def test_R22_body_and_attributes_share_one_limit(self, value: str) -> None:
        box = self.open()
        most = self.backend.bounds.body_bytes_max
        attributes = {"größe": value}
        beside = len("größe".encode()) + 100 + self.backend.bounds.attribute_bytes
        body = "b" * (most - beside)
        error = self.refused(lambda: box.send(body + "b", attributes=attributes), "attributes")
        assert f"{most:,}" in error.allowed
        self.empty(box)
        box.send(body, attributes=attributes)
        message = self.one(box)
        assert (message.body, dict(message.attributes)) == (body, attributes)

    def test_R22_one_body_that_is_too_large_with_its_attributes_refuses_the_batch(self) -> None:
        box = self.open()
        bodies = ["a", "b" * self.backend.bounds.body_bytes_max, "c"]
        self.refused(lambda: box.send_many(bodies, attributes={"colour": "red"}), "attributes")
        self.empty(box)

    def test_R22_attributes_alone_may_be_too_large(self) -> None:
        box = self.open()
        large = {"colour": "r" * self.backend.bounds.body_bytes_max}
        self.refused(lambda: box.send("", attributes=large), "attributes")
        self.counts(box, 0)

    @needs(Capability.GROUPS)
    @pytest.mark.parametrize("bad", BAD_TOKENS, ids=repr)
    @every_send
    def test_R22_a_bad_group_is_refused(self, send: Callable[..., object], bad: Any) -> None:
        box = self.open()
        error = self.refused(lambda: send(box, group=bad), "group")
        assert "128" in error.allowed
        self.empty(box)

    @needs(Capability.DEDUPLICATION)
    @pytest.mark.parametrize("bad", BAD_TOKENS, ids=repr)
    def test_R22_a_bad_deduplication_id_is_refused(self, bad: Any) -> None:
        box = self.open()
        error = self.refused(lambda: box.send("a", deduplication_id=bad), "deduplication_id")
        assert "128" in error.allowed
        self.empty(box)

    @pytest.mark.parametrize(
        "name", ["", "x" * 81, "a b", "a/b", "../a", "größe", "a\n", "a.b", ".fifo", 7], ids=repr
    )
    def test_R22_a_bad_name_is_refused(self, name: Any) -> None:
        error = self.refused(lambda: self.open(name=name), "name")
        assert "80" in error.allowed

    @pytest.mark.parametrize("name", ["x", "x" * 80, "A-z_09", "orders.fifo", "-", "_"])
    def test_R22_a_good_name_is_taken(self, name: str) -> None:
        if name.endswith(".fifo"):
            self.require(Capability.GROUPS)
        assert self.open(name=name).name == name

    @pytest.mark.parametrize("bad", ["front", "", None, 1])
    def test_R22_a_bad_redelivery_is_refused(self, bad: Any) -> None:
        error = self.refused(lambda: self.open(redelivery=bad), "redelivery")
        assert "tail" in error.allowed

    @needs(Capability.CAPACITY)
    @pytest.mark.parametrize("bad", [0, -1, 1.5, "1", True])
    def test_R22_a_bad_capacity_is_refused(self, bad: Any) -> None:
        self.refused(lambda: self.open(capacity=bad), "capacity")

    @pytest.mark.parametrize("bad", [0, -1, 1_001, 1.5, "1", None, True])
    def test_R22_a_bad_number_of_deliveries_is_refused(self, bad: Any) -> None:
        error = self.refused(lambda: DeadLetterPolicy(bad), "max_deliveries")
        assert "1,000" in error.allowed

    def test_R22_a_bad_name_for_the_dead_letters_is_refused(self) -> None:
        policy = DeadLetterPolicy(1, "no/such name")
        self.refused(lambda: self.open(dead_letters=policy), "name")

    @needs(Capability.REJECT)
    @pytest.mark.parametrize("bad", [None, 7, b"reason", "\ud800"], ids=repr)
    def test_R22_a_reason_that_is_no_text_is_refused(self, bad: Any) -> None:
        box, dead = self.open_mortal(5, sent="a")
        held = self.one(box)
        self.refused(lambda: held.reject(bad), "reason")
        self.nothing(dead)
        assert held.acknowledge() is True

    @pytest.mark.parametrize("bad", ["a message", 7, None], ids=repr)
    def test_R22_what_is_no_message_can_t_be_settled(self, bad: Any) -> None:
        box = self.open_with("a")
        held = self.one(box)
        self.refused(lambda: box.acknowledge_many([held, bad]), "messages")
        assert held.acknowledge() is True

    def test_R36_with_create_false_only_a_queue_that_exists_is_opened(self) -> None:
        for _ in range(2):  # the first attempt created nothing
            with pytest.raises(InvalidParameterError, match="tpyo"):
                self.open(name="tpyo", create=False)
        box = self.open(name="no-typo")
        box.send("a")
        other = self.open(name="no-typo", create=False)
        assert [message.body for message in self.take(other, 1)] == ["a"]
