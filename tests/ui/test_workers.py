"""Who receives: live workers, what they hold, and how their deliveries end."""

from __future__ import annotations

import os
import re
import socket
import threading
from pathlib import Path
from typing import Any

import boto3
import pytest
from playwright.sync_api import Page, expect

from pillarbox import open_mailbox
from pillarbox.broker import consumers as module
from pillarbox.broker.consumers import Consumer, Consumers
from pillarbox.broker.http import Request
from pillarbox.dashboard import BrokerMailboxes, mount
from pillarbox.dashboard.workers import LIVE_SECONDS, Workers
from pillarbox.testing.broker import RunningBroker, running_broker
from pillarbox.testing.redis import until
from tests.ui.conftest import Scene
from tests.worker.command import command

ME = f"{socket.gethostname()}:{os.getpid()}"


def consumer_of(url: RunningBroker, queue: str = "jobs") -> Consumer:
    (found,) = [each for each in url.broker.consumers if each.queue == queue]
    return found


def sqs(url: str) -> Any:
    keys = {"aws_access_key_id": "x", "aws_secret_access_key": "x"}
    return boto3.client("sqs", endpoint_url=str(url), region_name="us-east-1", **keys)


def test_R59_workers_are_shown_with_what_they_do(page: Page, scene: Scene) -> None:
    box = open_mailbox(f"{scene.url}/worked", str)
    box.send_many(["a", "b", "c"])
    done, failed, held = box.receive(max_messages=3)
    assert done.acknowledge()
    assert failed.nack(visibility_timeout=600)
    page.goto(scene.url)
    row = page.locator("table.workers tbody tr", has_text="worked")

    expect(row.get_by_role("rowheader")).to_contain_text(ME)
    expect(row).to_contain_text("holding 1 message")
    expect(row.locator("td.number").nth(3)).to_have_text("1")  # done
    expect(row.locator("td.number").nth(4)).to_have_text("1")  # failed
    row.get_by_role("link", name="worked").click()
    expect(page.locator("table.workers tbody tr")).to_have_count(1)

    held.acknowledge()  # and the page follows by itself
    expect(page.locator("table.workers")).not_to_contain_text("holding", timeout=10_000)


def test_R59_the_holder_of_a_message_in_flight_is_shown(page: Page, scene: Scene) -> None:
    box = open_mailbox(f"{scene.url}/held", str)
    sent = box.send("a")
    box.receive(visibility_timeout=600)

    page.goto(f"{scene.url}/dashboard/queues/held?state=in_flight")
    expect(page.get_by_role("columnheader", name="Held by")).to_be_visible()
    expect(page.locator("table.messages tbody tr")).to_contain_text(ME)

    page.goto(f"{scene.url}/dashboard/queues/held/message?id={sent}")
    expect(page.locator(".figures div", has_text="Held by")).to_contain_text(ME)


def test_R59_a_message_held_since_before_a_restart_has_an_unknown_holder(tmp_path: Any) -> None:
    with running_broker(str(tmp_path), "os") as url:
        box = open_mailbox(f"{url}/jobs", str)
        sent = box.send("a")
        box.receive(visibility_timeout=600)
    with running_broker(str(tmp_path), "os") as url:
        times = BrokerMailboxes(url.broker).times("jobs", "in_flight", 10, 0)
        assert times[sent].holder is None
        page = mount(url.broker)._queue_page("jobs", {"state": "in_flight"})
        assert b"unknown" in page.body


def test_R59_an_sqs_client_is_a_worker_too() -> None:
    with running_broker() as url:
        client = sqs(url)
        queue = client.create_queue(QueueName="jobs")["QueueUrl"]
        for _ in range(3):
            client.send_message(QueueUrl=queue, MessageBody="a")
        got = client.receive_message(QueueUrl=queue, MaxNumberOfMessages=3)["Messages"]
        handles = [message["ReceiptHandle"] for message in got]
        client.delete_message(QueueUrl=queue, ReceiptHandle=handles[0])
        change = {"QueueUrl": queue, "ReceiptHandle": handles[1], "VisibilityTimeout": 0}
        client.change_message_visibility(**change)
        entries = [{"Id": "x", "ReceiptHandle": handles[2]}]
        client.delete_message_batch(QueueUrl=queue, Entries=entries)

        (row,) = Workers(BrokerMailboxes(url.broker)).rows()

        assert re.fullmatch(r"Boto3/[\d.]+", row.name)
        seen = row.consumer
        assert (seen.received, seen.done, seen.failed) == (3, 2, 1)
        assert (seen.address, seen.queue) == ("127.0.0.1", "jobs")


