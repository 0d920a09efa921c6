"""finish(queue, event): completes an `apply` that an interrupt has stopped half way.

A signal handler, such as that of Ctrl-C, may raise while an event is applied. The event is already
decided, and perhaps on disk, so it must take effect as a whole. Its messages are taken out of
wherever they are now, all counts are recomputed, the messages are put back where they were before
the event, and the event is applied again. That visits every message of the queue, which is
acceptable because interrupts are rare.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Any

from pillarbox.core import apply, lines
from pillarbox.core import events as e
from pillarbox.core.lane import Lane
from pillarbox.core.queue import (
    NEVER,
    NO_LANE,
    Extra,
    Group,
    Lease,
    Queue,
    Record,
    change,
    next_deadline,
)


def finish(queue: Queue, event: e.Event) -> None:
    """Complete an event that was partly applied."""
    keys = {record.key for record in e.records_of(event)}
    if isinstance(event, e.Removed):
        keys.update(event.keys)
        for lease in queue.leases.among(keys).values():
            lease.deadline = 0
    for each in {queue, queue.dead_letters, getattr(event, "target", None)}:
        if each is not None:
            _take_out(each, keys)
            _recount(each)
    match event:
        case e.Removed():
            pass
        case e.Leased() | e.Hidden():
            for lease in event.leases:
                apply.leased_out_of_turn(queue, lease)
        case e.DiedInLine():
            apply.bury(queue, event.record, event.reason, event.at)
        case e.Redriven():
            for record in event.records:
                apply.like_new(record, event.at)
                lines.join(event.target, record)
        case _:
            _undo(queue, event)
            apply.apply(queue, event)
    queue.wake_at = next_deadline(queue) or NEVER


def _undo(queue: Queue, event: Any) -> None:
    """Put the messages of an event, which were taken out, back where they were before it."""
    if isinstance(event, e.CameDue | e.Rescheduled):
        _clear_position(event.record)
        queue.schedule.add(0, event.record)
        if event.record.deliveries:
            lines.hold(queue, event.record)
        return
    held: list[Lease] = [event.lease] if hasattr(event, "lease") else getattr(event, "leases", [])
    for lease in held:
        lease.record.extra = lease.extra
        lease.deadline = lease.deadline or lease.leased_at
        apply.leased_out_of_turn(queue, lease)


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
