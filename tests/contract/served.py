"""The rules that a queue has when it is served as an SQS queue, as cases for every backend.

Mailboxes have no option for these rules: a broker sets them. They hold for mailboxes on the same
queue too, so each backend tells how a broker sets them there (`serve`).
"""

from __future__ import annotations

from pillarbox import Mailbox
from pillarbox.testing.contract.cases.case import Case

Pair = tuple[Mailbox[str], Mailbox[str]]


class ServedCase(Case):
    """A case about a queue with rules of SQS."""

    def serve(self, *, max_deliveries: int = 0, retention_seconds: int | None = None) -> Pair:
        """A new queue with these rules, and its dead-letter queue."""
        raise NotImplementedError


class DeathOnReceive(ServedCase):
    """R39: what has no deliveries left is dead-lettered when it would be received."""

    def test_R39_a_message_dies_when_it_would_be_received_once_more(self) -> None:
        box, dead = self.serve(max_deliveries=2)
        box.send("a")
        self.one(box).nack()
        self.one(box, visibility_timeout=1)
        self.pass_time(1)
        assert (box.approximate_count(), dead.approximate_count()) == (1, 0)
        self.nothing(box)
        assert (box.approximate_count(), dead.approximate_count()) == (0, 1)
        letter = self.one(dead)
        assert letter.body == "a"
        assert letter.dead_letter is not None
        assert letter.dead_letter.source == box.name
        assert letter.dead_letter.reason == "delivered 2 times"
        assert [each.outcome for each in letter.dead_letter.history] == ["nacked", "expired"]

    def test_R39_a_receive_goes_on_behind_what_dies(self) -> None:
        box, dead = self.serve(max_deliveries=1)
        box.send_many(["a", "b"])
        for message in self.take(box, 2):
            message.nack()
        box.send("c")
        assert self.bodies(box, 1) == ["c"]
        assert sorted(self.bodies(dead, 2)) == ["a", "b"]

    def test_R39_who_waits_for_dead_letters_gets_one_that_dies_on_receive(self) -> None:
        box, dead = self.serve(max_deliveries=1)
        box.send("a")
        self.one(box).nack()
        (parked,) = self.parked(dead)
        assert not parked.done
        self.nothing(box)
        assert [message.body for message in parked.result()] == ["a"]

    def test_R39_a_message_can_be_acknowledged_in_its_last_delivery(self) -> None:
        box, dead = self.serve(max_deliveries=1)
        box.send("a")
        assert self.one(box).acknowledge()
        self.empty(box)
        self.empty(dead)

    def test_R39_a_redriven_message_has_its_deliveries_again(self) -> None:
        box, dead = self.serve(max_deliveries=1)
        box.send("a")
        self.one(box).nack()
        self.nothing(box)
        assert dead.redrive() == 1
        assert self.one(box).delivery_count == 1

    def test_R39_the_group_of_what_dies_on_receive_goes_on(self) -> None:
        box, dead = self.serve(max_deliveries=1)
        for body in ("a1", "a2"):
            box.send(body, group="a")
        self.one(box).nack()
        assert self.bodies(box, 1) == ["a2"]
        letter = self.one(dead)
        assert (letter.body, letter.group) == ("a1", "a")


class Retention(ServedCase):
    """R55: a message that is too old is deleted, not delivered."""

    def test_R55_what_is_too_old_is_not_delivered(self) -> None:
        box, _ = self.serve(retention_seconds=60)
        box.send("old")
        self.pass_time(59)
        box.send("new")
        self.pass_time(1)
        assert self.bodies(box, 1) == ["new"]
        self.nothing(box)

    def test_R55_what_comes_back_too_old_is_not_delivered_again(self) -> None:
        box, _ = self.serve(retention_seconds=60)
        box.send("a")
        self.one(box, visibility_timeout=30)
        self.pass_time(60)
        self.empty(box)

    def test_R55_a_holder_keeps_what_grows_too_old(self) -> None:
        box, _ = self.serve(retention_seconds=60)
        box.send("a")
        held = self.one(box, visibility_timeout=100)
        self.pass_time(60)
        assert held.acknowledge()
        self.empty(box)

    def test_R55_the_group_of_what_is_too_old_goes_on(self) -> None:
        box, _ = self.serve(retention_seconds=60)
        box.send("a1", group="a")
        self.pass_time(59)
        box.send("a2", group="a")
        self.pass_time(1)
        assert self.bodies(box, 1) == ["a2"]


class DeduplicationByGroup(ServedCase):
    """R55: a deduplication id counts within its group."""

    def test_R55_the_same_deduplication_id_in_two_groups_is_two_messages(self) -> None:
        box, _ = self.serve()
        first = box.send("a", group="a", deduplication_id="1")
        assert box.send("b", group="b", deduplication_id="1") != first
        assert sorted(self.bodies(box, 2)) == ["a", "b"]

    def test_R55_a_deduplication_id_is_recognised_in_its_group(self) -> None:
        box, _ = self.serve()
        first = box.send("a", group="a", deduplication_id="1")
        assert box.send("b", group="a", deduplication_id="1") == first
        assert self.bodies(box, 1) == ["a"]
