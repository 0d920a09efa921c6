"""R141: what operators ask of a broker on a shared store; mailboxes are sent to the store."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from pillarbox import MailboxError, __version__, open_mailbox
from pillarbox.broker.config import Key
from pillarbox.mailbox.broker import admin
from pillarbox.mailbox.broker.address import address_of
from pillarbox.mailbox.broker.channel import channels_to
from pillarbox.mailbox.broker.errors import AccessDeniedError
from pillarbox.mailbox.broker.wire import Describe
from pillarbox.testing.broker import RunningBroker, running_broker
from tests.broker.native.support import Relay
from tests.broker.shared.stores import SharedClock, StoreKind
from tests.broker.support import Client, World, eventually
from tests.cli.support import Done, as_json, pillarbox

KEYS = (Key("boss", "s"), Key("clerk", "s", queues=("orders",), actions=("send",)))


@pytest.fixture
def sqs(world: World) -> Iterator[Client]:
    return world.sqs


def doctor(url: str) -> dict[str, dict[str, Any]]:
    return {each["what"]: each for each in as_json(pillarbox("doctor", url, "--json"))}


def test_R141_a_queue_is_paused_at_one_broker_and_resumed_at_another(
    brokers: list[RunningBroker], sqs: Client
) -> None:
    queue = sqs("CreateQueue", QueueName="halted")["QueueUrl"]
    one, other = (f"{each}/halted" for each in brokers)
    assert pillarbox("queue", "pause", one) == Done(0, "halted was paused\n", "")
    sqs.send(queue, "tea")
    assert sqs.bodies(queue) == []
    assert as_json(pillarbox("queue", "info", other, "--json"))["paused"]
    assert "halted (paused)" in pillarbox("queue", "ls", other).stdout
    assert pillarbox("queue", "resume", other).returncode == 0
    assert sqs.bodies(queue) == ["tea"]
    assert pillarbox("queue", "rm", one, "--yes").returncode == 0
    gone = pillarbox("queue", "pause", other)
    assert (gone.returncode, "no queue 'halted'" in gone.stderr) == (1, True)


def test_R141_a_mailbox_in_the_store_waits_until_its_queue_is_resumed(
    brokers: list[RunningBroker], sqs: Client, kind: StoreKind
) -> None:
    queue = sqs("CreateQueue", QueueName="waits")["QueueUrl"]
    assert pillarbox("queue", "pause", f"{kind.url}/waits").returncode == 0
    sqs.send(queue, "tea")
    assert sqs.bodies(queue) == []
    assert admin.list_queues(brokers[0])[-1].paused
    assert pillarbox("queue", "resume", f"{kind.url}/waits").returncode == 0
    assert sqs.bodies(queue) == ["tea"]


def test_R141_the_doctor_names_the_store_and_its_brokers(
    brokers: list[RunningBroker], clock: SharedClock, kind: StoreKind
) -> None:
    def all_seen() -> bool:
        return set(brokers) <= set(admin.describe(brokers[0]).brokers)

    eventually(all_seen)
    found = doctor(brokers[0])
    assert (found["brokers"]["state"], found["brokers"]["found"].count("http")) == ("good", 2)
    assert found["durability"]["state"] == "warning"  # nobody has looked at the store yet
    assert "pillarbox doctor" in found["durability"]["advice"]
    assert "replication" not in found  # that is the store's
    secret = "redis://app:hidden@store"
    with running_broker(clock=clock, shared_store=kind.open(), store=secret) as url:
        known = admin.describe(url)
    assert known.store == "redis://app@store"
    assert known.brokers[str(url)] == __version__


def test_R141_a_limited_key_learns_nothing_of_the_store(
    clock: SharedClock, kind: StoreKind, tmp_path: Path
) -> None:
    log = tmp_path / "audit"
    settings = {"keys": KEYS, "store": kind.url, "audit_log": str(log)}
    with running_broker(clock=clock, shared_store=kind.open(), **settings) as url:
        boss, clerk = (url.replace("://", f"://{key.id}:s@") for key in KEYS)
        open_mailbox(f"{kind.url}/orders", str).close()
        known = admin.describe(f"{clerk}/orders")
        assert (known.store, known.brokers, known.free_bytes) == (None, {}, None)
        assert known.may == ["SendMessage", "GetQueueAttributes"]
        assert [line.name for line in admin.list_queues(clerk)] == ["orders"]
        with pytest.raises(AccessDeniedError, match="SetQueueAttributes"):
            admin.pause_queue(f"{clerk}/orders", paused=True)
        admin.pause_queue(f"{boss}/orders", paused=True)
        with pytest.raises(MailboxError, match="the URL of the queue in that store"):
            open_mailbox(f"{clerk}/orders", str)
        with pytest.raises(MailboxError, match=f"use {kind.url}/orders instead"):
            open_mailbox(f"{boss}/orders", str)
        admin.delete_queue(f"{boss}/orders")
    noted = [json.loads(line) for line in log.read_text().splitlines()]
    assert [(each["key"], each["action"], each["allowed"]) for each in noted] == [
        ("clerk", "pause", False),
        ("boss", "pause", True),
        ("boss", "DeleteQueue", True),
    ]


@pytest.mark.parametrize("shared", [True, False], ids=["shared", "control"])
def test_R141_a_token_of_one_broker_is_good_at_the_others(
    clock: SharedClock, kind: StoreKind, shared: bool
) -> None:
    with (
        running_broker(clock=clock, shared_store=kind.open(), keys=KEYS) as one,
        running_broker(clock=clock, shared_store=kind.open(), keys=KEYS) as other,
        Relay(one) as balancer,
    ):
        if not shared:
            other.broker.access.token_secret = secrets.token_bytes(32)
        channels = channels_to(address_of(balancer.url.replace("://", "://boss:s@"))[0])
        channels.ask("", (Describe(),))
        balancer.point_to(other)
        channels.ask("", (Describe(),))
        signed = other.broker.metrics.requests["GetSessionToken"]
    assert signed == (0 if shared else 1)


def test_R141_messages_are_not_shown_without_the_dashboard(broker: RunningBroker) -> None:
    with pytest.raises(HTTPError) as refused:
        urlopen(f"{broker}/pillarbox/v1/orders/messages")
    assert refused.value.code == 501
    assert b"dashboard" in refused.value.read()
