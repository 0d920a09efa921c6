"""apply(queue, event): the only code that changes a queue. It can't fail.

Replaying a log calls nothing else, so what is here follows from events alone. `settle`
decides and applies whatever is due; everything that is asked of a queue comes after it.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from pillarbox.core import decide
from pillarbox.core import events as e
from pillarbox.core.changes import change, like_new, note, place_anew
from pillarbox.core.queue import (
    NEVER,
    NO_LANE,
    Death,
    Group,
    Lease,
    Queue,
    Record,
    extra_of,
    next_deadline,
    place,
    priority_of,
)

_FEW = 64  # messages that are taken out of a line one by one; for more it is written anew
_KEYS_AHEAD_NS_MAX = 1_000_000_000  # the keys of a large batch run ahead of the clock


def settle(queue: Queue, now: int) -> list[e.Event]:
    """Let everything happen that is due by now; what that was."""
    events = decide.tick(queue, now)
    settled(queue, events)
    return events


def settled(queue: Queue, events: Iterable[e.Event]) -> None:
    """What was due has happened."""
    for event in events:
        apply(queue, event)
    queue.wake_at = next_deadline(queue) or NEVER


def apply(queue: Queue, event: e.Event) -> None:
    _APPLY[type(event)](queue, event)


def sent(queue: Queue, records: Sequence[Record]) -> None:
    if len(records) > 1 and _are_plain(records):
        lined_up(queue, records, records[0].priority)
        return
    for record in records:
        if record.extra is None:
            lane = queue.lanes[record.priority]
            if not lane:
                queue.mask |= 1 << record.priority
            lane.append(record)
        else:
            remember(queue, record)
            _join(queue, record)


def lined_up(queue: Queue, records: Sequence[Record], priority: int) -> None:
    """What `sent` does for messages of one priority that have no extra."""
    if records:
        queue.lanes[priority].extend(records)
        queue.mask |= 1 << priority


def scheduled(queue: Queue, records: list[Record], due: int) -> None:
    for record in records:
        if record.extra is not None:
            remember(queue, record)
        queue.schedule.add(due, record)
    queue.wake_at = min(queue.wake_at, due)


def rescheduled(queue: Queue, record: Record, due: int) -> None:
    queue.schedule.remove(record.key)
    queue.schedule.add(due, record)
    queue.wake_at = min(queue.wake_at, due)


def leased(queue: Queue, leases: Sequence[Lease]) -> None:
    """Leases that were given together: they share their timeout and their deadline."""
    if queue.mask & (queue.mask - 1) == 0 and not queue.groups and not queue.returned:
        _take_from_lane(queue, queue.mask.bit_length() - 1, leases)
    else:
        for lease in leases:
            _take(queue, lease.record, held=1)
    queue.leases.add_all(leases)
    if leases[0].deadline < queue.wake_at:
        queue.wake_at = leases[0].deadline


def acknowledged(queue: Queue, leases: Sequence[Lease]) -> None:
    queue.leases.end(leases)
    if queue.groups:
        for lease in leases:
            _unhold(queue, lease.record)


def extended(queue: Queue, lease: Lease, deadline: int) -> None:
    queue.leases.extend(lease, deadline)
    queue.wake_at = min(queue.wake_at, deadline)


def returned(queue: Queue, event: e.Returned) -> None:
    lease = event.lease
    if queue.settings.max_deliveries or queue.settings.dead_on_receive:
        note(lease, event.at, event.outcome)
    queue.leases.end((lease,))
    lease.record.deliveries = lease.number
    if event.due:
        queue.schedule.add(event.due, lease.record)
        queue.wake_at = min(queue.wake_at, event.due)
    else:
        _give_back(queue, lease.record)


def released(queue: Queue, event: e.Released) -> None:
    record = event.lease.record
    queue.leases.end((event.lease,))
    change(record, releases=record.extra.releases + 1 if record.extra is not None else 1)
    _give_back(queue, record, to_front=event.to_front)


def came_due(queue: Queue, event: e.CameDue) -> None:
    record = event.record
    queue.schedule.remove(record.key)
    if record.deliveries:  # it was given back with a delay
        _give_back(queue, record)
        return
    place_anew(queue, event)
    _join(queue, record)


def died(queue: Queue, event: e.Died) -> None:
    note(event.lease, event.at, event.outcome)
    acknowledged(queue, (event.lease,))
    event.lease.record.deliveries = event.lease.number
    _bury(queue, event.lease.record, event.reason, event.at)


def died_in_line(queue: Queue, event: e.DiedInLine) -> None:
    _take(queue, event.record, held=0)
    _bury(queue, event.record, event.reason, event.at)


def redriven(queue: Queue, event: e.Redriven) -> None:
    removed(queue, {record.key for record in event.records})
    for record in event.records:
        like_new(record, event.at)
        _join(event.target, record)


def removed(queue: Queue, keys: set[int]) -> None:
    """Out of wherever they are; those in line are found in one pass over it."""
    rest = set(keys)
    leases = queue.leases.among(keys)
    for key in sorted(keys):
        record = queue.schedule.find(key)
        if key in leases:
            acknowledged(queue, (leases[key],))
        elif record is not None:
            queue.schedule.remove(key)
            if record.deliveries:
                _unhold(queue, record)
        else:
            continue
        rest.discard(key)
    if rest:
        _remove_from_line(queue, rest)


def purged(queue: Queue) -> None:
    queue.empty()


def _are_plain(records: Sequence[Record]) -> bool:
    """Of one priority, and with nothing that only some messages have."""
    return not any(map(extra_of, records)) and len(set(map(priority_of, records))) == 1


def _join(queue: Queue, record: Record) -> None:
    """In at the end of the line, or of its group's."""
    if record.extra is None or record.extra.group is None:
        queue.lanes[record.priority].append(record)
        queue.mask |= 1 << record.priority
        return
    group = queue.groups.setdefault(record.extra.group, Group())
    insert(group.waiting, record)
    queue.grouped += 1
    _line_up(queue, group)


