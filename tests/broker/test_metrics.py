"""R59: what happens to messages is counted, by the right amount, whatever makes it happen.

Each way has a row that says what the counters of its queue show afterwards; those that it does
not name stay at 0. `test_metrics_table.py` has the table of all metrics.
"""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from pillarbox import open_mailbox
from pillarbox.dashboard.dashboard import mount
from tests.broker.metrics_shop import Q, Shop, open_shop
from tests.broker.native.support import until
from tests.broker.support import Client


@pytest.fixture(params=["memory", "disk"])
def shop(request: pytest.FixtureRequest, store: str) -> Iterator[Shop]:
    with open_shop(store if request.param == "disk" else None) as made:
        yield made


# -- what happens to messages --------------------------------------------------------------------


def _bury(shop: Shop) -> None:
    """Two dead letters in `dead`, which came from the queue."""
    shop.create_with_dead_letters(VisibilityTimeout=0)
    for body in "ab":
        shop.sqs.send(Q, body)
    for _ in range(2):
        shop.sqs.receive(Q)


def sent_by_SQS(shop: Shop) -> None:
    shop.create()
    shop.sqs.send(Q, "a")
    shop.sqs.send(Q, "later", DelaySeconds=9)
    entries = [{"Id": "1", "MessageBody": "b"}, {"Id": "2", "MessageBody": "c", "DelaySeconds": 9}]
    shop.sqs("SendMessageBatch", QueueUrl=Q, Entries=entries)


def sent_by_a_mailbox(shop: Shop) -> None:
    with shop.mailbox() as box:
        box.send("a")
        box.send("later", delay_seconds=9)
        box.send_many("bc")


def sent_twice_with_one_deduplication_id(shop: Shop) -> None:
    with shop.mailbox() as box:
        for _ in range(2):
            box.send("a", deduplication_id="x")


def sent_from_the_dashboard(shop: Shop) -> None:
    shop.create()
    dashboard = mount(shop.url.broker)
    form = f"token={dashboard._token}&body=a".encode()
    status, _, _ = shop.sqs.raw("POST", f"/dashboard/queues/{Q}/send", form)
    assert status == 303


def received_at_once(shop: Shop) -> None:
    shop.create()
    for body in "ab":
        shop.sqs.send(Q, body)
    shop.sqs.receive(Q)


def _while_parked(shop: Shop, receive: Callable[[], Any]) -> None:
    thread = threading.Thread(target=receive)
    thread.start()
    shop.parked(1)
    shop.sqs.send(Q, "a")
    thread.join()
    shop.parked(0)


def received_by_one_who_waited(shop: Shop) -> None:
    shop.create()
    other = Client(shop.url)
    _while_parked(shop, lambda: other.receive(Q, WaitTimeSeconds=20))
    other.close()


def received_by_a_mailbox_that_waited(shop: Shop) -> None:
    with shop.mailbox() as box:
        _while_parked(shop, lambda: box.receive(wait_time_seconds=20))


def unread_because_the_client_was_gone(shop: Shop) -> None:
    shop.create()
    where = urlsplit(shop.url)
    gone = socket.create_connection((where.hostname, where.port), timeout=30)
    body = json.dumps({"QueueUrl": Q, "WaitTimeSeconds": 20}).encode()
    gone.sendall(
        b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Amz-Target: AmazonSQS.ReceiveMessage\r\n"
        b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
    )
    shop.parked(1)
    shop.sqs.send(Q, "a")
    gone.recv(1, socket.MSG_PEEK)  # the answer has come, and stays unread
    gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    gone.close()
    until(lambda: shop.sqs.counts(Q)[0] == 1, "it is back in line")


def deleted_by_handle(shop: Shop) -> None:
    shop.create()
    for body in "abc":
        shop.sqs.send(Q, body)
    first, second, third = shop.sqs.receive(Q)
    shop.sqs.delete(Q, first)
    shop.sqs.delete(Q, first)  # which succeeds, and deletes nothing
    entries = [
        {"Id": str(n), "ReceiptHandle": each["ReceiptHandle"]}
        for n, each in enumerate((second, third, third))
    ]
    assert len(shop.sqs("DeleteMessageBatch", QueueUrl=Q, Entries=entries)["Successful"]) == 3


def deleted_by_old_handles(shop: Shop) -> None:
    shop.create()
    for body in "abc":
        shop.sqs.send(Q, body)
    first, *rest = shop.sqs.receive(Q)
    shop.clock.advance(31)
    shop.sqs.delete(Q, first)
    entries = [{"Id": x["MessageId"], "ReceiptHandle": x["ReceiptHandle"]} for x in rest]
    shop.sqs("DeleteMessageBatch", QueueUrl=Q, Entries=entries)


def deleted_by_a_mailbox(shop: Shop) -> None:
    with shop.mailbox() as box:
        ids = box.send_many("abc")
        first, second = box.receive(max_messages=2)
        first.acknowledge()
        assert first.acknowledge() is False
        box.acknowledge_many([second])
        box.delete(ids)


def deleted_by_a_purge(shop: Shop) -> None:
    shop.create()
    for delay in (0, 0, 9):
        shop.sqs.send(Q, "a", DelaySeconds=delay)
    shop.sqs.receive(Q, 1)
    shop.sqs("PurgeQueue", QueueUrl=Q)


def deleted_by_a_mailbox_that_purged(shop: Shop) -> None:
    with shop.mailbox() as box:
        box.send_many("abc")
        box.purge()


def expired_and_found_so_on_receive(shop: Shop) -> None:
    shop.create(MessageRetentionPeriod=60)
    for body in "ab":
        shop.sqs.send(Q, body)
    stopping = shop.url.broker.housekeeping.stop()  # so that nobody else finds out
    asyncio.run_coroutine_threadsafe(stopping, shop.url.loop).result(30)
    shop.clock.advance(61)
    assert shop.sqs.receive(Q) == []


