"""R33: a queue's slot moves to another master under load, and nobody notices."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from pillarbox import MailboxConnectionError
from pillarbox.mailbox.redis.keys import keys_of
from pillarbox.testing.redis import RedisServer, shared_cluster
from tests.redis.world import open_box

MOVES = 4


def move(
    slot: int, source: RedisServer, target: RedisServer, meanwhile: Callable[[], object]
) -> None:
    """What redis-cli does: the slot is marked, its keys go over, and all are told."""
    source_id, target_id = source.ask("CLUSTER", "MYID"), target.ask("CLUSTER", "MYID")
    target.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", source_id)
    source.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", target_id)
    first = source.ask("CLUSTER", "GETKEYSINSLOT", slot, 1)
    source.ask("MIGRATE", "127.0.0.1", target.port, first[0], 0, 5_000)
    meanwhile()  # clients meet the slot while it is nowhere whole
    while keys := source.ask("CLUSTER", "GETKEYSINSLOT", slot, 100):
        for key in keys:
            source.ask("MIGRATE", "127.0.0.1", target.port, key, 0, 5_000)
    for node in [target, source, *shared_cluster().masters()]:
        node.ask("CLUSTER", "SETSLOT", slot, "NODE", target_id)


def test_R33_no_error_reaches_anyone_while_the_slot_moves_and_no_message_is_leased_twice() -> None:
    cluster = shared_cluster()
    cluster.wait_until_whole()
    with open_box(int, url=f"{cluster.url}/-") as box:
        slot = keys_of(box.name).slot
        stop = threading.Event()
        sent: list[str] = []
        seen: list[str] = []
        refused: list[bool] = []
        errors: list[Exception] = []

        def send() -> None:
            try:
                while not stop.is_set():
                    sent.extend(box.send_many(range(5)))
            except Exception as error:  # noqa: BLE001 - any error is what this test is about
                errors.append(error)

        def work() -> None:
            try:
                while sender.is_alive() or len(seen) < len(sent):
                    messages = box.receive(
                        max_messages=10, visibility_timeout=600, wait_time_seconds=0.2
                    )
                    seen.extend(m.id for m in messages)
                    refused.extend(box.acknowledge_many(messages))
            except Exception as error:  # noqa: BLE001 - see above
                errors.append(error)

        threads = [threading.Thread(target=each) for each in (send, work, work)]
        sender = threads[0]
        for thread in threads:
            thread.start()
        for _ in range(MOVES):
            source = cluster.master_of(slot)
            target = next(node for node in cluster.masters() if node is not source)
            count = len(seen)
            move(slot, source, target, lambda: time.sleep(0.1))
            deadline = time.monotonic() + 20
            while len(seen) <= count and not errors and time.monotonic() < deadline:
                time.sleep(0.01)
            assert errors == []
            assert len(seen) > count, "nobody works on after the move"
        stop.set()
        for thread in threads:
            thread.join()
        assert errors == []
        assert len(seen) == len(set(seen)), "a message was leased twice"
        assert set(seen) == set(sent)
        assert all(refused)


def test_R33_who_does_not_try_again_would_notice() -> None:
    """The control: the servers do refuse, while the keys of a slot are in two places."""
    cluster = shared_cluster()
    cluster.wait_until_whole()
    with open_box(int, url=f"{cluster.url}/-", retry_seconds=0) as box:
        slot = keys_of(box.name).slot
        box.send_many(range(5), delay_seconds=60)
        source = cluster.master_of(slot)
        target = next(node for node in cluster.masters() if node is not source)

        def notice() -> None:
            with pytest.raises(MailboxConnectionError, match="rehashing of slot"):
                box.send(6)

        move(slot, source, target, notice)
    with open_box(int, name=box.name, url=f"{cluster.url}/-") as again:
        assert again.stats().scheduled == 5