def _give_back(queue: Queue, record: Record, *, to_front: bool = False) -> None:
    """Into the line once more: into its place in its group, at the end, or as asked."""
    lane = record.priority
    if record.extra is not None and record.extra.group is not None:
        insert(queue.groups[record.extra.group].waiting, record)
        queue.grouped += 1
        _unhold(queue, record)
        return
    if queue.settings.redelivery == "original":
        insert(queue.returned.setdefault(lane, deque()), record)
    elif to_front:
        queue.lanes[lane].appendleft(record)
    else:
        queue.lanes[lane].append(record)
    queue.mask |= 1 << lane


def insert(line: deque[Record], record: Record) -> None:
    """Into a line sorted by place; what expires in order is added in order."""
    if line and place(record) < place(line[-1]):
        insort(line, record, key=place)
    else:
        line.append(record)


def _take_from_lane(queue: Queue, priority: int, leases: Sequence[Lease]) -> None:
    """Out of the only lane that has messages, and these are plain: the usual case."""
    lane = queue.lanes[priority]
    assert lane[0] is leases[0].record, "only the head of a line is leased"
    if len(leases) == len(lane):
        lane.clear()
        queue.mask = 0
    else:
        for _ in leases:
            lane.popleft()


def _take(queue: Queue, record: Record, *, held: int) -> None:
    """Out of the line, at whose head it is; its group stays in line unless it is held."""
    lane = record.priority
    returned = queue.returned.get(lane)
    head: Record | Group
    if record.extra is not None and record.extra.group is not None:
        _take_from_group(queue, queue.groups[record.extra.group], record, held)
        return
    if returned and returned[0] is record:
        head = returned.popleft()
        if not returned:
            del queue.returned[lane]
    else:
        head = queue.lanes[lane].popleft()
    assert head is record, "only the head of a line is taken"
    _clear_mask(queue, lane)


def _take_from_group(queue: Queue, group: Group, record: Record, held: int) -> None:
    head = group.waiting.popleft()
    assert head is record, "only the head of a group is taken"
    queue.grouped -= 1
    group.held += held
    if group.lane != NO_LANE and (group.held or not group.waiting):
        lane, group.lane = group.lane, NO_LANE
        queue.lanes[lane].popleft()
        queue.lined_up -= 1
        _clear_mask(queue, lane)
    _drop_if_done(queue, group, record)


