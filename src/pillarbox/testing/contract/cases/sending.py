"""R1: send."""

from __future__ import annotations

from pillarbox.testing.contract.backend import Capability, needs
from pillarbox.testing.contract.cases.case import Case

DAY = 86_400


class Sending(Case):
    def test_R1_send_answers_with_the_id_that_the_receiver_sees(self) -> None:
        box = self.open()
        message_id = box.send("a")
        assert isinstance(message_id, str)
        assert message_id
        assert self.one(box).id == message_id

    def test_R1_ids_are_unique(self) -> None:
        box = self.open()
        assert len({box.send("same body") for _ in range(100)}) == 100

    def test_R1_ids_are_unique_across_mailboxes(self) -> None:
        boxes = [self.open(), self.open(), self.open()]
        assert len({box.send("same body") for box in boxes for _ in range(20)}) == 60

    def test_R1_ids_are_not_used_again_after_acknowledge_and_purge(self) -> None:
        box = self.open()
        first = box.send("a")
        self.one(box).acknowledge()
        second = box.send("b")
        box.purge()
        assert len({first, second, box.send("c")}) == 3

    def test_R1_a_message_without_delay_can_be_received_at_once(self) -> None:
        box = self.open()
        box.send("now", delay_seconds=0)
        assert self.one(box).body == "now"

    def test_R1_a_delayed_message_is_not_received_before_its_time(self) -> None:
        box = self.open()
        box.send("later", delay_seconds=3)
        self.nothing(box)
        self.pass_time(1)
        self.nothing(box)
        self.pass_time(2)
        assert self.one(box).body == "later"

    @needs(Capability.SUBSECOND_TIMES, Capability.TIME_TRAVEL)
    def test_R1_a_delay_is_not_cut_short_by_a_fraction_of_a_second(self) -> None:
        box = self.open()
        box.send("later", delay_seconds=0.5)
        self.pass_time(0.499_999)
        self.nothing(box)
        self.pass_time(0.000_001)
        assert self.one(box).body == "later"

    @needs(Capability.SUBSECOND_TIMES, Capability.TIME_TRAVEL)
    def test_R1_the_smallest_delay_is_still_a_delay(self) -> None:
        box = self.open()
        box.send("later", delay_seconds=1e-12)
        self.nothing(box)
        self.pass_time(0.001)
        assert self.one(box).body == "later"

    @needs(Capability.LONG_DELAY, Capability.TIME_TRAVEL)
    def test_R1_a_delay_may_be_days(self) -> None:
        box = self.open()
        box.send("later", delay_seconds=3 * DAY)
        self.pass_time(3 * DAY - 1)
        self.nothing(box)
        self.pass_time(1)
        assert self.one(box).body == "later"

    @needs(Capability.FIFO_ORDER)
    def test_R1_equal_delays_keep_the_order_of_sending(self) -> None:
        box = self.open()
        for number in range(5):
            box.send(str(number), delay_seconds=1)
        self.pass_time(1)
        assert self.bodies(box, 5) == ["0", "1", "2", "3", "4"]

    @needs(Capability.FIFO_ORDER)
    def test_R1_delays_come_due_in_the_order_of_their_times(self) -> None:
        box = self.open()
        for delay in (3, 1, 2):
            box.send(f"after {delay}", delay_seconds=delay)
        self.pass_time(3)
        assert self.bodies(box, 3) == ["after 1", "after 2", "after 3"]

    def test_R1_a_delayed_message_holds_nobody_back(self) -> None:
        box = self.open()
        box.send("later", delay_seconds=3)
        box.send("now")
        assert self.one(box).body == "now"
        self.nothing(box)

    @needs(Capability.FIFO_ORDER)
    def test_R1_a_delayed_message_stands_behind_those_sent_while_it_waited(self) -> None:
        box = self.open()
        box.send("delayed", delay_seconds=1)
        box.send("sent meanwhile")
        self.pass_time(1)
        assert self.bodies(box, 2) == ["sent meanwhile", "delayed"]

    def test_R1_attributes_arrive_beside_the_body(self) -> None:
        box = self.open()
        box.send("a", attributes={"colour": "red", "größe": "ü, 漢字", "empty-not": " "})
        found = dict(self.one(box).attributes)
        assert found == {"colour": "red", "größe": "ü, 漢字", "empty-not": " "}

    def test_R1_a_message_has_no_attributes_unless_it_was_given_some(self) -> None:
        box = self.open_with("a")
        assert dict(self.one(box).attributes) == {}

    def test_R1_a_body_that_the_sender_changes_afterwards_is_not_changed(self) -> None:
        box = self.open(list)
        body = ["as sent"]
        box.send(body)
        body.append("too late")
        assert self.one(box).body == ["as sent"]
