"""R33: masters die under load; what was confirmed as replicated is there, and clients go on."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from pillarbox import MailboxError
from pillarbox.mailbox.redis import NotReplicatedError, RedisMailbox
from pillarbox.mailbox.redis.keys import keys_of
from pillarbox.testing.redis import NODE_TIMEOUT_MS, RedisCluster, shared_cluster, until
from tests.redis.world import new_name, open_box

BACK_SECONDS_MAX = NODE_TIMEOUT_MS / 1_000 + 2.5
SENDERS = 3


def open_on(cluster: RedisCluster, **options: Any) -> RedisMailbox[str]:
    return open_box(url=f"{cluster.url}/-", **options)


class Load:
    """Threads that send, and remember what was confirmed and how long each send took."""

    def __init__(self, box: RedisMailbox[str]) -> None:
        self.confirmed: list[str] = []
        self.unconfirmed: list[MailboxError] = []
        self.longest_seconds = 0.0
        self._box = box
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._send) for _ in range(SENDERS)]
        for thread in self._threads:
            thread.start()

    def _send(self) -> None:
        while not self._stop.is_set():
            started = time.monotonic()
            try:
                self.confirmed.append(self._box.send("a"))
            except NotReplicatedError as error:
                self.unconfirmed.append(error)
            self.longest_seconds = max(self.longest_seconds, time.monotonic() - started)

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()


def received(box: RedisMailbox[str]) -> list[str]:
    ids: list[str] = []
    while messages := box.receive(max_messages=1_000, visibility_timeout=600):
        ids += [message.id for message in messages]
        box.acknowledge_many(messages)
    return ids


def kill_masters(rounds: int) -> None:
    cluster = shared_cluster()
    with open_on(cluster, durability="replicated") as box:
        for _ in range(rounds):
            cluster.wait_until_whole()
            load = Load(box)
            _until_sent(load, 50)
            slot = keys_of(box.name).slot
            master = cluster.master_of(slot)
            master.kill()
            before = len(load.confirmed)
            until(lambda s=slot, m=master: cluster.master_of(s) is not m, "it has a successor")
            # The new master has no replica before the old one is back, and confirms nothing.
            master.start()
            _until_sent(load, before + 50)
            load.stop()
            cluster.wait_until_whole()
            ids = received(box)
            assert len(ids) == len(set(ids)), "a message was there twice"
            assert set(load.confirmed) <= set(ids), "a confirmed message was lost"
    cluster.wait_until_whole()


def _until_sent(load: Load, count: int) -> None:
    deadline = time.monotonic() + 60
    while len(load.confirmed) < count:
        assert time.monotonic() < deadline, f"{len(load.confirmed)} of {count} were confirmed"
        time.sleep(0.01)


def test_R33_replicated_loses_nothing_when_masters_are_killed() -> None:
    kill_masters(rounds=3)


@pytest.mark.soak
@pytest.mark.timeout(1_200)
def test_R33_replicated_loses_nothing_when_masters_are_killed_twenty_times() -> None:
    kill_masters(rounds=20)


def test_R33_clients_resume_by_themselves_after_a_failover() -> None:
    cluster = shared_cluster()
    cluster.wait_until_whole()
    with (
        open_on(cluster) as box,
        open_on(cluster, name=box.name, durability="replicated") as careful,
    ):
        careful.send("before")
        master = cluster.master_of(keys_of(box.name).slot)
        master.kill()
        started = time.monotonic()
        box.send("after")
        took = time.monotonic() - started
        master.start()
        cluster.wait_until_whole()
        assert took < BACK_SECONDS_MAX
        assert [m.body for m in box.receive(max_messages=10)] == ["before", "after"]


def lose_with_a_lagging_replica(durability: str) -> tuple[set[str], set[str]]:
    """Send while the replica stands still, lose the master: what was confirmed, what is left."""
    cluster = shared_cluster()
    cluster.wait_until_whole()
    options = {"durability": durability, "replica_seconds": 0.1}
    with open_on(cluster, name=new_name("lag"), **options) as box:
        master = cluster.master_of(keys_of(box.name).slot)
        replica = cluster.replica_of(master)
        replica.freeze()
        master.ask("CLIENT", "KILL", "TYPE", "replica")  # nothing waits for it in a buffer
        confirmed = set()
        for _ in range(5):
            try:
                confirmed.add(box.send("a"))
            except NotReplicatedError:
                continue
        master.kill()
        replica.thaw()
        slot = keys_of(box.name).slot
        until(lambda: cluster.master_of(slot) is replica, "the replica is the master now")
        master.start()
        cluster.wait_until_whole()
        return confirmed, set(received(box))


def test_R33_with_a_lagging_replica_nothing_unreplicated_is_confirmed() -> None:
    confirmed, _ = lose_with_a_lagging_replica("replicated")
    assert confirmed == set()


def test_R33_without_it_what_was_confirmed_is_lost() -> None:
    """The control: the master's word alone is not enough."""
    confirmed, left = lose_with_a_lagging_replica("master")
    assert len(confirmed) == 5
    assert not confirmed & left
