"""Quotas of keys: what is used up is refused, and comes back with time."""

from __future__ import annotations

from typing import Any

import boto3
import pytest
from botocore.config import Config as ClientConfig
from botocore.exceptions import ClientError

from pillarbox import MailboxError, open_mailbox
from pillarbox.broker import quotas
from pillarbox.broker.config import Key
from pillarbox.broker.errors import SqsError
from pillarbox.mailbox.broker import wire
from pillarbox.testing.broker import running_broker
from pillarbox.testing.redis import until


class Time:
    now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Time:
    made = Time()
    monkeypatch.setattr(quotas, "time", made)
    return made


def throttled(quota: quotas.Quota, params: Any) -> bool:
    try:
        quota.charge(params)
    except SqsError as error:
        return error.name == "RequestThrottled"
    return False


def test_R59_requests_per_second(clock: Time) -> None:
    quota = quotas.Quota(Key("k", "s", requests_per_second=2))

    assert [throttled(quota, wire.Tally()) for _ in range(4)] == [False, False, True, True]
    clock.now += 0.5
    assert [throttled(quota, wire.Tally()) for _ in range(2)] == [False, True]
    clock.now += 1_000  # no more than a second's worth is saved up
    assert sum(not throttled(quota, wire.Tally()) for _ in range(10)) == 2


@pytest.mark.parametrize(
    "key",
    [Key("k", "s", messages_per_second=10), Key("k", "s", bytes_per_second=30)],
    ids=["messages", "bytes"],
)
def test_R59_a_large_batch_is_let_through_and_paid_for_later(clock: Time, key: Key) -> None:
    quota, batch = quotas.Quota(key), wire.Send([b"abc"] * 30)

    assert not throttled(quota, batch)
    clock.now += 1.9
    assert throttled(quota, batch)
    clock.now += 0.2
    assert not throttled(quota, batch)


def test_R59_a_key_that_sent_too_much_may_still_receive_and_delete(clock: Time) -> None:
    quota = quotas.Quota(Key("k", "s", messages_per_second=1, bytes_per_second=1))
    quota.charge(wire.Send([b"abc"] * 30))

    assert throttled(quota, wire.Send([b"x"]))
    for command in (wire.Receive(1, 0), wire.Acknowledge([]), wire.Declare(), wire.Tally()):
        assert not throttled(quota, command)


def test_R59_a_key_without_limits_has_no_quota() -> None:
    assert quotas.quota_of(None) is None
    assert quotas.quota_of(Key("k", "s")) is None


def test_R59_control_without_the_quota_a_client_sends_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(quotas.Quota, "charge", lambda self, params: None)
    with running_broker(keys=(Key("slow", "s", messages_per_second=1),)) as url:
        slow = open_mailbox(f"{url.replace('://', '://slow:s@')}/jobs", str)
        slow.send_many(["x"] * 5)
        slow.send("y")
        assert slow.stats().ready == 6


def test_R59_clients_of_both_protocols_are_throttled_and_others_are_not() -> None:
    keys = (Key("slow", "s", messages_per_second=1), Key("boss", "s"))
    with running_broker(keys=keys) as url:
        boss = open_mailbox(f"{url.replace('://', '://boss:s@')}/jobs", str)
        slow = open_mailbox(f"{url.replace('://', '://slow:s@')}/jobs", str, create=False)
        client = boto3.client(
            "sqs", endpoint_url=str(url), region_name="us-east-1", aws_access_key_id="slow",
            aws_secret_access_key="s", config=ClientConfig(retries={"total_max_attempts": 1}),
        )  # fmt: skip
        slow.send_many(["x"] * 5)
        with pytest.raises(MailboxError, match=r"used up its quota \(messages_per_second = 1\)"):
            slow.send("y")
        with pytest.raises(ClientError, match="RequestThrottled"):
            client.send_message(QueueUrl=f"{url}/000000000000/jobs", MessageBody="y")
        boss.send_many(["z"] * 100)
        assert boss.stats().ready == 105

        def sent() -> bool:
            try:
                slow.send("later")
            except MailboxError:
                return False
            return True

        until(sent, "the quota is there again")
