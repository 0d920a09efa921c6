"""The state of one queue: the messages that are ready, scheduled and in flight.

A queue has no clock, no lock and no thread. `decide` reads it and returns events, `apply` changes
it by an event and can't fail; nothing else writes here. Every transition is O(1) or O(log n).
Times are nanoseconds since the epoch, and `now` never goes back.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice, repeat, takewhile
from operator import attrgetter
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from pillarbox.core import fair
from pillarbox.core.errors import InvalidParameterError
from pillarbox.core.lane import Lane, Position
from pillarbox.core.leases import Leases
from pillarbox.core.limits import DEDUPLICATION_SECONDS, SECOND_NS
from pillarbox.core.timers import Timers

NEVER = 1 << 70  # later than any time a caller can pass
NO_LANE = -1

Outcome = Literal["nacked", "expired", "rejected"]
Redelivery = Literal["tail", "original"]


class Attempt(Struct, frozen=True, gc=False):
    """A failed delivery: when it was leased, when and how it ended."""

    leased_at: int
    ended_at: int
    outcome: Outcome


class Death(Struct, frozen=True, gc=False):
    """Why a message is in a dead-letter queue, and which queue it came from."""

    source: str
    reason: str
    died_at: int
    deliveries: int = 0  # in earlier queues; a dead-letter queue with a policy counts its own


class Extra(Struct, frozen=True, gc=False):
    """Rare fields of a message. Immutable: a change replaces it, and leases keep the old one."""

    group: str | None = None
    deduplication: str | None = None
    place: int = 0  # order in the queue if not the key (a delayed message)
    position: tuple[int, int] | None = None  # in its lane, if not its place
    releases: int = 0  # deliveries not counted: released, or before a redrive
    attempts: tuple[Attempt, ...] = ()
    death: Death | None = None


class Record(Struct, gc=False, eq=False):
    """One message. Not tracked by the garbage collector: five million must not stall it.

    `key` is the send time in units of 2 ns, made unique: it sorts by age, and fits a compact Python
    int. `body` is opaque: bytes, or their location on disk.
    """

    key: int
    body: Any
    priority: int = 0
    deliveries: int = 0  # failed deliveries, without the one in flight
    attributes: dict[str, str] | None = None
    extra: Extra | None = None


def change(record: Record, **changes: Any) -> None:
    """Replace the record's extra with a changed copy; leases keep the old one."""
    record.extra = replace(record.extra, **changes) if record.extra else Extra(**changes)


class Lease(Struct, gc=False, eq=False):
    """One delivery of one message. It serves as the receipt; a deadline of 0 means it has ended."""

    record: Record
    number: int
    leased_at: int
    deadline: int
    timeout: int
    extra: Extra | None = None  # the record's extra when it was leased
    holder: Any = None  # the consumer, if a broker knows it


class Group:
    """Messages that must be delivered in order, one batch at a time.

    With `redelivery="original"` a returned message can be delivered again while later messages of
    the batch are still held. In a fair queue a group is a tenant, and never waits.
    """

    __slots__ = ("held", "hidden", "lane", "position", "waiting")

    def __init__(self) -> None:
        self.waiting: Lane[Record] = Lane(place)
        self.held = 0  # in flight, or returned with a delay; the group waits for these
        self.hidden: Lane[Record] | None = None  # these messages, with redelivery="original"
        self.lane = NO_LANE  # its lane while nothing is held,
        self.position = (0, 0)  # and its position there


class Settings(Struct, frozen=True):
    """The settings of a queue. `max_deliveries=0`: never dead-letter."""

    max_deliveries: int = 0
    dead_on_receive: bool = False  # as SQS: dead-letter on the next receive
    redelivery: Redelivery = "tail"
    capacity: int | None = None
    deduplicate_by_group: bool = False
    deduplication_ns: int = DEDUPLICATION_SECONDS * SECOND_NS
    paused: bool = False  # accepts messages but delivers none
    fair: bool = False  # groups are tenants, as in SQS's fair queues; needs redelivery="original"


DEFAULT_SETTINGS = Settings()

