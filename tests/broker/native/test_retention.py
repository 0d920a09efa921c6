"""A queue that a mailbox made keeps its messages, however old they are (R35)."""

from __future__ import annotations

from pillarbox import open_mailbox
from pillarbox.testing import FakeClock
from pillarbox.testing.broker import running_broker

DAY = 86_400


def test_R35_a_mailbox_on_a_broker_keeps_messages_for_longer_than_sqs_does() -> None:
    clock = FakeClock()
    with running_broker(clock=clock) as url, open_mailbox(f"{url}/orders", str) as box:
        box.send("patient")
        clock.advance(30 * DAY)
        assert [message.body for message in box.receive()] == ["patient"]
