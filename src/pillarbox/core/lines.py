"""The lanes and groups of a queue, and how to find a message in them.

Every lane is sorted by `lane_position`, so a message is found by bisection, and removing it moves
only pointers. The position of a message is usually its key. `queue.out_of_order` indexes the others
by key: those that joined later (returned, delayed, redriven or dead-lettered), and those that wait
in a group. Only `apply` may call the functions that change a queue.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

from pillarbox.core.lane import Lane, Position
from pillarbox.core.queue import (
    NO_LANE,
    Group,
    Lease,
    Queue,
    Record,
    change,
    default_position,
    lane_position,
    place,
)


def find(queue: Queue, key: int) -> Record | None:
    """Return the ready message with this key, in O(log n)."""
    record = queue.out_of_order.get(key)
    if record is not None:
        return record
    at = (key, key if queue.settings.fair else 0)
    for lane in queue.lanes.values():
        item = lane.get(at)  # possibly another message that was put before it
        if isinstance(item, Record) and item.key == key:
            return item
    for line in queue.returned.values():
        if (record := line.get((key, key))) is not None:
            return record
    return None


def order(queue: Queue, record: Record) -> tuple[int, Position]:
    """Return the sort key of a ready message: returned ones first, then lanes, then groups."""
    if record.extra is not None and record.extra.group is not None:
        return 2, place(record)
    if _is_back(queue, record):
        return 0, place(record)
    return 1, place(record) if queue.settings.fair else lane_position(record)


def group_name(queue: Queue, record: Record) -> str | None:
    """Return the group of a message; in a fair queue a tenant has one for each priority."""
    extra = record.extra
    if extra is None or extra.group is None:
        return None
    return f"{record.priority} {extra.group}" if queue.settings.fair else extra.group


def can_deliver(queue: Queue, group: Group) -> bool:
    """Return whether a group has something to deliver, and so belongs in a lane."""
    if not group.waiting.head and not group.waiting:
        return False
    if group.held == 0 or queue.settings.fair:
        return True
    hidden = group.hidden
    return hidden is not None and place(group.waiting.head[0]) < place(hidden.head[0])


# -- joining -----------------------------------------------------------------------------------


def join(queue: Queue, record: Record) -> None:
    """Append a message to its lane or group."""
    name = group_name(queue, record)
    if name is not None:
        group = queue.groups.get(name)
        if group is None:
            group = queue.groups[name] = Group()
        _wait_in_group(queue, group, record)
        if group.lane == NO_LANE or queue.settings.fair:  # else it stands in line already
            _update(queue, name, group)
        return
    append_to_lane(queue, record)


def give_back(queue: Queue, record: Record, *, to_front: bool = False) -> None:
    """Put a message back: at its position in the group, at the end, or at the front."""
    name = group_name(queue, record)
    if name is not None:
        _wait_in_group(queue, queue.groups[name], record)
        unhold(queue, record)
    elif queue.settings.redelivery == "original":
        line = queue.returned.setdefault(record.priority, Lane(place))
        _reposition(queue, record, None)
        line.insert(record)
        queue.mask |= 1 << record.priority
    elif to_front:
        prepend_to_lane(queue, record)
    else:
        append_to_lane(queue, record)


def _wait_in_group(queue: Queue, group: Group, record: Record) -> None:
    queue.out_of_order[record.key] = record
    group.waiting.insert(record)
    queue.grouped += 1


def append_to_lane(queue: Queue, record: Record) -> None:
    """Add a message at the end of its lane."""
    lane = queue.lanes[record.priority]
    if queue.settings.fair:
        _reposition(queue, record, None)
        lane.insert(record)
    else:
        _reposition(queue, record, _behind(lane, record))
        lane.append(record)
    queue.mask |= 1 << record.priority


def prepend_to_lane(queue: Queue, record: Record) -> None:
    """Add a message at the head of its lane."""
    lane = queue.lanes[record.priority]
    head = lane_position(lane.head[0]) if lane else None
    inverted = head is not None and default_position(record) >= head
    _reposition(queue, record, (head[0], head[1] - 1) if head and inverted else None)
    lane.appendleft(record)
    queue.mask |= 1 << record.priority


def _behind(lane: Lane[Any], record: Record) -> Position | None:
    """Return the position for the end of a lane; None if the default position is last."""
    tail = lane.tail
    last = lane_position(tail[-1]) if tail else (0, 0)
    return None if default_position(record) > last else (last[0], last[1] + 1)


def _reposition(queue: Queue, record: Record, position: Position | None) -> None:
    extra = record.extra
    if position is not None or (extra is not None and extra.position is not None):
        change(record, position=position)
        extra = record.extra
    if position is not None or (extra is not None and extra.place):
        queue.out_of_order[record.key] = record


def _update(queue: Queue, name: str, group: Group) -> None:
    """Put a group in a lane if it has something to deliver; delete it if it is empty."""
    able, is_tenant = can_deliver(queue, group), queue.settings.fair
    if group.lane != NO_LANE and (
        not able or (is_tenant and group.position != place(group.waiting.head[0]))
    ):
        _leave_lane(queue, group)
    if not able:
        if not group.held:
            del queue.groups[name]
    elif group.lane == NO_LANE:
        enter_lane(queue, group)


def enter_lane(queue: Queue, group: Group) -> None:
    """Put a group at the end of its lane; a tenant at the position of its first message."""
    first = group.waiting.head[0]
    group.lane = first.priority
    lane = queue.lanes[group.lane]
    if queue.settings.fair:
        group.position = place(first)
        lane.insert(group)
    else:
        group.position = _behind(lane, first) or default_position(first)
        lane.append(group)
    queue.groups_in_lanes += 1
    queue.mask |= 1 << group.lane


def rebuild_index(queue: Queue) -> None:
    """Sort all lanes and rebuild `out_of_order`."""
    queue.out_of_order = {}
    for lane in queue.lanes.values():
        last = (0, 0)
        for item in lane:
            following = (last[0], last[1] + 1)
            if isinstance(item, Group) and queue.settings.fair:
                item.position = place(item.waiting.head[0])
            elif isinstance(item, Group):
                by_itself = default_position(item.waiting.head[0])
                item.position = by_itself if by_itself > last else following
            elif (
                not queue.settings.fair and lane_position(item) <= last
            ):  # written by older versions
                _reposition(queue, item, following)
            elif item.extra is not None and (item.extra.place or item.extra.position):
                queue.out_of_order[item.key] = item
            last = lane_position(item)
    for group in queue.groups.values():
        queue.out_of_order.update((record.key, record) for record in group.waiting)
    for line in queue.returned.values():
        queue.out_of_order.update((r.key, r) for r in line if r.extra is not None and r.extra.place)


# -- leaving -----------------------------------------------------------------------------------


def take_from_lane(queue: Queue, priority: int, leases: Sequence[Lease]) -> None:
    """Take plain messages from the only lane that has any: the usual case."""
    lane = queue.lanes[priority]
    assert lane.head[0] is leases[0].record, "only the head of a line is leased"
    lane.drop(len(leases))
    if not lane.head:
        queue.mask = 0
    if queue.out_of_order:
        for lease in leases:
            queue.out_of_order.pop(lease.record.key, None)


def take(queue: Queue, record: Record, *, held: int) -> None:
    """Take a message from the head of its lane; its group stays there unless it is held."""
    queue.out_of_order.pop(record.key, None)
    lane = record.priority
    returned = queue.returned.get(lane)
    head: Record | Group
    name = group_name(queue, record)
    if name is not None:
        head = queue.groups[name].waiting.head[0]
        assert head is record, "only the head of a group is taken"
        _take_from_group(queue, name, record, held)
        return
    if returned and returned.head[0] is record:
        head = returned.popleft()
        if not returned:
            del queue.returned[lane]
    elif queue.settings.fair:  # a noisy tenant may be before it
        queue.lanes[lane].remove(record)
        head = record
    else:
        head = queue.lanes[lane].popleft()
    assert head is record, "only the head of a line is taken"
    _clear_mask(queue, lane)


def _take_from_group(queue: Queue, name: str, record: Record, held: int) -> None:
    group = queue.groups[name]
    group.waiting.remove(record)
    queue.grouped -= 1
    if held:
        hide(queue, group, record)
    _update(queue, name, group)


def hide(queue: Queue, group: Group, record: Record) -> None:
    """Record that a message of a group is held."""
    group.held += 1
    if queue.settings.redelivery == "original" and not queue.settings.fair:
        if group.hidden is None:
            group.hidden = Lane(place)
        group.hidden.insert(record)


def held(queue: Queue) -> Iterator[tuple[Record, str]]:
    """Yield the messages that groups wait for, with their groups: in flight or delayed."""
    timed = (record for _, _, record in queue.schedule if record.deliveries)
    for record in chain(timed, (lease.record for lease in queue.leases)):
        name = group_name(queue, record)
        if name is not None:
            yield record, name


def hold(queue: Queue, record: Record) -> None:
    """Count one more message that its group waits for."""
    name = group_name(queue, record)
    if name is not None:
        group = queue.groups.setdefault(name, Group())
        hide(queue, group, record)
        _update(queue, name, group)


def unhold(queue: Queue, record: Record) -> None:
    """Count one message fewer that its group waits for."""
    name = group_name(queue, record)
    if name is not None:
        group = queue.groups[name]
        group.held -= 1
        if group.hidden is not None:
            group.hidden.remove(record)
        _update(queue, name, group)


def _leave_lane(queue: Queue, group: Group) -> None:
    priority, group.lane = group.lane, NO_LANE
    queue.lanes[priority].remove(group)
    queue.groups_in_lanes -= 1
    _clear_mask(queue, priority)


def _clear_mask(queue: Queue, lane: int) -> None:
    line = queue.lanes[lane]
    if not line.head and not line and lane not in queue.returned:
        queue.mask &= ~(1 << lane)


def remove(queue: Queue, records: Iterable[Record]) -> None:
    """Remove ready messages, wherever they are."""
    for record in records:
        queue.out_of_order.pop(record.key, None)
        name, priority = group_name(queue, record), record.priority
        if name is not None:
            _take_from_group(queue, name, record, held=0)
            continue
        if _is_back(queue, record):
            queue.returned[priority].remove(record)
            if not queue.returned[priority]:
                del queue.returned[priority]
        else:
            queue.lanes[priority].remove(record)
        _clear_mask(queue, priority)


def _is_back(queue: Queue, record: Record) -> bool:
    """Return whether a message was returned to its original position."""
    line = queue.returned.get(record.priority)
    return line is not None and line.get(place(record)) is record
