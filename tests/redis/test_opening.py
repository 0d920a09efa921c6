"""R36: what a URL and the options say is what is opened."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import Any

import pytest
import redis
import redis.asyncio
from redis.cluster import RedisCluster

from pillarbox import DeadLetterPolicy, InvalidParameterError, open_async_mailbox, open_mailbox
from pillarbox.mailbox.redis import AsyncRedisMailbox, RedisMailbox, open_url
from pillarbox.mailbox.redis.options import servers_of_url
from pillarbox.testing.redis import shared_cluster, shared_server
from tests.redis.world import new_name, open_box


def test_R36_a_url_opens_a_mailbox() -> None:
    name = new_name()
    with open_mailbox(f"{shared_server().url}/{name}", str) as box:
        assert isinstance(box, RedisMailbox)
        assert box.name == name
        box.send("a")
        assert [m.body for m in box.receive()] == ["a"]


def test_R36_a_url_opens_a_mailbox_for_asyncio() -> None:
    async def case() -> None:
        async with open_async_mailbox(f"{shared_server().url}/{new_name()}", str) as box:
            assert isinstance(box, AsyncRedisMailbox)
            await box.send("a")
            assert [m.body for m in await box.receive()] == ["a"]

    asyncio.run(case())


def test_R36_a_url_opens_a_mailbox_on_a_cluster() -> None:
    shared_cluster().wait_until_whole()
    with open_mailbox(f"{shared_cluster().url}/{new_name()}", str) as box:
        box.send("a")
        assert [m.body for m in box.receive()] == ["a"]


def test_R36_options_may_be_in_the_url() -> None:
    url = f"{shared_server().url}/{new_name()}?capacity=1&journal=true&redelivery=original"
    with open_url(url, str) as box:
        settings = box._verbs.settings
        assert settings is not None
        assert (settings.capacity, settings.journal) == (1, True)
        assert settings.redelivery == "original"


def test_R36_a_database_may_be_in_the_url() -> None:
    name = new_name()
    with open_url(f"{shared_server().url}/1/{name}", str) as one:
        one.send("a")
        with open_url(f"{shared_server().url}/{name}", str) as zero:
            assert zero.stats().total == 0


@pytest.mark.parametrize(
    "url",
    [
        "redis://host",
        "redis://host/",
        "redis+lost://host/name",
        "redis+sentinel://host/name",
        "redis://host/shop/name",  # is no number of a database
        "redis://host/1/2/name",
    ],
)
def test_R36_a_url_that_names_no_mailbox_is_refused(url: str) -> None:
    with pytest.raises(InvalidParameterError, match="url"):
        open_url(url, str)


def test_R36_a_seed_may_be_an_ipv6_address() -> None:
    url = "redis+cluster://[::1]:7000,[fe80::2],three/orders"
    servers, _, _ = servers_of_url(url, asynchronous=False)
    assert servers.seeds == [("::1", 7000), ("fe80::2", 6379), ("three", 6379)]


def test_R36_values_in_the_query_are_decoded_once() -> None:
    url = "redis://host/orders?client_name=a%26db=3%2B%25"
    servers, _, _ = servers_of_url(url, asynchronous=False)
    assert servers.options["client_name"] == "a&db=3+%"
    assert servers.options["db"] == 0


def test_R36_an_existing_queue_opened_with_create_false_takes_a_policy_and_a_journal() -> None:
    with open_box() as box:
        options: Any = {"dead_letters": DeadLetterPolicy(1), "journal": True}
        with open_box(name=box.name, create=False, **options) as other:
            settings = other._verbs.settings
            assert settings is not None
            assert (settings.dead, settings.journal) == (f"{box.name}_dlq", True)


def test_R36_seeds_user_and_password_are_read_from_the_url() -> None:
    url = "redis+cluster://me:secret@one:7000,two:7001/orders?socket_timeout=3"
    servers, name, options = servers_of_url(url, asynchronous=False)
    assert (name, options) == ("orders", {})
    assert servers.seeds == [("one", 7000), ("two", 7001)]
    found = servers.options_for(("three", 1))
    assert (found["username"], found["password"]) == ("me", "secret")
    assert (found["host"], found["port"], found["socket_timeout"]) == ("three", 1, 3.0)


def test_R32_a_client_of_redis_py_may_be_given() -> None:
    with redis.Redis(port=shared_server().port, decode_responses=True) as client:
        with RedisMailbox(new_name(), str, client=client) as box:
            box.send("a")
            assert [m.body for m in box.receive()] == ["a"]
        assert client.ping()


def test_R33_a_cluster_is_recognised_by_its_client() -> None:
    shared_cluster().wait_until_whole()
    port = shared_cluster().nodes[0].port
    with (
        RedisCluster(host="127.0.0.1", port=port) as client,
        RedisMailbox(new_name(), str, client=client) as box,
    ):
        box.send("a")
        assert [m.body for m in box.receive()] == ["a"]


def test_R33_asyncio_takes_its_clients_too() -> None:
    shared_cluster().wait_until_whole()

    async def case(kind: Any, port: int) -> None:
        client = kind(host="127.0.0.1", port=port)
        async with AsyncRedisMailbox(new_name(), str, client=client) as box:
            await box.send("a")
            assert [m.body for m in await box.receive()] == ["a"]
        await client.aclose()

    asyncio.run(case(redis.asyncio.Redis, shared_server().port))
    asyncio.run(case(redis.asyncio.RedisCluster, shared_cluster().nodes[0].port))


@pytest.mark.parametrize(
    "options",
    [
        {"durability": "hopeful"},
        {"replicas": 0},
        {"no_such_option": 1},
        {"client": object()},
        {"url": None},
    ],
)
def test_R22_a_bad_option_is_refused(options: dict[str, Any]) -> None:
    if "client" in options:
        options["url"] = None
    with pytest.raises(InvalidParameterError):
        open_box(**options)


def test_R38_the_type_may_be_in_brackets() -> None:
    with RedisMailbox[list[int]](new_name(), url=f"{shared_server().url}/-") as box:
        box.send([1])
        assert [m.body for m in box.receive()] == [[1]]


def test_R39_a_policy_is_known_to_who_opens_the_queue_later() -> None:
    with open_box(dead_letters=DeadLetterPolicy(1)) as box, open_box(name=box.name) as other:
        assert other.dead_letters is not None
        assert other.dead_letters.name == f"{box.name}_dlq"


def test_R39_a_policy_given_later_holds_for_who_opened_the_queue_before() -> None:
    with open_box() as box, open_box(name=box.name, dead_letters=DeadLetterPolicy(1)) as other:
        box.send("a")
        assert box.receive()[0].nack()
        assert other.stats().dead == 1


def test_R36_without_the_package_the_error_names_the_extra() -> None:
    code = "import sys; sys.modules['redis'] = None; import pillarbox.mailbox.redis"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert "pip install 'pillarbox[redis]'" in done.stderr
