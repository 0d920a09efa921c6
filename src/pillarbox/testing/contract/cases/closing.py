"""R24: closing a mailbox wakes waiting receives and refuses new messages; its messages stay."""

from __future__ import annotations

import sys
from collections.abc import Callable
from threading import Event
from typing import Any

import pytest

from pillarbox.core.errors import MailboxClosedError, MailboxError
from pillarbox.mailbox.protocol import Mailbox
from pillarbox.testing.contract.backend import Capability, needs
from pillarbox.testing.contract.cases.case import Case

REFUSED: dict[str, Callable[[Mailbox[Any]], object]] = {
    "send": lambda box: box.send("b"),
    "send later": lambda box: box.send("b", delay_seconds=5),
    "send_many": lambda box: box.send_many(["b"]),
    "send_many of nothing": lambda box: box.send_many([]),
    "receive": lambda box: box.receive(),
    "receive with a wait": lambda box: box.receive(wait_time_seconds=20),
    "purge": lambda box: box.purge(),
}


class Closing(Case):
    def test_R24_closed_says_so(self) -> None:
        box = self.open()
        assert box.closed is False
        box.close()
        assert box.closed is True

    def test_R24_closing_twice_is_no_error(self) -> None:
        box = self.open()
        box.close()
        box.close()
        assert box.closed is True

    @pytest.mark.parametrize("verb", REFUSED.values(), ids=REFUSED.keys())
    def test_R24_a_closed_mailbox_refuses_and_changes_nothing(
        self, verb: Callable[[Mailbox[Any]], object]
    ) -> None:
        box = self.open()
        other = self.backend.again(box, str)
        box.send("a")
        box.close()
        with pytest.raises(MailboxClosedError, match=box.name) as raised:
            self.call(lambda: verb(box)).result()
        assert isinstance(raised.value, MailboxError)
        assert self.one(other).delivery_count == 1
        self.nothing(other)

    def test_R24_a_mailbox_that_was_in_use_refuses_once_it_is_closed(self) -> None:
        box = self.open()
        for body in ("a", "b"):
            box.send(body)
            self.one(box).acknowledge()
        box.send("c")
        box.close()
        with pytest.raises(MailboxClosedError):
            box.receive(wait_time_seconds=self.backend.look_seconds)
        with pytest.raises(MailboxClosedError):
            box.send("d")
        other = self.backend.again(box, str)
        assert self.one(other).body == "c"
        self.nothing(other)

    def test_R24_close_wakes_every_parked_receive(self) -> None:
        box = self.open()
        calls = self.parked(box, 5, wait_time_seconds=20)
        box.close()
        assert [list(call.result()) for call in calls] == [[], [], [], [], []]

    @needs(Capability.HANG_UP)
    def test_R24_close_during_a_poll_takes_no_message_along(self) -> None:
        box = self.open()
        other = self.backend.again(box, str)
        (parked,) = self.parked(box)
        box.close()
        assert list(parked.result()) == []
        other.send("a")
        assert self.one(other).delivery_count == 1

    @needs(Capability.HANG_UP)
    def test_R24_close_wakes_only_its_own(self) -> None:
        box = self.open()
        other = self.backend.again(box, str)
        first = self.park(other)
        self.backend.wait_until_parked(box, 1)
        second = self.park(box)
        self.backend.wait_until_parked(box, 2)
        box.close()
        assert list(second.result()) == []
        assert not first.done
        other.send("a")
        assert [m.body for m in first.result()] == ["a"]

    def test_R24_a_receive_that_begins_while_the_mailbox_closes_is_not_left_waiting(self) -> None:
        usual = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)  # switch threads as often as possible
        try:
            for number in range(self.backend.crowd_messages):
                self.close_and_receive_at_once(pause=number % 50)
        finally:
            sys.setswitchinterval(usual)

    def close_and_receive_at_once(self, pause: int) -> None:
        box = self.open()
        begun = Event()

        def receive() -> list[Any]:
            begun.set()
            return list(box.receive(wait_time_seconds=20))

        call = self.call(receive)
        begun.wait()
        for _ in range(pause * 10):  # so that the close happens at every point of the receive
            pass
        box.close()
        try:
            assert call.result() == []
        except MailboxClosedError:  # the mailbox was closed first
            assert box.closed

    def test_R24_what_is_in_a_closed_mailbox_stays_in_its_queue(self) -> None:
        box = self.open()
        other = self.backend.again(box, str)
        box.send("ready")
        box.send("scheduled", delay_seconds=1)
        box.close()
        self.pass_time(1)
        self.same_items(self.bodies(other, 2), ["ready", "scheduled"])

    def test_R24_another_object_of_the_queue_is_not_closed(self) -> None:
        box = self.open()
        other = self.backend.again(box, str)
        box.close()
        assert other.closed is False
        other.send("a")
        assert self.one(other).acknowledge() is True

    def test_R24_a_closed_mailbox_can_be_opened_again(self) -> None:
        box = self.open_with("a")
        box.close()
        assert self.one(self.backend.again(box, str)).body == "a"

    def test_R24_what_a_closed_mailbox_held_comes_back_after_its_lease(self) -> None:
        box = self.open()
        other = self.backend.again(box, str)
        box.send("a")
        self.one(box, visibility_timeout=2)
        box.close()
        self.nothing(other)
        self.pass_time(2)
        assert self.one(other).delivery_count == 2

    @needs(Capability.SETTLE_AFTER_CLOSE)
    def test_R24_what_was_received_before_can_still_be_settled(self) -> None:
        box = self.open()
        other = self.backend.again(box, str)
        box.send_many(["a", "b"])
        first, second = self.take(box, 2)
        box.close()
        assert first.acknowledge() is True
        assert second.nack() is True
        assert self.one(other).body == second.body
