"""finish(queue, event): completes an `apply` that an interrupt has stopped half way.

A signal handler, such as that of Ctrl-C, may raise while an event is applied. The event is already
decided, and perhaps on disk, so it must take effect as a whole. Its messages are taken out of
wherever they are now and put where the event puts them, and all counts are recomputed. That visits
every message of the queue, which is acceptable because interrupts are rare.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Any

from pillarbox.core import apply, lines
from pillarbox.core import events as e
from pillarbox.core.changes import change, like_new, mark_dead, note, place_anew
from pillarbox.core.lane import Lane
from pillarbox.core.queue import (
    NEVER,
    NO_LANE,
    Attempt,
    Extra,
    Group,
    Lease,
    Outcome,
    Queue,
    Record,
    next_deadline,
    place,
)


def finish(queue: Queue, event: e.Event) -> None:
    """Complete an event that was partly applied."""
    if isinstance(event, e.Purged):
        apply.purged(queue)
        return
    keys = {record.key for record in e.records_of(event)}
    if isinstance(event, e.Removed):
        keys.update(event.keys)
        for lease in queue.leases.among(keys).values():
            _ended(lease)
    queues = {queue, queue.dead_letters, getattr(event, "target", None)}
    touched = [each for each in queues if each is not None]
    for each in touched:
        _take_out(each, keys)
    for record in e.records_of(event):
        _clear_position(record)
    _PUT[type(event)](queue, event)
    for each in touched:
        _recount(each)


def _clear_position(record: Record) -> None:
    """Clear the position, which will be set again; drop the extra if it is now empty."""
    if record.extra is not None and record.extra.position is not None:
        change(record, position=None)
        if record.extra == Extra():
            record.extra = None


def _take_out(queue: Queue, keys: Container[int]) -> None:
    all_lines: list[Lane[Any]] = [*queue.lanes.values(), *queue.returned.values()]
    all_lines += [group.waiting for group in queue.groups.values()]
    for line in all_lines:
        line.replace([item for item in line if isinstance(item, Group) or item.key not in keys])
    queue.schedule.rebuild(keys)
    queue.leases.rebuild(keys)


def _put(queue: Queue, record: Record, *, back: bool = False, to_front: bool = False) -> None:
    """Add a record to its lane or group; `back` if it was delivered before."""
    name = lines.group_name(queue, record)
    if name is not None:
        group = queue.groups.setdefault(name, Group())
        group.waiting.insert(record)
    elif back and queue.settings.redelivery == "original":
        queue.returned.setdefault(record.priority, Lane(place)).insert(record)
    elif to_front:
        lines.prepend_to_lane(queue, record)
    else:
        lines.append_to_lane(queue, record)


def _sent(queue: Queue, event: e.Sent) -> None:
    for record in event.records:
        apply.remember(queue, record)
        _put(queue, record)


def _scheduled(queue: Queue, event: e.Scheduled) -> None:
    for record in event.records:
        apply.remember(queue, record)
        queue.schedule.add(event.due, record)


def _came_due(queue: Queue, event: e.CameDue) -> None:
    place_anew(queue, event)
    _put(queue, event.record, back=event.record.deliveries > 0)


def _returned(queue: Queue, event: e.Returned) -> None:
    if queue.settings.max_deliveries or queue.settings.dead_on_receive:
        _note(event.lease, event.at, event.outcome)
    record = _ended(event.lease)
    record.deliveries = event.lease.number
    if event.due:
        queue.schedule.add(event.due, record)
    else:
        _put(queue, record, back=True)


def _released(queue: Queue, event: e.Released) -> None:
    record, before = _ended(event.lease), event.lease.extra
    change(record, releases=before.releases + 1 if before is not None else 1)
    _put(queue, record, back=True, to_front=event.to_front)


def _extended(queue: Queue, event: e.Extended) -> None:
    queue.leases.add(event.lease)
    queue.leases.extend(event.lease, event.deadline)


def _died(queue: Queue, event: e.Died) -> None:
    _note(event.lease, event.at, event.outcome)
    record = _ended(event.lease)
    record.deliveries = event.lease.number
    _put(mark_dead(queue, record, event.reason, event.at), record)


def _redriven(queue: Queue, event: e.Redriven) -> None:
    for record in event.records:
        like_new(record, event.at)
        _put(event.target, record)


def _died_in_line(queue: Queue, event: e.DiedInLine) -> None:
    _put(mark_dead(queue, event.record, event.reason, event.at), event.record)


def _acknowledged(queue: Queue, event: e.Acknowledged) -> None:
    for lease in event.leases:
        _ended(lease)


def _ended(lease: Lease) -> Record:
    lease.deadline = 0
    return lease.record


def _note(lease: Lease, at: int, outcome: Outcome) -> None:
    """Add this failure to the message's history, unless it is already there."""
    extra = lease.record.extra
    attempt = Attempt(lease.leased_at, at, outcome)
    if extra is None or attempt not in extra.attempts:
        note(lease, at, outcome)


_PUT: dict[type[e.Event], Callable[[Queue, Any], None]] = {
    e.Sent: _sent,
    e.Scheduled: _scheduled,
    e.CameDue: _came_due,
    e.Rescheduled: lambda queue, event: queue.schedule.add(event.due, event.record),
    e.Leased: lambda queue, event: queue.leases.add_all(event.leases),
    e.Hidden: lambda queue, event: queue.leases.add_all(event.leases),
    e.Acknowledged: _acknowledged,
    e.Returned: _returned,
    e.Released: _released,
    e.Extended: _extended,
    e.Died: _died,
    e.DiedInLine: _died_in_line,
    e.Redriven: _redriven,
    e.Removed: lambda queue, event: None,
}


def _recount(queue: Queue) -> None:
    """Recompute what is held, which groups are in a lane, and all other derived state."""
    for group in queue.groups.values():
        group.held, group.hidden, group.lane = 0, None, NO_LANE
    for record, name in lines.held(queue):
        lines.hide(queue, queue.groups.setdefault(name, Group()), record)
    for name, group in list(queue.groups.items()):
        if not group.waiting and not group.held:
            del queue.groups[name]
    _line_up(queue)
    for priority, line in list(queue.returned.items()):
        if not line:
            del queue.returned[priority]
    queue.grouped = sum(len(group.waiting) for group in queue.groups.values())
    queue.mask = sum(
        1 << priority
        for priority in queue.lanes.keys() | queue.returned.keys()
        if queue.lanes.get(priority) or priority in queue.returned
    )
    lines.rebuild_index(queue)
    queue.wake_at = next_deadline(queue) or NEVER


def _line_up(queue: Queue) -> None:
    """Put each group with something to deliver in its lane once, at its old position if any."""
    ready = {id(g): g for g in queue.groups.values() if lines.can_deliver(queue, g)}
    queue.groups_in_lanes = 0 if queue.settings.fair else len(ready)
    for priority, lane in list(queue.lanes.items()):
        items = []
        for item in lane:
            if isinstance(item, Group):
                if queue.settings.fair or ready.pop(id(item), None) is None:
                    continue
                item.lane = priority
            items.append(item)
        lane.replace(items)
    for group in ready.values():
        if queue.settings.fair:  # its first message may have changed
            lines.enter_lane(queue, group)
            continue
        group.lane = group.waiting.head[0].priority
        queue.lanes[group.lane].append(group)