# Getters in C, for reading many records at once.
body_of = attrgetter("body")
extra_of = attrgetter("extra")
priority_of = attrgetter("priority")
holder_of = attrgetter("holder")


class Queue:
    """The state of one queue."""

    def __init__(self, name: str, settings: Settings = DEFAULT_SETTINGS) -> None:
        self.name = name
        self.settings = settings
        self.dead_letters: Queue | None = None
        self.sources: list[Queue] = []  # queues whose dead-letter queue this is
        order = by_place if settings.fair else lane_position
        self.lanes: defaultdict[int, Lane[Record | Group]] = defaultdict(partial(Lane, order))
        self.leases = Leases()
        self.empty()

    def empty(self) -> None:
        """Reset to the state of an empty queue."""
        for lane in self.lanes.values():
            lane.clear()
        self.leases.clear()
        self.returned: dict[int, Lane[Record]] = {}  # redelivery="original": sorted by place
        self.mask = 0  # bit p is set while lane p has something to deliver
        self.out_of_order: dict[int, Record] = {}  # ready messages that can't be found by their key
        self.groups: dict[str, Group] = {}
        self.grouped = 0  # messages that wait in groups
        self.groups_in_lanes = 0  # groups that are in a lane
        self.schedule = Timers()
        # (group or None, deduplication id) -> (key of the original, expiry)
        self.duplicates: OrderedDict[tuple[str | None, str], tuple[int, int]] = OrderedDict()
        self.wake_at = NEVER  # no timer is due before this

    @property
    def in_flight(self) -> int:
        return len(self.leases)

    @property
    def scheduled(self) -> int:
        return len(self.schedule)

    @property
    def ready(self) -> int:
        """The number of ready messages, including those that wait in a group (as SQS counts)."""
        plain = sum(map(len, self.lanes.values())) + sum(map(len, self.returned.values()))
        return plain - self.groups_in_lanes + self.grouped

    @property
    def size(self) -> int:
        """The number of ready, scheduled and in-flight messages."""
        return self.ready + len(self.schedule) + len(self.leases)

    def send_dead_letters_to(self, target: Queue | None) -> None:
        """Make `target` the dead-letter queue, if any; there must be no cycle."""
        if target is None:
            self.keep_dead_letters()
            return
        reached: Queue | None = target
        while reached is not None:
            if reached is self:
                raise InvalidParameterError("dead_letters", target.name, "another queue")
            reached = reached.dead_letters
        self.keep_dead_letters()
        self.dead_letters = target
        target.sources.append(self)

    def keep_dead_letters(self) -> None:
        """Remove the dead-letter queue: never dead-letter, retry indefinitely."""
        if self.dead_letters is not None:
            self.dead_letters.sources.remove(self)
            self.dead_letters = None


def page(queue: Queue, skip: int, count: int) -> list[Record]:
    """Return `count` ready messages in order, after the first `skip`.

    In a lane of plain messages, skipping does not visit the skipped ones.
    """
    if queue.groups or queue.returned:
        return list(islice(waiting(queue), skip, skip + count))
    found: list[Record] = []
    for priority in sorted(queue.lanes, reverse=True):
        lane: Any = queue.lanes[priority]
        found += lane.page(skip, skip + count - len(found))
        skip = max(0, skip - len(lane))
    return found


def new_records(
    keys: range,
    bodies: Sequence[Any],
    priority: int,
    attributes: dict[str, str] | None,
    extra: Callable[[], Extra] | None,
) -> list[Record]:
    """Return new records that differ only in their keys and bodies."""
    if len(keys) == 1:
        special = extra() if extra is not None else None
        return [Record(keys[0], bodies[0], priority, 0, attributes, special)]
    if extra is None and not priority and attributes is None:
        return list(map(Record, keys, bodies))  # a loop in C
    extras = (extra() for _ in keys) if extra is not None else repeat(None)
    alike = repeat(priority), repeat(0), repeat(attributes), extras
    return list(map(Record, keys, bodies, *alike))


def next_deadline(queue: Queue) -> int | None:
    """Return when the earliest delay or lease ends; None if there is none."""
    deadlines = (queue.schedule.first(), queue.leases.first_deadline())
    return min((at for at in deadlines if at is not None), default=None)