def test_R59_a_worker_command_is_named_by_its_handlers(tmp_path: Path) -> None:
    handler = "tests.worker.shop:pack"
    with running_broker() as url:
        open_mailbox(f"{url}/jobs", str).send("tea")
        with command(tmp_path / "told", handler, "--mailbox", f"{url}/jobs") as running:
            (started,) = running.started(1)
            names = {row.name for row in Workers(BrokerMailboxes(url.broker)).rows()}
            assert f"{socket.gethostname()}:{started.pid} worker {handler}" in names


def test_R59_a_lease_that_ran_out_is_a_failure_and_a_release_is_none() -> None:
    with running_broker() as url:
        box = open_mailbox(f"{url}/jobs", str)
        box.send("a")
        box.receive(visibility_timeout=0)
        (message,) = box.receive()
        consumer = consumer_of(url)
        assert (consumer.received, consumer.done, consumer.failed) == (2, 0, 1)
        message.release()
        assert (consumer.received, consumer.done, consumer.failed) == (2, 0, 1)
        box.receive()[0].reject("bad")
        assert (consumer.received, consumer.done, consumer.failed) == (3, 0, 2)


def test_R59_a_parked_worker_is_waiting_and_then_served() -> None:
    with running_broker() as url:
        box = open_mailbox(f"{url}/jobs", str)
        got: list[str] = []
        thread = threading.Thread(
            target=lambda: got.extend(m.body for m in box.receive(wait_time_seconds=20))
        )
        thread.start()
        workers = Workers(BrokerMailboxes(url.broker))
        until(lambda: [row.doing for row in workers.rows()] == ["waiting for messages"], "it waits")
        box.send("a")
        thread.join(20)
        assert got == ["a"]
        assert [row.doing for row in workers.rows()] == ["holding 1 message"]


def test_R59_rates_are_those_of_the_last_seconds() -> None:
    with running_broker() as url:
        box = open_mailbox(f"{url}/jobs", str)
        box.send_many(["a"] * 30)
        first = box.receive(max_messages=10)
        workers, start = Workers(BrokerMailboxes(url.broker)), consumer_of(url).seen_at
        workers.take(start)
        box.acknowledge_many(first)
        workers.take(start + 10)
        box.acknowledge_many(box.receive(max_messages=20))

        (row,) = workers.rows(now=start + 20)

        assert row.done_per_second == pytest.approx(30 / 20)
        assert row.failed_per_second == 0


def test_R59_a_worker_that_is_gone_is_not_shown_unless_it_holds_messages() -> None:
    with running_broker() as url:
        box = open_mailbox(f"{url}/jobs", str)
        box.send("a")
        (message,) = box.receive(visibility_timeout=600)
        workers, later = Workers(BrokerMailboxes(url.broker)), LIVE_SECONDS + 1
        later += consumer_of(url).seen_at
        assert len(workers.rows(now=later)) == 1
        message.acknowledge()
        assert workers.rows(now=later) == []


def test_R116_consumers_take_bounded_memory() -> None:
    known = Consumers()
    for number in range(10 * module.CONSUMERS_MAX):
        known.of(Request("POST", "/", headers={"user-agent": f"x{number}" * 1_000}), "jobs", "")
    kept = list(known)
    assert len(kept) <= module.CONSUMERS_MAX
    assert kept[-1].client.startswith(f"x{number}x")
    assert max(len(each.client) for each in kept) <= 200


def test_R59_a_forked_process_is_a_worker_of_its_own() -> None:
    with running_broker() as url:
        box = open_mailbox(f"{url}/jobs", str)
        box.send_many(["a", "b"])
        box.receive()
        child = os.fork()
        if not child:  # as a pre-forking server's workers do
            os._exit(0 if box.receive() else 1)
        assert os.waitpid(child, 0)[1] == 0
        names = {each.client.split()[1] for each in url.broker.consumers}
        assert names == {ME, f"{socket.gethostname()}:{child}"}
