"""R36: which queues there are at a place, and the end of one."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest

from pillarbox import DeadLetterPolicy, InvalidParameterError
from pillarbox.mailbox.redis import delete_queue, list_queues, pause_queue
from pillarbox.mailbox.redis.keys import PARTS
from pillarbox.testing.redis import RedisServer, directory, free_ports, shared_cluster
from tests.redis.world import new_name, open_box


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    """One that nobody else has queues on."""
    with directory() as path:
        each = RedisServer(path, free_ports(1)[0])
        each.start()
        yield each
        each.kill()


@pytest.fixture
def empty(server: RedisServer) -> RedisServer:
    server.ask("FLUSHALL")
    return server


def test_R36_queues_are_listed_by_the_urls_that_open_them(empty: RedisServer) -> None:
    policy = DeadLetterPolicy(3)
    with (
        open_box(name="orders", url=f"{empty.url}/-", dead_letters=policy) as orders,
        open_box(name="answers.fifo", url=f"{empty.url}/-"),
    ):
        orders.send("a", deduplication_id="it:is:queue")
        empty.ask("SET", "{queue:mine}:not:queue", "of another")
        names = ["answers.fifo", "orders", "orders_dlq"]
        for place in (empty.url, f"{empty.url}/"):
            assert list_queues(place) == [f"{empty.url}/{name}" for name in names]
        assert list_queues(f"{empty.url}/orders") == [f"{empty.url}/orders"]
        assert list_queues(f"{empty.url}/order") == []


def test_R36_a_database_has_its_own_queues(empty: RedisServer) -> None:
    with open_box(name="orders", url=f"{empty.url}/2/-"):
        assert list_queues(f"{empty.url}/") == []
        assert list_queues(f"{empty.url}/2/?socket_timeout=3") == [
            f"{empty.url}/2/orders?socket_timeout=3"
        ]


def test_R36_many_keys_are_looked_through_page_by_page(empty: RedisServer) -> None:
    empty.ask("MSET", *(word for i in range(5_000) for word in (f"other-{i}", "x")))
    with open_box(name="orders", url=f"{empty.url}/-"):
        assert list_queues(empty.url) == [f"{empty.url}/orders"]


def test_R36_a_cluster_is_asked_master_by_master() -> None:
    cluster = shared_cluster()
    boxes = [open_box(name=new_name("listed"), url=f"{cluster.url}/-") for _ in range(12)]
    try:
        servers = boxes[0]._connection._servers
        assert len({servers.address(box._verbs.queue.keys.slot) for box in boxes}) == 3
        urls = [f"{cluster.url}/{box.name}" for box in boxes]
        assert set(urls) <= set(list_queues(cluster.url))
        delete_queue(urls[0])
        assert set(list_queues(cluster.url)) & set(urls) == set(urls[1:])
    finally:
        for box in boxes:
            box.close()


def test_R36_a_deleted_queue_leaves_no_key(empty: RedisServer) -> None:
    with open_box(name="orders", url=f"{empty.url}/-", journal=True, capacity=9) as box:
        box.send("a", deduplication_id="one")
        box.send("b", group="g")
        box.send("c", delay_seconds=60)
        box.receive(visibility_timeout=60)
        assert len(empty.ask("KEYS", "*")) > len(PARTS) / 2
        delete_queue(f"{empty.url}/orders")
        assert empty.ask("KEYS", "*") == []
    with open_box(name="orders", url=f"{empty.url}/-") as again:
        assert again.stats().total == 0
        assert len(again.send("a", deduplication_id="one")) > 0
        assert again.stats().ready == 1  # it is not taken for the one that was deleted


def test_R36_its_dead_letters_stay_and_are_nobodys(empty: RedisServer) -> None:
    url = f"{empty.url}/-"
    for dead in ("orders_dlq", "elsewhere"):
        policy = DeadLetterPolicy(1, dead)
        with open_box(name="orders", url=url, dead_letters=policy) as orders:
            orders.send("bad")
            orders.receive()[0].nack()
        delete_queue(f"{empty.url}/orders")
        # It may have dead letters of its own now, which no dead-letter queue may.
        with open_box(name=dead, url=url, dead_letters=DeadLetterPolicy(2)) as box:
            assert [message.body for message in box.peek()] == ["bad"]


def test_R36_what_is_not_there_cannot_be_deleted(empty: RedisServer) -> None:
    with pytest.raises(InvalidParameterError, match="an existing queue"):
        delete_queue(f"{empty.url}/nothing")
    assert empty.ask("KEYS", "*") == []


def test_R36_the_error_for_a_missing_queue_shows_no_password(empty: RedisServer) -> None:
    url = empty.url.replace("//", "//default:secret@")
    for verb in (delete_queue, partial(pause_queue, paused=True)):
        with pytest.raises(InvalidParameterError, match="an existing queue") as refused:
            verb(f"{url}/nothing")
        assert "secret" not in str(refused.value)
