"""R11: a batch is one step: all or nothing, with a result for each message in order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from pillarbox.core.errors import InvalidParameterError, MailboxFullError, SerializationError
from pillarbox.mailbox.message import Message
from pillarbox.mailbox.protocol import Mailbox
from pillarbox.testing.contract.backend import Capability, needs
from pillarbox.testing.contract.cases.case import Case

Many = Callable[[Mailbox[Any], Iterable[Message[Any]]], list[bool]]

MANY: dict[str, Many] = {
    "acknowledge": lambda box, messages: box.acknowledge_many(messages),
    "nack": lambda box, messages: box.nack_many(messages),
    "nack later": lambda box, messages: box.nack_many(messages, visibility_timeout=5),
    "extend": lambda box, messages: box.extend_visibility_many(messages, 60),
    "release": lambda box, messages: box.release_many(messages),
}

every_many = pytest.mark.parametrize("many", MANY.values(), ids=MANY.keys())


class Batches(Case):
    def test_R11_send_many_answers_with_the_ids_in_order(self) -> None:
        box = self.open()
        ids = box.send_many(["a", "b", "c"])
        assert len(set(ids)) == 3
        received = {m.id: m.body for m in self.take(box, 3)}
        assert [received[message_id] for message_id in ids] == ["a", "b", "c"]

    def test_R11_send_many_takes_any_iterable(self) -> None:
        box = self.open()
        ids = box.send_many(str(number) for number in range(3))
        assert len(ids) == 3
        self.same_items(self.bodies(box, 3), ["0", "1", "2"])

    def test_R11_send_many_gives_all_of_them_the_same_options(self) -> None:
        box = self.open()
        box.send_many(["a", "b"], delay_seconds=1, attributes={"colour": "red"}, reply_to="answers")
        self.nothing(box)
        self.pass_time(1)
        for message in self.take(box, 2):
            assert dict(message.attributes) == {"colour": "red"}
            assert message.reply_to == "answers"

    def test_R11_send_many_of_nothing_is_nothing(self) -> None:
        box = self.open()
        assert box.send_many([]) == []
        self.empty(box)

    @needs(Capability.BIG_BATCH)
    def test_R11_send_many_takes_thousands(self) -> None:
        box = self.open(int)
        assert len(set(box.send_many(range(5_000)))) == 5_000
        assert box.approximate_count() == 5_000

    def test_R11_a_bad_body_refuses_the_whole_batch(self) -> None:
        box = self.open()
        bodies: list[Any] = ["a", "b", 3, "d"]
        with pytest.raises(SerializationError):
            box.send_many(bodies)
        self.empty(box)

    def test_R11_a_body_that_is_too_large_refuses_the_whole_batch(self) -> None:
        box = self.open(bytes)
        with pytest.raises(InvalidParameterError) as raised:
            box.send_many([b"a", b"x" * (self.backend.bounds.body_bytes_max + 1), b"b"])
        assert raised.value.parameter == "body"
        self.empty(box)

    def test_R11_an_iterable_that_fails_refuses_the_whole_batch(self) -> None:
        box = self.open()

        def bodies() -> Iterator[str]:
            yield "a"
            raise KeyError("the sender's own")

        with pytest.raises(KeyError):
            box.send_many(bodies())
        self.empty(box)

    @needs(Capability.CAPACITY)
    def test_R11_a_batch_past_the_capacity_is_refused_whole(self) -> None:
        box = self.open(capacity=3)
        box.send("a")
        with pytest.raises(MailboxFullError):
            box.send_many(["b", "c", "d"])
        self.counts(box, 1)
        box.send_many(["b", "c"])
        self.counts(box, 3)

    @needs(Capability.CAPACITY)
    def test_R22_a_full_mailbox_refuses_until_there_is_room(self) -> None:
        box = self.open(capacity=2)
        box.send("ready")
        box.send("scheduled", delay_seconds=60)
        with pytest.raises(MailboxFullError, match="2"):
            box.send("too much")
        held = self.one(box)
        with pytest.raises(MailboxFullError):
            box.send("what is in flight counts")
        held.acknowledge()
        box.send("room again")
        assert self.one(box).body == "room again"

    @needs(Capability.CAPACITY)
    def test_R22_a_full_mailbox_takes_back_what_was_received_from_it(self) -> None:
        box = self.open(capacity=1)
        box.send("a")
        assert self.one(box).nack() is True
        assert self.one(box).release() is True
        assert self.one(box).body == "a"

    @every_many
    def test_R11_a_verb_for_many_answers_for_each(self, many: Many) -> None:
        box = self.open_with("a", "b", "c")
        assert many(box, self.take(box, 3)) == [True, True, True]

    @every_many
    def test_R11_a_verb_for_many_takes_any_iterable(self, many: Many) -> None:
        box = self.open_with("a", "b")
        assert many(box, iter(self.take(box, 2))) == [True, True]

    @every_many
    def test_R11_a_verb_for_none_answers_nothing(self, many: Many) -> None:
        box = self.open_with("a")
        assert many(box, []) == []
        assert self.one(box).delivery_count == 1

    @every_many
    def test_R11_a_message_named_twice_is_settled_once(self, many: Many) -> None:
        box = self.open_with("a", "b")
        first, second = self.take(box, 2)
        assert many(box, [first, second, first]) == [True, True, False]

    @every_many
    def test_R11_the_stale_answer_false_and_the_live_are_settled(self, many: Many) -> None:
        box = self.open_with("a", "b", "c")
        messages = self.take(box, 3)
        messages[1].acknowledge()
        assert many(box, messages) == [True, False, True]

    @every_many
    def test_R11_a_stale_delivery_does_not_spoil_the_live_one_of_its_message(
        self, many: Many
    ) -> None:
        box = self.open_with("a")
        stale = self.one(box)
        stale.nack()
        live = self.one(box)
        assert many(box, [stale, live]) == [False, True]

    @every_many
    def test_R11_messages_of_another_mailbox_are_refused_and_nothing_is_settled(
        self, many: Many
    ) -> None:
        box, other = self.open(), self.open()
        box.send("mine")
        other.send("not mine")
        mine, foreign = self.one(box), self.one(other)
        with pytest.raises(InvalidParameterError) as raised:
            many(box, [mine, foreign])
        assert raised.value.parameter == "messages"
        assert mine.acknowledge() is True
        assert foreign.acknowledge() is True

    @every_many
    def test_R11_messages_received_through_another_object_of_the_queue_are_welcome(
        self, many: Many
    ) -> None:
        box = self.open_with("a")
        message = self.one(self.backend.again(box, str))
        assert many(box, [message]) == [True]

    def test_R11_acknowledge_many_deletes_them(self) -> None:
        box = self.open()
        box.send_many([str(n) for n in range(10)])
        messages = self.take(box, 10, visibility_timeout=1)
        box.acknowledge_many(messages[:7])
        self.pass_time(1)
        left = sorted(m.body for m in messages[7:])
        assert sorted(self.bodies(box, 3)) == left
        self.nothing(box)

    def test_R11_nack_many_gives_them_back_in_the_order_named(self) -> None:
        box = self.open_with("a", "b", "c")
        messages = self.take(box, 3)
        box.nack_many(reversed(messages))
        named = "cba" if self.can(Capability.TAIL) else "abc"  # else they keep their positions
        self.same_items(self.bodies(box, 3), list(named))

    def test_R11_nack_many_with_a_time_gives_them_back_after_it(self) -> None:
        box = self.open_with("a", "b")
        box.nack_many(self.take(box, 2), visibility_timeout=1)
        self.nothing(box)
        self.pass_time(1)
        assert [m.delivery_count for m in self.take(box, 2)] == [2, 2]

    def test_R11_extend_many_moves_every_deadline(self) -> None:
        box = self.open_with("a", "b")
        messages = self.take(box, 2, visibility_timeout=1)
        box.extend_visibility_many(messages, 4)
        self.pass_time(2)
        self.nothing(box)
        assert box.acknowledge_many(messages) == [True, True]

    @needs(Capability.RELEASE_UNCOUNTED)
    def test_R11_release_many_counts_none_of_them(self) -> None:
        box = self.open_with("a", "b")
        box.release_many(self.take(box, 2))
        assert [m.delivery_count for m in self.take(box, 2)] == [1, 1]

    @needs(Capability.BIG_BATCH, Capability.FULL_BATCH)
    def test_R11_batches_of_a_thousand_in_every_verb(self) -> None:
        box = self.open(int)
        box.send_many(range(1_000))
        assert all(box.nack_many(box.receive(max_messages=1_000)))
        assert all(box.release_many(box.receive(max_messages=1_000)))
        messages = box.receive(max_messages=1_000)
        assert {m.delivery_count for m in messages} == {
            2 if self.can(Capability.RELEASE_UNCOUNTED) else 3
        }
        assert all(box.extend_visibility_many(messages, 60))
        assert all(box.acknowledge_many(messages))
        assert len(messages) == 1_000
        assert box.approximate_count() == 0
