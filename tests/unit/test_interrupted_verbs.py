"""A signal handler that raises anywhere within a verb leaves every message where it belongs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from threading import Thread
from typing import Any

import pytest

from pillarbox import DeadLetterPolicy, InMemoryMailbox
from pillarbox.core.queue import waiting
from pillarbox.testing.clock import FakeClock
from tests.interrupts import interrupted

Box = InMemoryMailbox[str]
BEFORE = 6

OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "priority": {"priority": 5},
    "delay": {"delay_seconds": 1},
    "group": {"group": "group-0", "deduplication_id": "once"},
}
VERBS: dict[str, Callable[[Box, list[Any], dict[str, Any]], object]] = {
    "send": lambda box, held, how: box.send("new", **how),
    "send_many": lambda box, held, how: box.send_many(["new", "newer"]),
    "receive": lambda box, held, how: box.receive(),
    "receive several": lambda box, held, how: box.receive(max_messages=4),
    "receive and wait": lambda box, held, how: box.receive(wait_time_seconds=1),
    "acknowledge": lambda box, held, how: held[0].acknowledge(),
    "acknowledge the second": lambda box, held, how: held[1].acknowledge(),
    "acknowledge_many": lambda box, held, how: box.acknowledge_many(held),
    "nack": lambda box, held, how: held[0].nack(),
    "nack with a delay": lambda box, held, how: held[1].nack(visibility_timeout=1),
    "extend": lambda box, held, how: held[0].extend_visibility(60),
    "release": lambda box, held, how: held[1].release(),
    "reject": lambda box, held, how: held[0].reject("no good"),
    "stats": lambda box, held, how: box.stats(),
}


def opened(how: dict[str, Any], *, dead_letters: bool) -> tuple[Box, FakeClock, list[Any]]:
    """A mailbox with some messages, two of which are in flight; they come due all the time."""
    clock = FakeClock()
    policy = DeadLetterPolicy(2) if dead_letters else None
    box = Box("orders", str, clock=clock, dead_letters=policy)
    for number in range(BEFORE):
        own = {"group": f"group-{number % 3}", "deduplication_id": None} if "group" in how else {}
        box.send(f"old {number}", **(how | own))
    clock.advance(2)
    box.receive(visibility_timeout=3)  # runs out before the verb
    held = [*box.receive(max_messages=2)]
    clock.advance(4)
    return box, clock, held


def everything(box: Box) -> Counter[str]:
    """Every message in the store, by its body, however it is found."""
    found: Counter[str] = Counter()
    for session in box._store.sessions.values():
        queue = session.queue
        records = [*waiting(queue), *(record for _, _, record in queue.schedule)]
        records += [lease.record for lease in queue.leases]
        found.update(record.body.decode() for record in records)
        assert len(records) == queue.size == queue.ready + queue.scheduled + queue.in_flight
        standing = queue.lanes.keys() | queue.returned.keys()
        full = {lane for lane in standing if queue.lanes.get(lane) or lane in queue.returned}
        assert queue.mask == sum(1 << lane for lane in full)
        assert queue.groups_in_lanes == sum(g.lane >= 0 for g in queue.groups.values())
    return found


def drained(box: Box, clock: FakeClock) -> Counter[str]:
    """What receivers get in the end, dead letters too; each is acknowledged."""
    found: Counter[str] = Counter()
    for _ in range(3):
        clock.advance(100)
        for source in (box, box.dead_letters):
            while source is not None and (messages := source.receive(max_messages=10)):
                found.update(message.body for message in messages)
                assert all(source.acknowledge_many(messages))
    return found


@pytest.mark.parametrize("dead_letters", [False, True])
@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("verb", VERBS)
def test_R111_an_interrupt_anywhere_loses_and_doubles_nothing(
    verb: str, option: str, dead_letters: bool
) -> None:
    at, more = 0, True
    while more:
        box, clock, held = opened(OPTIONS[option], dead_letters=dead_letters)
        before = everything(box)
        more = interrupted(lambda: VERBS[verb](box, held, OPTIONS[option]), at)  # noqa: B023
        assert (box._store.lock.token, box._store.lock.holder) == ([None], 0), f"at point {at}"
        after = everything(box)
        new, gone = after - before, before - after
        assert max(after.values()) == 1, f"doubled at point {at}"
        assert new.keys() <= {"new", "newer"}, f"appeared at point {at}"
        assert not gone or verb.startswith("acknowledge"), f"lost at point {at}: {gone}"
        thread = Thread(target=box.send, args=("from another thread",))
        thread.start()
        thread.join(10)
        assert not thread.is_alive(), f"locked at point {at}"
        after["from another thread"] += 1
        assert drained(box, clock) == after, f"at point {at}"
        at += 1
    assert at > 3
