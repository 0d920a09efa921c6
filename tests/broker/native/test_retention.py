"""A queue that a mailbox made keeps its messages, however old they are (R35)."""

from __future__ import annotations

from pillarbox import open_mailbox
from pillarbox.testing import FakeClock
from pillarbox.testing.broker import running_broker
from tests.broker.support import Client

DAY = 86_400


def test_R35_a_mailbox_on_a_broker_keeps_messages_for_longer_than_sqs_does() -> None:
    clock = FakeClock()
    with running_broker(clock=clock) as url, open_mailbox(f"{url}/orders", str) as box:
        box.send("patient")
        clock.advance(30 * DAY)
        assert [message.body for message in box.receive()] == ["patient"]


def test_R35_other_attributes_that_sqs_s_api_sets_are_no_reason_to_delete_messages() -> None:
    clock = FakeClock()
    with (
        running_broker(clock=clock) as url,
        open_mailbox(f"{url}/orders", str) as box,
        Client(url) as sqs,
    ):
        box.send("patient")
        sqs("SetQueueAttributes", QueueUrl="orders", Attributes={"VisibilityTimeout": "9"})
        clock.advance(30 * DAY)
        assert box.stats().ready == 1
        sqs("SetQueueAttributes", QueueUrl="orders", Attributes={"MessageRetentionPeriod": "60"})
        clock.advance(60)
        assert sqs.receive("orders") == []
