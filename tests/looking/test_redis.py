"""R110: a look at a mailbox on Redis changes no key, on one server and on a cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from pillarbox import DeadLetterPolicy
from pillarbox.mailbox.redis import AsyncRedisMailbox, RedisMailbox
from pillarbox.mailbox.redis.scripts import Scripts
from pillarbox.testing.redis import RedisServer, shared_cluster, shared_server
from tests.looking.support import POLICY, STATES, check_looks, in_every_state, keys_of
from tests.redis.world import new_name

NOW = "local now = {now}\n"
START = 1_800_000_000_000_000


class World:
    """Queues on a server or a cluster, with a clock that tests move."""

    def __init__(self, kind: str) -> None:
        self.servers: list[RedisServer] = (
            [shared_server()] if kind == "server" else shared_cluster().masters()
        )
        self.url = f"{(shared_server() if kind == 'server' else shared_cluster()).url}/-"
        self._now = START
        self.scripts = Scripts(now=NOW.format(now=START))

    def open(self, name: str, body_type: Any = str, **options: Any) -> RedisMailbox[Any]:
        return RedisMailbox(name, body_type, url=self.url, scripts=self.scripts, **options)

    def pass_time(self, seconds: float) -> None:
        self._now += round(seconds * 1_000_000)
        self.scripts.replace(now=NOW.format(now=self._now))

    def keys(self) -> list[Any]:
        return [keys_of(server) for server in self.servers]


@pytest.fixture(params=["server", "cluster"])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    world = World(request.param)
    for server in world.servers:
        server.ask("FLUSHALL")
    yield world
    for server in world.servers:
        server.ask("FLUSHALL")
        server.ask("SCRIPT", "FLUSH")


@pytest.mark.parametrize("grave", ["_dlq", "elsewhere"])
@pytest.mark.parametrize("redelivery", ["tail", "original"])
def test_R110_stats_and_peek_write_nothing(world: World, grave: str, redelivery: Any) -> None:
    """Wherever the dead letters go: under the same tag, or to another server."""
    policy = POLICY if grave == "_dlq" else DeadLetterPolicy(2, new_name("grave"))
    options: Any = {"dead_letters": policy, "journal": True, "redelivery": redelivery}
    with world.open(new_name(), **options) as box:
        in_every_state(box, world.pass_time)
        before = world.keys()
        for _ in range(2):
            check_looks(box)
        assert world.keys() == before
        assert [each.body for each in box.receive()] == ["urgent"]
        assert world.keys() != before
        assert box.stats().dead == 2
        assert box.stats().in_flight == 2


def test_R110_mailbox_objects_of_other_types_write_nothing(world: World) -> None:
    with world.open(new_name(), dead_letters=POLICY) as box:
        in_every_state(box, world.pass_time)
        before = world.keys()
        for kind in (bytes, dict, Any):
            for options in ({}, {"create": False}):
                with world.open(box.name, kind, **options) as other:
                    assert other.stats().total == 6
                    assert len(other.peek()) == 4

        async def main() -> None:
            options: Any = {"url": world.url, "scripts": world.scripts}
            async with AsyncRedisMailbox(box.name, bytes, **options) as other:
                assert (await other.stats()).total == 6
                for state in STATES:
                    assert await other.peek(state=state)

        asyncio.run(main())
        assert world.keys() == before


def test_R110_a_look_at_what_a_reply_alone_has_made_writes_nothing(world: World) -> None:
    """A queue that nobody has opened yet has no settings, and gets none."""
    name = new_name("answers")
    with world.open(new_name()) as box:
        box.send("a", reply_to=name)
        box.receive()[0].reply("b")
        before = world.keys()
        with world.open(name, str, create=False) as answers:
            assert [each.body for each in answers.peek()] == ["b"]
            assert answers.stats().ready == 1
        assert world.keys() == before


def test_R110_what_is_ready_by_now_is_shown_in_its_order(world: World) -> None:
    """As it would be received, though nothing of it has happened yet."""
    with world.open(new_name()) as box:
        for number, priority in enumerate([0, 5, 0, 5]):
            box.send(f"due {number}", delay_seconds=1 + number / 10, priority=priority)
        box.send("leased")
        box.receive(visibility_timeout=1.05)
        box.send("there")
        box.send("there and urgent", priority=5)
        world.pass_time(2)
        shown = [(each.body, each.delivery_count, each.priority) for each in box.peek()]
        assert [each.body for each in box.peek(3)] == [body for body, _, _ in shown[:3]]
        received = [
            (each.body, each.delivery_count - 1, each.priority)
            for each in box.receive(max_messages=10)
        ]
        assert shown == received


def test_R110_very_many_leases_that_ran_out_are_counted(world: World) -> None:
    with world.open(new_name(), dead_letters=DeadLetterPolicy(2)) as box:
        box.send_many([str(number) for number in range(2_500)])
        taken = box.receive(max_messages=2_300, visibility_timeout=60)
        box.nack_many(taken[:1_200])
        box.receive(max_messages=1_400, visibility_timeout=1)  # 200 new ones, then those again
        world.pass_time(61)
        stats = box.stats()
        assert (stats.ready, stats.in_flight, stats.dead) == (1_300, 0, 1_200)
        dead = box.dead_letters
        assert dead is not None
        assert dead.stats().ready == 1_200
        received = 0
        while messages := box.receive(max_messages=5_000):
            received += len(messages)
        assert (received, box.stats().dead) == (1_300, 1_200)
