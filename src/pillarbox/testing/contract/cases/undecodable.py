"""R23: a body that can't be decoded is never lost and does not block other messages."""

from __future__ import annotations

import pytest

from pillarbox.testing.contract.backend import Capability, needs
from pillarbox.testing.contract.cases.case import Case

BAD = b"\xff\xfe not a number"


class UndecodableBodies(Case):
    def test_R23_the_others_of_the_batch_are_delivered(self) -> None:
        box = self.open(int)
        box.send(1)
        self.backend.put_raw(box, BAD)
        box.send(2)
        messages = self.take(box, 2)
        self.same_items([m.body for m in messages], [1, 2])
        assert box.acknowledge_many(messages) == [True, True]

    def test_R23_one_at_a_time_the_bad_one_is_passed_over(self) -> None:
        box = self.open(int)
        self.backend.put_raw(box, BAD)
        box.send(1)
        assert self.one(box).body == 1

    def test_R23_a_receive_of_nothing_but_bad_bodies_is_empty(self) -> None:
        box = self.open(int)
        for _ in range(3):
            self.backend.put_raw(box, BAD)
        assert list(self.call(lambda: box.receive(max_messages=10)).result()) == []

    def test_R23_without_a_policy_it_is_not_lost(self) -> None:
        box = self.open(int)
        message_id = self.backend.put_raw(box, BAD)
        assert list(box.receive(visibility_timeout=1)) == []
        self.counts(box, 1)
        self.pass_time(1)
        raw = self.one(self.backend.again(box, bytes))
        assert (raw.id, raw.body) == (message_id, BAD)
        assert raw.acknowledge() is True

    def test_R23_without_a_policy_it_blocks_nobody_however_often_it_comes(self) -> None:
        box = self.open(int)
        self.backend.put_raw(box, BAD)
        for number in range(3):
            box.send(number)
            message = self.one(box, visibility_timeout=1)
            assert message.body == number
            message.acknowledge()
            self.pass_time(1)
        self.counts(box, 1)

    @needs(Capability.REJECT)
    def test_R23_with_a_policy_it_is_dead_lettered_at_once(self) -> None:
        box, dead = self.open_mortal(100, int)
        message_id = self.backend.put_raw(box, BAD)
        box.send(1)
        assert self.one(box).body == 1
        self.nothing(box)
        self.counts(box, 1)
        raw = self.one(self.backend.again(dead, bytes))
        assert (raw.id, raw.body) == (message_id, BAD)

    @needs(Capability.REJECT, Capability.DEAD_LETTER_HISTORY)
    def test_R23_its_dead_letter_says_what_was_wrong(self) -> None:
        box, dead = self.open_mortal(100, int)
        self.backend.put_raw(box, BAD)
        self.nothing(box)
        letter = self.one(self.backend.again(dead, bytes)).dead_letter
        assert letter is not None
        assert letter.reason.startswith("undecodable")
        assert "int" in letter.reason
        assert letter.source == box.name
        assert [failed.outcome for failed in letter.history] == ["rejected"]

    @needs(Capability.REJECT)
    def test_R23_the_dead_letters_of_a_typed_mailbox_do_not_lose_it_either(self) -> None:
        box, dead = self.open_mortal(100, int)
        self.backend.put_raw(box, BAD)
        self.nothing(box)
        assert list(dead.receive(visibility_timeout=1)) == []
        self.pass_time(1)
        assert self.one(self.backend.again(dead, bytes)).body == BAD

    @needs(Capability.REJECT)
    def test_R23_once_mended_it_can_be_redriven(self) -> None:
        box, dead = self.open_mortal(100, int)
        self.backend.put_raw(box, b"17")
        words = self.backend.again(box, list)
        self.nothing(words)
        assert dead.redrive() == 1
        assert self.one(box).body == 17

    @pytest.mark.parametrize("mortal", [False, True], ids=["no policy", "policy"])
    def test_R23_a_parked_receive_waits_on_for_one_that_decodes(self, mortal: bool) -> None:
        box = self.open_mortal(5, int)[0] if mortal else self.open(int)
        (parked,) = self.parked(box)
        self.backend.put_raw(box, BAD)
        self.backend.wait_until_parked(box)
        assert not parked.done
        box.send(1)
        assert [m.body for m in parked.result()] == [1]

    def test_R23_a_wait_that_meets_a_bad_body_ends_in_time(self) -> None:
        box = self.open(int)
        (parked,) = self.parked(box, wait_time_seconds=2)
        self.backend.put_raw(box, BAD)
        self.backend.wait_until_parked(box)
        self.pass_time(2)
        assert list(parked.result()) == []
