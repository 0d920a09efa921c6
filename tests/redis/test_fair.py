"""R151: a fair queue on Redis costs the same, whatever a noisy tenant has sent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pillarbox import DeadLetterPolicy
from pillarbox.mailbox.redis import RedisMailbox
from pillarbox.mailbox.redis.keys import keys_of
from pillarbox.testing.redis import RedisServer, shared_server
from tests.contract.backends.redis import RedisBackend
from tests.redis.world import open_box

HELD, TENANTS = 40, 5


def commands_run(server: RedisServer) -> int:
    """By scripts and clients."""
    stats = server.info("commandstats")
    calls = (each.partition(",")[0] for name, each in stats.items() if name != "cmdstat_info")
    return sum(int(each.removeprefix("calls=")) for each in calls)


def cost_of_a_receive(box: RedisMailbox[bytes], flood: int) -> int:
    """How many commands it takes when one tenant holds much and has sent so many more."""
    server = shared_server()
    for _ in range((flood + HELD) // 1_000 + 1):
        box.send_many([b"flood"] * 1_000, group="flood")
    box.receive(max_messages=HELD, visibility_timeout=3_600)
    for tenant in range(TENANTS):
        box.send_many([b"quiet"] * 4, group=f"tenant{tenant}")
    box.send_many([b"quiet"] * 10)
    before = commands_run(server)
    messages = box.receive(max_messages=30)
    cost = commands_run(server) - before
    assert [message.body for message in messages] == [b"quiet"] * 30
    return cost


def test_R151_a_receive_runs_as_many_commands_whatever_a_noisy_tenant_has_sent() -> None:
    with open_box(bytes, fair=True) as few, open_box(bytes, fair=True) as many:
        cost_of_a_receive(few, 1_000)  # the server has the script from now on
        few.purge()
        assert cost_of_a_receive(few, 1_000) == cost_of_a_receive(many, 50_000) < 100


def test_R151_a_queue_without_tenants_runs_no_command_more_for_being_fair() -> None:
    server, costs = shared_server(), []
    with open_box(bytes, redelivery="original") as plain, open_box(bytes, fair=True) as fair:
        for box in (plain, fair):
            for _ in range(2):  # the server knows the scripts the second time
                before = commands_run(server)
                box.send_many([b"a", b"b", b"c"])
                first, second, third = box.receive(max_messages=3)
                assert first.acknowledge()
                assert second.nack()
                assert third.release()
                assert box.delete([message.id for message in box.receive(max_messages=2)]) == 2
                costs.append(commands_run(server) - before)
    assert costs[1] == costs[3]


ENDS: dict[str, Callable[[RedisBackend, Any, Any], object]] = {
    "acknowledge": lambda _, box, held: box.acknowledge_many(held),
    "nack": lambda _, box, held: box.nack_many(held),
    "release": lambda _, box, held: [each.release() for each in held],
    "reject": lambda _, box, held: [each.reject("no good") for each in held],
    "expiry": lambda backend, box, _: (backend.pass_time(60), box.receive(max_messages=1)),
    "delete": lambda _, box, held: box.delete([each.id for each in held]),
    "delete what was given back for later": lambda _, box, held: (
        box.nack_many(held, visibility_timeout=5),
        box.delete([each.id for each in held]),
    ),
    "what was given back for later is due": lambda backend, box, held: (
        box.nack_many(held, visibility_timeout=5),
        backend.pass_time(5),
        box.receive(max_messages=1),
    ),
    "purge": lambda _, box, held: box.purge(),
}


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_R151_whatever_ends_a_lease_its_tenant_is_not_counted_any_more(
    end: Callable[[RedisBackend, Any, Any], object],
) -> None:
    backend = RedisBackend()
    box = backend.open(str, fair=True, dead_letters=DeadLetterPolicy(5))
    groups = keys_of(box.name).key("groups")
    box.send_many(["a", "b", "c"], group="tenant")
    box.send_many(["d"], group="tenant", priority=3)
    held = box.receive(max_messages=4)
    server = shared_server()
    assert server.ask("HMGET", groups, "0 tenant", "3 tenant") == [b"3", b"1"]
    end(backend, box, held)
    left = sum(map(int, server.ask("HVALS", groups)))
    assert left == box.stats().in_flight
    assert left <= 1
    backend.close()
