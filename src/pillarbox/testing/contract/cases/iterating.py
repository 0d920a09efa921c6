"""R2, R24: iterating over the messages of a mailbox, until it is closed."""

from __future__ import annotations

from typing import Any

from pillarbox.testing.contract.cases.case import Case


class Iterating(Case):
    def test_R2_a_loop_receives_message_after_message(self) -> None:
        box = self.open()
        for body in ("a", "b", "c"):
            box.send(body)
        bodies = []
        for message in box.messages():
            bodies.append(message.body)
            assert message.acknowledge()
            if len(bodies) == 3:
                break
        self.same_items(bodies, ["a", "b", "c"])
        self.counts(box, 0)

    def test_R2_a_loop_that_does_not_wait_ends_when_nothing_is_ready(self) -> None:
        box = self.open()
        assert [message.body for message in box.messages(wait_time_seconds=0)] == []

    def test_R2_a_loop_gives_back_what_it_did_not_come_to(self) -> None:
        box = self.open_with("a", "b", "c")
        for message in box.messages(max_messages=3, wait_time_seconds=0):
            assert message.acknowledge()
            break
        self.take(box, 2)

    def test_R24_a_loop_that_waits_ends_when_the_mailbox_is_closed(self) -> None:
        box = self.open_with("a")

        def loop() -> list[Any]:
            bodies = []
            for message in box.messages(wait_time_seconds=20):
                bodies.append(message.body)
                message.acknowledge()
            return bodies

        call = self.call(loop)
        self.backend.wait_until_parked(box, 1)
        box.close()
        assert call.result() == ["a"]

    def test_R24_a_loop_ends_when_its_body_closes_the_mailbox(self) -> None:
        box = self.open_with("a", "b")
        other = self.backend.again(box, str)
        seen = 0
        for message in box.messages(max_messages=2, wait_time_seconds=self.backend.look_seconds):
            assert message.acknowledge()
            seen += 1
            box.close()
        assert seen == 1
        self.one(other)

    def test_R24_a_closed_mailbox_has_no_messages_to_loop_over(self) -> None:
        box = self.open_with("a")
        box.close()
        assert list(box.messages()) == []
