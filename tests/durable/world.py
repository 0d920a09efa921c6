"""A store on a simulated disk, driven at random, and what must be true of it after a crash."""

from __future__ import annotations

import random
from typing import Any

from pillarbox.core.queue import Group, Record
from pillarbox.mailbox.durable import DurableMailbox
from pillarbox.mailbox.durable_store import DurableStore
from pillarbox.mailbox.message import Message
from pillarbox.mailbox.protocol import DeadLetterPolicy
from pillarbox.mailbox.replay import all_records
from pillarbox.testing.clock import FakeClock
from pillarbox.testing.disk import SimDisk

PATH = "data"
SEGMENT_BYTES = 16384
NAMES = ("plain", "strict")


def open_store(disk: SimDisk, clock: FakeClock, **options: Any) -> DurableStore:
    return DurableStore(PATH, disk=disk, clock=clock, segment_bytes=SEGMENT_BYTES, **options)


def open_boxes(disk: SimDisk, clock: FakeClock, **options: Any) -> list[DurableMailbox[bytes]]:
    """Two mailboxes of one store: one as it comes, one that keeps places and buries."""
    shared: dict[str, Any] = {
        "path": PATH,
        "disk": disk,
        "clock": clock,
        "segment_bytes": SEGMENT_BYTES,
        **options,
    }
    policy = DeadLetterPolicy(2)
    return [
        DurableMailbox("plain", bytes, **shared),
        DurableMailbox("strict", bytes, dead_letters=policy, redelivery="original", **shared),
    ]


class World:
    """Random calls on the mailboxes of one store, and what was confirmed to the callers."""

    def __init__(self, seed: int, **options: Any) -> None:
        self.chance = random.Random(seed)
        self.clock = FakeClock()
        self.disk = SimDisk()
        self.boxes = open_boxes(self.disk, self.clock, **options)
        self.store: DurableStore = self.boxes[0]._store
        self.held: list[Message[bytes]] = []
        self.sent: dict[str, bytes] = {}
        self.not_before: dict[str, int] = {}
        self.gone: set[str] = set()
        self.number = 0

    def step(self) -> None:
        verbs = (self.send,) * 6 + (self.receive,) * 4 + (self.settle,) * 5
        verbs += (self.send_many, self.advance, self.advance, self.remove)
        self.chance.choice(verbs)()

    def send(self) -> None:
        chance, box = self.chance, self.chance.choice(self.boxes)
        self.number += 1
        body = b"%d" % self.number + b"." * chance.choice((0, 10, 700))
        delay = chance.choice((0, 0, 0, 5))
        group = chance.choice((None, None, "a", "b"))
        message_id = box.send(
            body,
            delay_seconds=delay,
            priority=chance.choice((0, 0, 7)),
            attributes=chance.choice((None, {"n": str(self.number)})),
            group=group,
            deduplication_id=chance.choice((None, None, f"d{chance.randrange(5)}")),
        )
        self.sent.setdefault(message_id, body)
        self.not_before.setdefault(message_id, self.clock.now() + delay * 10**9)

    def send_many(self) -> None:
        self.number += 3
        bodies = [b"%d-%d" % (self.number, i) for i in range(3)]
        ids = self.chance.choice(self.boxes).send_many(bodies)
        self.sent.update(zip(ids, bodies, strict=True))

    def receive(self) -> None:
        box = self.chance.choice(self.boxes)
        timeout = self.chance.choice((1, 3, 30, 0.5 * self.chance.randrange(1, 30)))
        self.held += box.receive(max_messages=4, visibility_timeout=timeout)

    def settle(self) -> None:
        if not self.held:
            return
        message = self.held.pop(self.chance.randrange(len(self.held)))
        verb = self.chance.choice(("acknowledge",) * 3 + ("nack", "later", "release", "extend"))
        if verb == "acknowledge" and message.acknowledge():
            self.gone.add(message.id)
        elif verb == "nack":
            message.nack()
        elif verb == "later" and message.nack(visibility_timeout=9):
            if message._mailbox is self.boxes[1]:
                return  # it may have died of it
            self.not_before[message.id] = self.clock.now() + 9 * 10**9
        elif verb == "release":
            message.release()
        elif verb == "extend" and message.extend_visibility(20):
            self.held.append(message)

    def advance(self) -> None:
        self.clock.advance(self.chance.choice((0.001, 0.7, 2, 11)))

    def remove(self) -> None:
        box = self.chance.choice(self.boxes)
        ids = [message.id for message in box.peek(2)]
        if self.chance.random() < 0.7:
            self.gone.update(ids if box.delete(ids) == len(ids) else [])
        elif box.dead_letters is not None:
            box.dead_letters.redrive()


def state_of(store: DurableStore) -> dict[str, Any]:
    """Everything that a store knows, to be compared with what another knows."""
    queues = {name: _queue(session.queue) for name, session in sorted(store.sessions.items())}
    return {"prefix": store.prefix, "secret": store._secret, "queues": queues}


def _queue(queue: Any) -> dict[str, Any]:
    names = {id(group): name for name, group in queue.groups.items()}

    def item(x: Record | Group) -> Any:
        return ("group", names[id(x)]) if isinstance(x, Group) else _record(x)

    leases = sorted(
        (lease.record.key, lease.number, lease.leased_at, lease.deadline, repr(lease.extra))
        for lease in queue.leases
    )
    return {
        "settings": queue.settings,
        "dead_letters": queue.dead_letters.name if queue.dead_letters else None,
        "mask": queue.mask,
        "counts": (queue.ready, queue.scheduled, queue.in_flight),
        "lanes": {p: [item(x) for x in lane] for p, lane in sorted(queue.lanes.items()) if lane},
        "returned": {p: list(map(_record, line)) for p, line in queue.returned.items()},
        "groups": {
            name: (list(map(_record, group.waiting)), group.held, group.lane)
            for name, group in sorted(queue.groups.items())
        },
        "schedule": [(due, _record(record)) for due, _, record in queue.schedule],
        "leases": leases,
        "in flight": sorted(_record(lease.record) for lease in queue.leases),
        "duplicates": list(queue.duplicates.items()),
    }


def _record(record: Record) -> tuple[Any, ...]:
    noted = sorted((record.attributes or {}).items())
    return (record.key, record.body, record.priority, record.deliveries, noted, repr(record.extra))


def ids_of(store: DurableStore) -> dict[str, bytes]:
    """Every message of a store, by id, as of one moment."""
    with store.lock:
        records = list(all_records(each.queue for each in store.sessions.values()))
    return {store.message_id(record.key): store.body(record) for record in records}