def expired_and_swept(shop: Shop) -> None:
    shop.create(MessageRetentionPeriod=60)
    for body in "ab":
        shop.sqs.send(Q, body)
    shop.clock.advance(61)

    def swept() -> bool:
        shop.clock.advance(2)  # again: a round may have begun before they expired
        return bool(shop.sqs.counts(Q)[0] == 0)

    until(swept, "they were swept")


def dead_on_receive(shop: Shop) -> None:
    _bury(shop)


def dead_on_receive_by_one_who_waited(shop: Shop) -> None:
    """The lease ends while another client waits: the thread of the pulse serves it."""
    shop.create_with_dead_letters(VisibilityTimeout=5)
    shop.sqs.send(Q, "a")
    shop.sqs.receive(Q)
    other = Client(shop.url)
    thread = threading.Thread(target=lambda: other.receive(Q, WaitTimeSeconds=20))
    thread.start()
    shop.parked(1)
    shop.clock.advance(6)
    until(lambda: shop.totals().get("dead") == 1, "it died")
    shop.clock.advance(20)
    thread.join()
    other.close()


def dead_by_timeout(shop: Shop) -> None:
    with shop.mailbox() as box:
        box.send("a")
        box.receive(visibility_timeout=5)
        shop.clock.advance(6)


def dead_by_timeout_while_its_dead_letter_is_waited_for(shop: Shop) -> None:
    """Nobody asks for anything: the thread of the pulse lets it die."""
    with shop.mailbox() as box:
        box.send("a")
        box.receive(visibility_timeout=5)
        assert box.dead_letters is not None
        dead = box.dead_letters
        thread = threading.Thread(target=lambda: dead.receive(wait_time_seconds=20))
        thread.start()
        shop.parked(1)
        shop.clock.advance(6)
        thread.join()


def dead_by_nack(shop: Shop) -> None:
    with shop.mailbox() as box:
        box.send_many("ab")
        first, second = box.receive(max_messages=2)
        first.nack()
        box.nack_many([second])


def dead_by_a_change_of_visibility(shop: Shop) -> None:
    with shop.mailbox() as box:
        box.send("a")
    (message,) = shop.sqs.receive(Q)
    handle = message["ReceiptHandle"]
    shop.sqs("ChangeMessageVisibility", QueueUrl=Q, ReceiptHandle=handle, VisibilityTimeout=0)


def dead_by_reject(shop: Shop) -> None:
    with shop.mailbox(most=5) as box:
        box.send("a")
        (message,) = box.receive()
        message.reject("bad")


def redriven_by_a_task(shop: Shop) -> None:
    _bury(shop)
    shop.sqs("StartMessageMoveTask", SourceArn=shop.sqs.arn("dead"))
    until(lambda: shop.sqs.counts(Q)[0] == 2, "they are back")


def redriven_by_a_mailbox(shop: Shop) -> None:
    _bury(shop)
    with open_mailbox(f"{shop.url}/dead", str) as dead:
        assert dead.redrive() == 2


Way = tuple[Callable[[Shop], None], dict[str, int]]
WAYS: list[Way] = [
    (sent_by_SQS, {"sent": 4}),
    (sent_by_a_mailbox, {"sent": 4}),
    (sent_twice_with_one_deduplication_id, {"sent": 1}),
    (sent_from_the_dashboard, {"sent": 1}),
    (received_at_once, {"sent": 2, "received": 2}),
    (received_by_one_who_waited, {"sent": 1, "received": 1}),
    (received_by_a_mailbox_that_waited, {"sent": 1, "received": 1}),
    (unread_because_the_client_was_gone, {"sent": 1, "received": 1, "unread": 1}),
    (deleted_by_handle, {"sent": 3, "received": 3, "deleted": 3}),
    (deleted_by_old_handles, {"sent": 3, "received": 3, "deleted": 3}),
    (deleted_by_a_mailbox, {"sent": 3, "received": 2, "deleted": 3}),
    (deleted_by_a_purge, {"sent": 3, "received": 1, "deleted": 3}),
    (deleted_by_a_mailbox_that_purged, {"sent": 3, "deleted": 3}),
    (expired_and_found_so_on_receive, {"sent": 2, "expired": 2}),
    (expired_and_swept, {"sent": 2, "expired": 2}),
    (dead_on_receive, {"sent": 2, "received": 2, "dead": 2}),
    (dead_on_receive_by_one_who_waited, {"sent": 1, "received": 1, "dead": 1}),
    (dead_by_timeout, {"sent": 1, "received": 1, "dead": 1}),
    (
        dead_by_timeout_while_its_dead_letter_is_waited_for,
        {"sent": 1, "received": 1, "dead": 1},
    ),
    (dead_by_nack, {"sent": 2, "received": 2, "dead": 2}),
    (dead_by_a_change_of_visibility, {"sent": 1, "received": 1, "dead": 1}),
    (dead_by_reject, {"sent": 1, "received": 1, "dead": 1}),
    (redriven_by_a_task, {"sent": 2, "received": 2, "dead": 2}),
    (redriven_by_a_mailbox, {"sent": 2, "received": 2, "dead": 2}),
]


@pytest.mark.parametrize(("way", "expected"), WAYS, ids=lambda x: getattr(x, "__name__", ""))
def test_R59_messages_are_counted(
    shop: Shop, way: Callable[[Shop], None], expected: dict[str, int]
) -> None:
    way(shop)
    assert shop.totals() == expected
    if "redriven" in way.__name__:
        assert shop.totals("dead") == {"redriven": 2}
