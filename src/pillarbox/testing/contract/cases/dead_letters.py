"""R39: a message that fails too often moves to the dead-letter queue, with the reason."""

from __future__ import annotations

from datetime import timedelta

import pytest

from pillarbox.core.errors import InvalidParameterError
from pillarbox.mailbox.message import DeadLetter
from pillarbox.mailbox.protocol import DeadLetterPolicy, Mailbox
from pillarbox.testing.contract.backend import Capability, needs
from pillarbox.testing.contract.cases.case import Case


class DeadLetters(Case):
    def letter(self, dead: Mailbox[str]) -> DeadLetter:
        letter = self.one(dead).dead_letter
        assert letter is not None
        return letter

    def test_R39_without_a_policy_there_are_no_dead_letters(self) -> None:
        box = self.open()
        assert box.dead_letters is None
        box.send("a")
        for _ in range(10):
            self.one(box).nack()
        assert self.one(box).delivery_count == 11

    def test_R39_dead_letters_are_in_a_mailbox_named_after_their_own(self) -> None:
        box = self.open(name="letters", dead_letters=DeadLetterPolicy(1))
        assert box.dead_letters is not None
        assert box.dead_letters.name == "letters_dlq"

    def test_R39_the_dead_letter_mailbox_may_have_any_name(self) -> None:
        box = self.open(dead_letters=DeadLetterPolicy(1, "graveyard"))
        assert box.dead_letters is not None
        assert box.dead_letters.name == "graveyard"
        box.send("a")
        self.die(box)
        assert self.one(self.backend.again(box.dead_letters, str)).body == "a"

    def test_R39_a_message_dies_after_that_many_nacks_and_not_before(self) -> None:
        box, dead = self.open_mortal(3)
        message_id = box.send("a")
        for delivery in (1, 2):
            self.one(box).nack()
            self.nothing(dead)
            assert delivery < 3
        self.one(box).nack()
        self.nothing(box)
        assert self.one(dead).id == message_id

    def test_R39_a_message_dies_after_that_many_leases_ran_out(self) -> None:
        box, dead = self.open_mortal(2)
        message_id = box.send("a")
        self.one(box, visibility_timeout=1)
        self.pass_time(1)
        self.nothing(dead)
        self.one(box, visibility_timeout=1)
        self.pass_time(1)
        self.nothing(box)
        assert self.one(dead).id == message_id

    def test_R39_nacks_and_leases_that_ran_out_add_up(self) -> None:
        box, dead = self.open_mortal(3, sent="a")
        self.one(box).nack()
        self.one(box, visibility_timeout=1)
        self.pass_time(1)
        self.one(box).nack(visibility_timeout=1)
        self.pass_time(1)
        self.nothing(box)
        assert self.one(dead).body == "a"

    @needs(Capability.DEAD_AT_ONCE)
    def test_R39_a_last_nack_with_a_delay_does_not_wait_for_it(self) -> None:
        box, dead = self.open_mortal(1, sent="a")
        self.one(box).nack(visibility_timeout=60)
        assert self.one(dead).body == "a"
        self.counts(box, 0)

    def test_R39_what_is_acknowledged_in_time_does_not_die(self) -> None:
        box, dead = self.open_mortal(2, sent="a")
        self.one(box).nack()
        assert self.one(box, visibility_timeout=1).acknowledge() is True
        self.pass_time(1)
        self.nothing(box)
        self.nothing(dead)

    def test_R39_only_the_one_that_failed_dies(self) -> None:
        box, dead = self.open_mortal(1)
        box.send_many(["a", "b"])
        failed, fine = self.take(box, 2)
        failed.nack()
        self.let_die(box)
        assert fine.acknowledge() is True
        assert self.one(dead).body == failed.body
        self.nothing(dead)

    def test_R39_extending_is_no_failure(self) -> None:
        box, dead = self.open_mortal(1, sent="a")
        held = self.one(box, visibility_timeout=1)
        held.extend_visibility(5)
        self.pass_time(2)
        self.nothing(dead)
        assert held.acknowledge() is True

    def test_R39_a_dead_letter_is_the_same_message(self) -> None:
        box, dead = self.open_mortal(1)
        message_id = box.send("a", attributes={"colour": "red"})
        sent_at = self.one(box, visibility_timeout=0).enqueued_at
        self.let_die(box)
        letter = self.one(dead)
        assert (letter.id, letter.body) == (message_id, "a")
        assert dict(letter.attributes) == {"colour": "red"}
        assert letter.enqueued_at == sent_at

    @needs(Capability.PRIORITY)
    def test_R39_a_dead_letter_keeps_its_priority(self) -> None:
        box, dead = self.open_mortal(1)
        box.send("low", priority=1)
        box.send("high", priority=9)
        for message in reversed(self.take(box, 2)):
            message.nack()
        self.let_die(box)
        assert [(m.body, m.priority) for m in self.take(dead, 2)] == [("high", 9), ("low", 1)]

    @needs(Capability.FIFO_ORDER, Capability.DEAD_AT_ONCE)
    def test_R39_dead_letters_are_in_the_order_of_their_deaths(self) -> None:
        box, dead = self.open_mortal(1)
        box.send_many(["a", "b", "c"])
        for message in reversed(self.take(box, 3)):
            message.nack()
        assert self.bodies(dead, 3) == ["c", "b", "a"]

    def test_R39_the_count_of_deliveries_goes_on(self) -> None:
        box, dead = self.open_mortal(2, sent="a")
        self.die(box, 2)
        assert self.one(dead).delivery_count == 3

    def test_R39_a_dead_letter_can_be_acknowledged(self) -> None:
        box, dead = self.open_mortal(1, sent="a")
        self.die(box)
        assert self.one(dead).acknowledge() is True
        self.empty(dead)

    def test_R39_a_dead_letter_that_fails_stays_where_it_is(self) -> None:
        box, dead = self.open_mortal(1, sent="a")
        self.die(box)
        for delivery in (2, 3, 4):
            letter = self.one(dead)
            assert letter.delivery_count == delivery
            letter.nack()
        assert dead.dead_letters is None
        self.nothing(box)

    @needs(Capability.DEAD_LETTER_HISTORY)
    def test_R39_a_dead_letter_tells_its_history(self) -> None:
        box, dead = self.open_mortal(3, sent="a")
        self.one(box).nack()
        self.one(box, visibility_timeout=1)
        self.pass_time(1)
        self.one(box).nack()
        letter = self.letter(dead)
        assert [failed.outcome for failed in letter.history] == ["nacked", "expired", "nacked"]
        assert letter.source == box.name

    @needs(Capability.DEAD_LETTER_HISTORY)
    def test_R39_the_history_has_the_time_of_each_delivery(self) -> None:
        box, dead = self.open_mortal(2, sent="a")
        self.one(box, visibility_timeout=2)
        self.pass_time(2)
        held = self.one(box)
        self.pass_time(1)
        held.nack()
        letter = self.letter(dead)
        first, second = letter.history
        assert timedelta(seconds=2) <= first.ended_at - first.received_at < timedelta(seconds=30)
        assert timedelta(seconds=1) <= second.ended_at - second.received_at < timedelta(seconds=30)
        assert first.ended_at <= second.received_at
        assert letter.died_at == second.ended_at
        for moment in (first.received_at, second.ended_at, letter.died_at):
            assert moment.utcoffset() == timedelta(0)

    @needs(Capability.DEAD_LETTER_HISTORY, Capability.TIME_TRAVEL)
    def test_R39_a_message_died_when_its_lease_ended_not_when_that_was_noticed(self) -> None:
        box, dead = self.open_mortal(1, sent="a")
        self.one(box, visibility_timeout=10)
        self.pass_time(3_600)
        letter = self.letter(dead)
        (only,) = letter.history
        assert only.ended_at - only.received_at == timedelta(seconds=10)
        assert letter.died_at == only.ended_at

    @needs(Capability.DEAD_LETTER_HISTORY)
    def test_R39_the_reason_says_what_happened_and_how_often(self) -> None:
        box, dead = self.open_mortal(2)
        box.send_many(["nacked", "expired"])
        for _ in range(2):
            nacked, _ = self.take(box, 2, visibility_timeout=1)
            nacked.nack()
            self.pass_time(1)
        reasons = [m.dead_letter.reason for m in self.take(dead, 2) if m.dead_letter]
        assert len(reasons) == 2
        assert "nacked" in reasons[0]
        assert "expired" in reasons[1]
        assert all("2" in reason for reason in reasons)

    @needs(Capability.REJECT)
    def test_R39_a_rejected_message_dies_at_once(self) -> None:
        box, dead = self.open_mortal(100)
        message_id = box.send("a")
        assert self.one(box).reject("no such customer") is True
        self.empty(box)
        assert self.one(dead).id == message_id

    @needs(Capability.REJECT, Capability.DEAD_LETTER_HISTORY)
    def test_R39_a_rejected_message_has_the_reason_it_was_given(self) -> None:
        box, dead = self.open_mortal(100, sent="a")
        self.one(box).nack()
        self.one(box).reject("no such customer")
        letter = self.letter(dead)
        assert letter.reason == "no such customer"
        assert [failed.outcome for failed in letter.history] == ["nacked", "rejected"]

    @needs(Capability.REJECT)
    def test_R39_without_a_policy_a_rejected_message_is_redelivered(self) -> None:
        box = self.open_with("a")
        assert self.one(box).reject("no such customer") is True
        assert self.one(box).delivery_count == 2

    def test_R39_several_mailboxes_may_share_their_dead_letters(self) -> None:
        boxes = [self.open(dead_letters=DeadLetterPolicy(1, "shared")) for _ in range(2)]
        for box in boxes:
            box.send(f"from {box.name}")
            self.die(box)
        assert boxes[0].dead_letters is not None
        letters = self.take(boxes[0].dead_letters, 2)
        assert sorted(m.body for m in letters) == sorted(f"from {box.name}" for box in boxes)

    def test_R39_every_object_of_the_queue_lives_by_its_policy(self) -> None:
        box, dead = self.open_mortal(1)
        other = self.backend.again(box, str)
        other.send("a")
        self.die(other)
        assert self.one(dead).body == "a"

    def test_R39_a_dead_letter_mailbox_can_have_none_of_its_own(self) -> None:
        _, dead = self.open_mortal(1)
        with pytest.raises(InvalidParameterError) as raised:
            self.open(name=dead.name, dead_letters=DeadLetterPolicy(1, "deeper"))
        assert raised.value.parameter == "dead_letters"

    def test_R39_a_mailbox_with_a_policy_can_be_nobody_s_dead_letter_mailbox(self) -> None:
        box, _ = self.open_mortal(1)
        with pytest.raises(InvalidParameterError) as raised:
            self.open(dead_letters=DeadLetterPolicy(1, box.name))
        assert raised.value.parameter == "dead_letters"

    def test_R39_a_mailbox_can_t_be_its_own_dead_letter_mailbox(self) -> None:
        with pytest.raises(InvalidParameterError) as raised:
            self.open(name="narcissus", dead_letters=DeadLetterPolicy(1, "narcissus"))
        assert raised.value.parameter == "dead_letters"
