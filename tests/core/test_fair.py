"""Fair queues: a tenant that floods a queue does not make the others wait. In virtual time."""

from __future__ import annotations

from collections import defaultdict, deque

import pytest

from pillarbox.core.fair import is_noisy
from tests.core import commands as c
from tests.core.scene import S, Scene, bodies

TICK = S // 10
WORKERS, WORK = 100, S  # each has a message for a second
QUIET = 10  # tenants, each of which sends a message a second
FLOOD = 100_000


@pytest.mark.parametrize(
    ("held", "in_flight", "noisy"),
    [(29, 29, False), (30, 30, True), (30, 299, True), (30, 300, False), (0, 0, False)],
)
def test_R151_noisy_is_who_holds_thirty_and_more_than_a_tenth(
    held: int, in_flight: int, noisy: bool
) -> None:
    assert is_noisy(held, in_flight) == noisy


def _flooded(*, fair: bool, flood: int, seconds: int = 30) -> tuple[float, Scene]:
    """How long a message of a quiet tenant waits, on average, while one has sent very many."""
    scene = Scene(redelivery="original", fair=fair)
    batch = 1_000
    for n in range(flood // batch):
        group = {"group": "flood"} if fair else {}
        scene.send(*(f"f{n * batch + i}" for i in range(batch)), **group)
    sent: dict[str, int] = {}
    waited: list[int] = []
    busy: deque[tuple[int, list[object]]] = deque()
    free = WORKERS
    for tick in range(seconds * 10):
        if tick % 10 < QUIET:
            name = f"q{tick % 10}-{tick}"
            scene.send(name, **({"group": f"quiet{tick % 10}"} if fair else {}))
            sent[name] = scene.now
        scene.now += TICK
        while busy and busy[0][0] <= scene.now:
            _, done = busy.popleft()
            scene.do(c.acknowledge(done))  # type: ignore[arg-type]
            free += len(done)
        some = min(free, max(1, WORKERS // 10))  # workers do not all start at once
        leases = scene.receive(some, 3_600 * S)
        waited += [scene.now - sent.pop(body) for body in bodies(leases) if body in sent]
        if leases:
            busy.append((scene.now + WORK, list(leases)))
            free -= len(leases)
    waited += [scene.now - at for at in sent.values()]
    return sum(waited) / len(waited) / S, scene


def test_R151_quiet_tenants_hardly_notice_a_flood() -> None:
    alone, _ = _flooded(fair=True, flood=0)
    beside, scene = _flooded(fair=True, flood=FLOOD)
    assert beside <= 2 * alone
    assert scene.queue.ready < FLOOD - 2_000, "the flood goes on meanwhile"


def test_R151_control_without_the_rule_they_wait_behind_it() -> None:
    alone, _ = _flooded(fair=False, flood=0)
    beside, _ = _flooded(fair=False, flood=FLOOD)
    assert beside > 50 * alone


def test_R151_nobody_starves() -> None:
    """Quiet tenants always have something to do, and the noisy one still gets its share."""
    scene = Scene(redelivery="original", fair=True)
    scene.send(*(f"f{n}" for n in range(500)), group="flood")
    got: defaultdict[str, int] = defaultdict(int)
    held: deque[list[object]] = deque()
    for n in range(400):
        scene.send(*(f"q{n}-{i}" for i in range(10)), group=f"quiet{n % 40}")
        leases = scene.receive(10)
        for body in bodies(leases):
            got[body[0]] += 1
        held.append(list(leases))
        if len(held) > 20:
            scene.do(c.acknowledge(held.popleft()))  # type: ignore[arg-type]
        scene.now += S
    assert got["f"] > 100
    assert got["q"] > 3_000


def test_R151_a_tenant_keeps_the_order_of_its_messages_and_its_old_place() -> None:
    scene = Scene(redelivery="original", fair=True)
    for name, group in (("a1", "a"), ("b1", "b"), ("a2", "a"), ("p", None), ("b2", "b")):
        scene.send(name, group=group)
    leases = scene.receive(2)
    assert bodies(leases) == ["a1", "b1"]
    scene.send("c1", group="c")
    scene.do(c.nack(leases))
    assert scene.line == ["a1", "b1", "a2", "p", "b2", "c1"]
    scene.do(c.remove(scene.keys("a1")))
    assert scene.line == ["b1", "a2", "p", "b2", "c1"]


def test_R151_messages_of_nobody_pass_a_noisy_tenant() -> None:
    scene = Scene(redelivery="original", fair=True)
    scene.send(*(f"f{n}" for n in range(40)), group="flood")
    scene.send("p")
    assert scene.take(30) == [f"f{n}" for n in range(30)]
    assert scene.take(3) == ["p", "f30", "f31"]
    assert scene.waiting == [f"f{n}" for n in range(32, 40)]


def test_R151_a_tenant_has_a_line_for_each_priority() -> None:
    scene = Scene(redelivery="original", fair=True)
    scene.send("low", group="a")
    scene.send("high", group="a", priority=3)
    assert scene.line == ["high", "low"]


def test_R150_what_a_group_gave_back_can_be_delivered_while_what_follows_is_held() -> None:
    scene = Scene(redelivery="original")
    scene.send("a1", "a2", "a3", "a4", group="a")
    scene.send("b1", group="b")
    first, second, third = scene.receive(3)
    scene.do(c.nack([first]))
    assert scene.line == ["b1", "a1"]
    assert scene.waiting == ["b1", "a1", "a4"], "a4 waits for what was delivered before it"
    scene.do(c.nack([third]))
    assert scene.line == ["b1", "a1"], "a3 waits for a2"
    scene.do(c.nack([second]))
    assert scene.line == ["b1", "a1", "a2", "a3", "a4"]
    assert scene.take(2) == ["b1", "a1"]
    assert scene.line == []
    assert scene.waiting == ["a2", "a3", "a4"], "all of them wait for a1"
