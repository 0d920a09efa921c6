"""R39: redrive dead letters: all, one, those that match, or to another queue."""

from __future__ import annotations

from typing import Any

import pytest

from pillarbox.core.errors import InvalidParameterError
from pillarbox.mailbox.protocol import DeadLetterPolicy, Mailbox
from pillarbox.testing.contract.backend import Capability, needs
from pillarbox.testing.contract.cases.case import Case


class Redriving(Case):
    def dead(self, *bodies: str) -> tuple[Mailbox[Any], Mailbox[Any], dict[str, str]]:
        """Dead-letter these messages; return the mailbox, its dead letters, and ids by body."""
        box, dead = self.open_mortal(1)
        ids = {}
        for body in bodies:
            ids[body] = box.send(body)
            self.die(box)
        return box, dead, ids

    @needs(Capability.REDRIVE, Capability.REDRIVE_KEEPS_ID)
    def test_R39_redrive_sends_all_back(self) -> None:
        box, dead, ids = self.dead("a", "b", "c")
        assert dead.redrive() == 3
        assert {m.body: m.id for m in self.take(box, 3)} == ids
        self.empty(dead)
        self.counts(box, 3)

    @needs(Capability.FIFO_ORDER)
    def test_R39_redriven_messages_keep_their_order_behind_those_that_wait(self) -> None:
        box, dead, _ = self.dead("a", "b")
        box.send("waits")
        dead.redrive()
        assert self.bodies(box, 3) == ["waits", "a", "b"]

    @needs(Capability.REDRIVE)
    def test_R39_a_redriven_message_starts_again_at_delivery_one(self) -> None:
        box, dead, _ = self.dead("a")
        dead.redrive()
        message = self.one(box)
        assert message.delivery_count == 1
        assert message.dead_letter is None

    @needs(Capability.REDRIVE, Capability.REDRIVE_KEEPS_ID)
    def test_R39_a_redriven_message_is_as_it_was(self) -> None:
        box, dead = self.open_mortal(1)
        message_id = box.send("a", attributes={"colour": "red"}, reply_to="answers")
        self.die(box)
        dead.redrive()
        message = self.one(box)
        assert (message.id, message.body, message.reply_to) == (message_id, "a", "answers")
        assert dict(message.attributes) == {"colour": "red"}

    @needs(Capability.REDRIVE, Capability.REDRIVE_KEEPS_ID)
    def test_R39_a_redriven_message_has_all_its_deliveries_and_dies_again(self) -> None:
        box, dead = self.open_mortal(2)
        message_id = box.send("a")
        self.die(box, 2)
        dead.redrive()
        self.one(box).nack()
        self.nothing(dead)
        self.one(box).nack()
        self.let_die(box)
        assert self.one(dead).id == message_id

    @needs(Capability.DEAD_LETTER_HISTORY)
    def test_R39_who_dies_again_has_the_reason_of_the_last_time(self) -> None:
        box, dead, _ = self.dead("a")
        dead.redrive()
        self.one(box).reject("second time")
        letter = self.one(dead).dead_letter
        assert letter is not None
        assert letter.reason == "second time"
        assert letter.history[-1].outcome == "rejected"

    @needs(Capability.REDRIVE_BY_CHOICE)
    def test_R39_redrive_of_one_by_its_id(self) -> None:
        box, dead, ids = self.dead("a", "b", "c")
        assert dead.redrive([ids["b"]]) == 1
        assert self.one(box).body == "b"
        self.nothing(box)
        self.same_items(self.bodies(dead, 2), ["a", "c"])

    @needs(Capability.REDRIVE_BY_CHOICE)
    def test_R39_redrive_of_those_that_match(self) -> None:
        box, dead, _ = self.dead("keep 1", "take 1", "keep 2", "take 2")
        assert dead.redrive(where=lambda m: str(m.body).startswith("take")) == 2
        self.same_items(self.bodies(box, 2), ["take 1", "take 2"])
        self.nothing(box)
        self.counts(dead, 2)

    @needs(Capability.REDRIVE_BY_CHOICE, Capability.DEAD_LETTER_HISTORY)
    def test_R39_redrive_can_choose_by_the_reason(self) -> None:
        box, dead = self.open_mortal(5)
        box.send_many(["a", "b"])
        for message in self.take(box, 2):
            message.reject(f"reason {message.body}")
        chosen = dead.redrive(
            where=lambda m: m.dead_letter is not None and m.dead_letter.reason == "reason b"
        )
        assert chosen == 1
        assert self.one(box).body == "b"

    @needs(Capability.REDRIVE_BY_CHOICE)
    def test_R39_redrive_by_id_and_by_match_must_both_hold(self) -> None:
        box, dead, ids = self.dead("a", "b", "c")
        chosen = dead.redrive([ids["a"], ids["b"]], where=lambda m: m.body in ("b", "c"))
        assert chosen == 1
        assert self.one(box).body == "b"
        self.nothing(box)

    @needs(Capability.REDRIVE_BY_CHOICE, Capability.REDRIVE_KEEPS_ID)
    def test_R39_redrive_to_another_mailbox(self) -> None:
        box, dead, ids = self.dead("a")
        other = self.open()
        assert dead.redrive(to=other.name) == 1
        message = self.one(other)
        assert (message.id, message.delivery_count) == (ids["a"], 1)
        assert message.acknowledge() is True
        self.nothing(box)
        self.nothing(dead)

    @needs(Capability.REDRIVE_BY_CHOICE)
    def test_R39_redrive_to_itself_is_refused_and_moves_nothing(self) -> None:
        _, dead, _ = self.dead("a")
        with pytest.raises(InvalidParameterError) as raised:
            dead.redrive(to=dead.name)
        assert raised.value.parameter == "to"
        assert self.one(dead).body == "a"

    @needs(Capability.REDRIVE_BY_CHOICE)
    @pytest.mark.parametrize("to", ["", "no such name!", 7])
    def test_R39_redrive_to_a_bad_name_is_refused_and_moves_nothing(self, to: Any) -> None:
        box, dead, _ = self.dead("a")
        with pytest.raises(InvalidParameterError) as raised:
            dead.redrive(to=to)
        assert raised.value.parameter == "to"
        assert self.one(dead).body == "a"
        self.nothing(box)

    @needs(Capability.REDRIVE_BY_CHOICE)
    @pytest.mark.parametrize("to", ["", "no such name!", "a/b", 7])
    def test_R39_redrive_to_a_bad_name_is_refused_when_there_is_nothing_to_move(
        self, to: Any
    ) -> None:
        _, dead = self.open_mortal(1)
        with pytest.raises(InvalidParameterError) as raised:
            dead.redrive(to=to)
        assert raised.value.parameter == "to"

    @needs(Capability.REDRIVE_BY_CHOICE)
    def test_R39_redrive_to_itself_is_refused_when_there_is_nothing_to_move(self) -> None:
        _, dead = self.open_mortal(1)
        with pytest.raises(InvalidParameterError) as raised:
            dead.redrive(to=dead.name)
        assert raised.value.parameter == "to"

    @needs(Capability.REDRIVE)
    def test_R39_each_goes_back_to_where_it_came_from(self) -> None:
        boxes = [self.open(dead_letters=DeadLetterPolicy(1, "shared")) for _ in range(2)]
        for box in boxes:
            box.send(f"of {box.name}")
            self.die(box)
        assert boxes[0].dead_letters is not None
        assert boxes[0].dead_letters.redrive() == 2
        for box in boxes:
            assert self.one(box).body == f"of {box.name}"
            self.nothing(box)

    @needs(Capability.REDRIVE)
    def test_R39_redrive_of_nothing_is_zero(self) -> None:
        _, dead = self.open_mortal(1)
        assert dead.redrive() == 0

    @needs(Capability.REDRIVE_BY_CHOICE)
    def test_R39_redrive_of_ids_that_are_not_there_is_zero(self) -> None:
        box, dead, _ = self.dead("a")
        alive = box.send("alive")
        assert dead.redrive([alive, "no such id", ""]) == 0
        assert dead.redrive([]) == 0
        assert dead.redrive(where=lambda m: False) == 0
        assert self.one(dead).body == "a"

    @needs(Capability.REDRIVE)
    def test_R39_a_dead_letter_that_someone_holds_is_not_redriven(self) -> None:
        box, dead, _ = self.dead("held", "waits")
        held = self.one(dead)
        assert dead.redrive() == 1
        self.counts(box, 1)
        assert self.one(box).body != held.body
        assert held.acknowledge() is True

    @needs(Capability.REDRIVE)
    def test_R39_redrive_leaves_what_is_no_dead_letter(self) -> None:
        _, dead = self.open_mortal(1)
        dead.send("put here by hand")
        assert dead.redrive() == 0
        assert self.one(dead).body == "put here by hand"

    @needs(Capability.REDRIVE_BY_CHOICE)
    def test_R39_a_redrive_creates_no_queue(self) -> None:
        _, dead, _ = self.dead("a")
        for _ in range(2):
            with pytest.raises(InvalidParameterError, match="exists"):
                dead.redrive(to="nobody-has-made-this")
        self.counts(dead, 1)
        assert self.one(dead).body == "a"