def _unhold(queue: Queue, record: Record) -> None:
    """One message fewer for which its group must wait."""
    if record.extra is not None and record.extra.group is not None:
        group = queue.groups[record.extra.group]
        group.held -= 1
        _line_up(queue, group)
        _drop_if_done(queue, group, record)


def _line_up(queue: Queue, group: Group) -> None:
    """A group with something to deliver stands at the end of the line: each has its turn."""
    if group.waiting and group.held == 0 and group.lane == NO_LANE:
        group.lane = group.waiting[0].priority
        queue.lanes[group.lane].append(group)
        queue.lined_up += 1
        queue.mask |= 1 << group.lane


def _drop_if_done(queue: Queue, group: Group, record: Record) -> None:
    if not group.waiting and not group.held:
        assert record.extra is not None
        del queue.groups[record.extra.group or ""]


def _clear_mask(queue: Queue, lane: int) -> None:
    if not queue.lanes[lane] and lane not in queue.returned:
        queue.mask &= ~(1 << lane)


def _remove_from_line(queue: Queue, keys: set[int]) -> None:
    for name, group in list(queue.groups.items()):
        queue.grouped -= _drop(queue, group.waiting, keys)
        if not group.waiting and group.lane != NO_LANE:
            queue.lanes[group.lane].remove(group)
            queue.lined_up -= 1
            group.lane = NO_LANE
        if not group.waiting and not group.held:
            del queue.groups[name]
    for lane, line in list(queue.returned.items()):
        _drop(queue, line, keys)
        if not line:
            del queue.returned[lane]
    for lane, items in queue.lanes.items():
        _drop(queue, items, keys)
        _clear_mask(queue, lane)


def _drop(queue: Queue, line: deque[Any], keys: set[int]) -> int:
    """Take records with these keys out of a line, and the keys out of the set; how many."""
    before = len(line)
    for end, pop in ((0, line.popleft), (-1, line.pop)):  # most often they are at an end
        while keys and line and line[end].__class__ is Record and line[end].key in keys:
            keys.discard(pop().key)
    backs = []  # their places, counted from the tail: what came back lately is near it
    for back, item in enumerate(reversed(line) if keys else (), 1):
        if item.__class__ is Record and item.key in keys:
            keys.discard(item.key)
            backs.append(back)
            if not keys:
                break
    if len(backs) <= _FEW:
        for back in reversed(backs):
            del line[-back]
    else:
        gone = {len(line) - back for back in backs}
        queue.rewrite(line, [item for at, item in enumerate(line) if at not in gone])
    return before - len(line)


def _bury(queue: Queue, record: Record, reason: str, at: int) -> None:
    target = queue.dead_letters
    assert target is not None, "decide lets nothing die without a dead-letter queue"
    change(record, death=Death(queue.name, reason, at), place=at >> 1)
    _join(target, record)


def remember(queue: Queue, record: Record) -> None:
    """Keep its deduplication id for a while, and forget those whose time is over."""
    if record.extra is None or record.extra.deduplication is None:
        return
    known = queue.duplicates
    sent_at = record.key << 1
    while known and next(iter(known.values()))[1] + _KEYS_AHEAD_NS_MAX <= sent_at:
        known.popitem(last=False)
    name = decide.duplicate_id(queue, record)
    known[name] = (record.key, sent_at + queue.settings.deduplication_ns)
    known.move_to_end(name)


_APPLY: dict[type[e.Event], Callable[[Queue, Any], None]] = {
    e.Sent: lambda q, event: sent(q, event.records),
    e.Scheduled: lambda q, event: scheduled(q, event.records, event.due),
    e.CameDue: came_due,
    e.Rescheduled: lambda q, event: rescheduled(q, event.record, event.due),
    e.Leased: lambda q, event: leased(q, event.leases),
    e.Acknowledged: lambda q, event: acknowledged(q, event.leases),
    e.Returned: returned,
    e.Released: released,
    e.Extended: lambda q, event: extended(q, event.lease, event.deadline),
    e.Died: died,
    e.DiedInLine: died_in_line,
    e.Redriven: redriven,
    e.Removed: lambda q, event: removed(q, set(event.keys)),
    e.Purged: lambda q, _: purged(q),
}