def in_order(queue: Queue) -> Iterator[Record]:
    """Yield the messages that can be delivered now, in delivery order."""
    mask = queue.mask
    while mask:
        priority = mask.bit_length() - 1
        mask ^= 1 << priority
        fresh: Iterator[Record | Group] = iter(queue.lanes[priority])
        returned = queue.returned.get(priority)
        items = _merge(returned, fresh) if returned else fresh
        if queue.settings.fair:
            yield from fair.delivery_order(map(_line, items), queue.in_flight, place)
            continue
        for item in items:
            if item.__class__ is Group:
                yield from deliverable(item)
            else:
                yield item  # type: ignore[misc]


def _line(item: Record | Group) -> tuple[Position, Group | None, Iterator[Record]]:
    if isinstance(item, Group):
        return _place(item), item, iter(item.waiting)
    return place(item), None, iter((item,))


def deliverable(group: Group) -> Iterator[Record]:
    """Yield the deliverable messages of a group: all, or those before the held ones."""
    if not group.held or not group.hidden:
        return iter(group.waiting)
    first = place(group.hidden.head[0])
    return takewhile(lambda record: place(record) < first, group.waiting)


def waiting(queue: Queue) -> Iterator[Record]:
    """Yield every ready message, including those that wait in a group."""
    yield from in_order(queue)
    for group in queue.groups.values():
        if group.held and not queue.settings.fair:
            shown = sum(1 for _ in deliverable(group)) if group.lane != NO_LANE else 0
            yield from islice(group.waiting, shown, None)


def heads(queue: Queue) -> Iterator[Record]:
    """Yield the first message of every lane and of every held group."""
    for lane in queue.lanes.values():
        for item in islice(lane, 1):
            yield item.waiting.head[0] if isinstance(item, Group) else item
    yield from (line.head[0] for line in queue.returned.values())
    for group in queue.groups.values():
        if group.held and group.lane == NO_LANE:
            yield from islice(group.waiting, 1)


def oldest_key(queue: Queue) -> int | None:
    """Return the lowest key among the heads of all lanes and groups."""
    return min((record.key for record in heads(queue)), default=None)


def place(record: Record) -> Position:
    """Return the sort key of a message among those of its priority."""
    extra = record.extra
    return (record.key if extra is None else extra.place or record.key, record.key)


def lane_position(item: Record | Group) -> Position:
    """Return the position of a message or a group in its lane."""
    if item.__class__ is Group:
        return item.position
    record: Record = item  # type: ignore[assignment]
    extra = record.extra
    return (record.key, 0) if extra is None else extra.position or default_position(record)


def by_place(item: Record | Group) -> Position:
    """Return the position in a fair queue, where messages are sorted by place."""
    return item.position if isinstance(item, Group) else place(item)


def default_position(record: Record) -> Position:
    """Return the default position: before messages that were sent at the time of its place."""
    extra = record.extra
    return (extra.place - 1, 1) if extra is not None and extra.place else (record.key, 0)


def first(queue: Queue, count: int) -> list[Record]:
    """Return up to `count` messages in delivery order."""
    mask = queue.mask
    if mask and not queue.returned and not (queue.groups and queue.settings.fair):
        lane = queue.lanes[mask.bit_length() - 1]
        if count == 1:
            item = lane.head[0]
            return [item.waiting.head[0] if item.__class__ is Group else item]  # type: ignore[list-item]
        if mask & (mask - 1) == 0 and not queue.groups:  # one plain lane
            return list(islice(lane, count))  # type: ignore[arg-type]
    return list(islice(in_order(queue), count))


def _merge(returned: Lane[Record], fresh: Iterator[Record | Group]) -> Iterator[Record | Group]:
    """Merge two sequences that are each sorted by place."""
    back = iter(returned)
    older = next(back, None)
    newer = next(fresh, None)
    while older is not None or newer is not None:
        if newer is None or (older is not None and place(older) < _place(newer)):
            yield older  # type: ignore[misc]
            older = next(back, None)
        else:
            yield newer
            newer = next(fresh, None)


def _place(item: Record | Group) -> Position:
    return place(item.waiting.head[0] if isinstance(item, Group) else item)
