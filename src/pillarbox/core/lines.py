"""Who waits where: the lanes of a queue, its groups, and how a message is found in them.

Every lane is sorted by `standing`, so a message is found by bisection, and a removal moves
pointers only. A message usually stands by its key. One that joined out of order (it was given
back, delayed, redriven or dead-lettered) or that waits in a group is a stray: `queue.strays`
finds it by its key. Only `apply` calls what changes a queue.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from pillarbox.core.changes import change
from pillarbox.core.queue import NO_LANE, Group, Lease, Queue, Record, place

Position = tuple[int, int]


def standing(item: Record | Group) -> Position:
    """Where a message or a group stands in its lane."""
    if item.__class__ is Group:
        return item.position
    record: Record = item  # type: ignore[assignment]
    extra = record.extra
    return (record.key, 0) if extra is None else extra.position or _natural(record)


def find(queue: Queue, key: int) -> Record | None:
    """The ready message with this key, in O(log n)."""
    record = queue.strays.get(key)
    if record is not None:
        return record
    for lane in queue.lanes.values():
        if lane and (record := _at(lane, (key, 0), standing, key)) is not None:
            return record
    for line in queue.returned.values():
        if (record := _at(line, (key, key), place, key)) is not None:
            return record
    return None


def _at(
    line: deque[Any], where: Position, by: Callable[[Any], Position], key: int
) -> Record | None:
    """The message with this key, if it is where it should stand."""
    at = _search(line, where, by)
    item: Any = line[at] if at < len(line) else None
    return item if item.__class__ is Record and item.key == key else None


def _search(line: deque[Any], where: Position, by: Callable[[Any], Position]) -> int:
    """`bisect_left` for a deque, in which a look costs the more the farther it is from an end.

    Positions grow with time, most often evenly: so it looks where `where` should be, and in the
    middle of what is left if that brought little.
    """
    low, high = 0, len(line) - 1
    if where <= (first := by(line[low])):
        return low
    if where > (last := by(line[high])):
        return high + 1
    before, after, halve = first[0], last[0], False
    while (width := high - low) > 1:  # by(line[low]) < where <= by(line[high])
        step = width // 2 if halve else width * (where[0] - before) // max(1, after - before)
        middle = low + min(max(step, 1), width - 1)
        found = by(line[middle])
        if found < where:
            low, before = middle, found[0]
        else:
            high, after = middle, found[0]
        halve = not halve and 2 * (high - low) > width
    return high


def order(queue: Queue, record: Record) -> tuple[int, Position]:
    """Sorts ready messages: those that took their old place again, the lanes, then the groups."""
    if record.extra is not None and record.extra.group is not None:
        return 2, place(record)
    is_back = _at_place(queue, record) is not None
    return (0, place(record)) if is_back else (1, standing(record))


def is_first(queue: Queue, record: Record) -> bool:
    """Whether it is at the head of its line, or of its group."""
    if record.extra is not None and record.extra.group is not None:
        return queue.groups[record.extra.group].waiting[0] is record
    returned, lane = queue.returned.get(record.priority), queue.lanes[record.priority]
    return bool(returned and returned[0] is record) or bool(lane and lane[0] is record)


# -- joining -----------------------------------------------------------------------------------


def join(queue: Queue, record: Record) -> None:
    """In at the end of the line, or of its group's."""
    if record.extra is not None and record.extra.group is not None:
        group = queue.groups.setdefault(record.extra.group, Group())
        _wait_in_group(queue, group, record)
        line_up(queue, group)
        return
    stand_last(queue, record)


def give_back(queue: Queue, record: Record, *, to_front: bool = False) -> None:
    """Into the line once more: into its place in its group, at the end, or as asked."""
    if record.extra is not None and record.extra.group is not None:
        _wait_in_group(queue, queue.groups[record.extra.group], record)
        unhold(queue, record)
    elif queue.settings.redelivery == "original":
        line = queue.returned.setdefault(record.priority, deque())
        _reposition(queue, record, None)
        insert(line, record)
        queue.mask |= 1 << record.priority
    elif to_front:
        stand_first(queue, record)
    else:
        stand_last(queue, record)


def _wait_in_group(queue: Queue, group: Group, record: Record) -> None:
    queue.strays[record.key] = record
    insert(group.waiting, record)
    queue.grouped += 1


def stand_last(queue: Queue, record: Record) -> None:
    """At the end of its lane."""
    lane = queue.lanes[record.priority]
    _reposition(queue, record, _behind(lane, record))
    lane.append(record)
    queue.mask |= 1 << record.priority


def stand_first(queue: Queue, record: Record) -> None:
    """At the head of its lane."""
    lane = queue.lanes[record.priority]
    head = standing(lane[0]) if lane else None
    inverted = head is not None and _natural(record) >= head
    _reposition(queue, record, (head[0], head[1] - 1) if head and inverted else None)
    lane.appendleft(record)
    queue.mask |= 1 << record.priority


def _natural(record: Record) -> Position:
    """Where it stands if nothing is in the way: before what is sent at the time of its place."""
    extra = record.extra
    return (extra.place - 1, 1) if extra is not None and extra.place else (record.key, 0)


def _behind(lane: deque[Any], record: Record) -> Position | None:
    """Where it has to stand at the end of a lane; None if that is where it stands by itself."""
    last = standing(lane[-1]) if lane else (0, 0)
    return None if _natural(record) > last else (last[0], last[1] + 1)


def _reposition(queue: Queue, record: Record, position: Position | None) -> None:
    extra = record.extra
    if position is not None or (extra is not None and extra.position is not None):
        change(record, position=position)
        extra = record.extra
    if position is not None or (extra is not None and extra.place):
        queue.strays[record.key] = record


def insert(line: deque[Record], record: Record) -> None:
    """Into a line sorted by place; what expires in order is added in order."""
    if line and place(record) < place(line[-1]):
        insort(line, record, key=place)
    else:
        line.append(record)


def line_up(queue: Queue, group: Group) -> None:
    """A group with something to deliver stands at the end of the line: each has its turn."""
    if group.waiting and group.held == 0 and group.lane == NO_LANE:
        group.lane = group.waiting[0].priority
        lane = queue.lanes[group.lane]
        first = group.waiting[0]
        group.position = _behind(lane, first) or _natural(first)
        lane.append(group)
        queue.lined_up += 1
        queue.mask |= 1 << group.lane


def sort_out(queue: Queue) -> None:
    """Let everyone stand in order, and find the strays, whatever was there before."""
    queue.strays = {}
    for lane in queue.lanes.values():
        last = (0, 0)
        for item in lane:
            following = (last[0], last[1] + 1)
            if isinstance(item, Group):
                natural = _natural(item.waiting[0])
                item.position = natural if natural > last else following
            elif standing(item) <= last:  # as older versions left it
                _reposition(queue, item, following)
            elif item.extra is not None and (item.extra.place or item.extra.position):
                queue.strays[item.key] = item
            last = standing(item)
    for group in queue.groups.values():
        queue.strays.update((record.key, record) for record in group.waiting)
    for line in queue.returned.values():
        queue.strays.update((r.key, r) for r in line if r.extra is not None and r.extra.place)


# -- leaving -----------------------------------------------------------------------------------


def take_from_lane(queue: Queue, priority: int, leases: Sequence[Lease]) -> None:
    """Out of the only lane that has messages, and these are plain: the usual case."""
    lane = queue.lanes[priority]
    assert lane[0] is leases[0].record, "only the head of a line is leased"
    if len(leases) == len(lane):
        lane.clear()
        queue.mask = 0
    else:
        for _ in leases:
            lane.popleft()
    if queue.strays:
        for lease in leases:
            queue.strays.pop(lease.record.key, None)


def take(queue: Queue, record: Record, *, held: int) -> None:
    """Out of the line, at whose head it is; its group stays in line unless it is held."""
    queue.strays.pop(record.key, None)
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


def hold(queue: Queue, record: Record) -> None:
    """One message more for which its group must wait."""
    if record.extra is not None and record.extra.group is not None:
        group = queue.groups.setdefault(record.extra.group, Group())
        group.held += 1
        if group.lane != NO_LANE:
            _leave_lane(queue, group)


def unhold(queue: Queue, record: Record) -> None:
    """One message fewer for which its group must wait."""
    if record.extra is not None and record.extra.group is not None:
        group = queue.groups[record.extra.group]
        group.held -= 1
        line_up(queue, group)
        _drop_if_done(queue, group, record)


def _leave_lane(queue: Queue, group: Group) -> None:
    priority, group.lane = group.lane, NO_LANE
    lane = queue.lanes[priority]
    del lane[_search(lane, group.position, standing)]
    queue.lined_up -= 1
    _clear_mask(queue, priority)


def _drop_if_done(queue: Queue, group: Group, record: Record) -> None:
    if not group.waiting and not group.held:
        assert record.extra is not None
        del queue.groups[record.extra.group or ""]


def _clear_mask(queue: Queue, lane: int) -> None:
    if not queue.lanes[lane] and lane not in queue.returned:
        queue.mask &= ~(1 << lane)


def remove(queue: Queue, keys: Iterable[int]) -> None:
    """Out of the line, wherever they stand in it; keys that are not in line are passed over."""
    plain: list[Record] = []
    for record in (find(queue, key) for key in keys):
        if record is not None and record.extra is not None and record.extra.group is not None:
            _remove_from_group(queue, queue.groups[record.extra.group], record)
        elif record is not None:
            plain.append(record)
    by_line: dict[tuple[bool, int], list[int]] = {}
    for record in plain:  # a group that left its lane moved those behind it
        queue.strays.pop(record.key, None)
        at = _at_place(queue, record)
        is_back = at is not None
        if at is None:
            lane = queue.lanes[record.priority]
            at = _search(lane, standing(record), standing)
            assert lane[at] is record, "a lane is sorted"
        by_line.setdefault((is_back, record.priority), []).append(at)
    for (is_back, priority), places in by_line.items():
        _delete_at(queue.returned[priority] if is_back else queue.lanes[priority], places)
        if is_back and not queue.returned[priority]:
            del queue.returned[priority]
        _clear_mask(queue, priority)


def _at_place(queue: Queue, record: Record) -> int | None:
    """Where it is among those that took their old place again; None if it is not."""
    line = queue.returned.get(record.priority)
    at = _search(line, place(record), place) if line else 0
    return at if line and at < len(line) and line[at] is record else None


def _remove_from_group(queue: Queue, group: Group, record: Record) -> None:
    del queue.strays[record.key]
    del group.waiting[_search(group.waiting, place(record), place)]
    queue.grouped -= 1
    if not group.waiting and group.lane != NO_LANE:
        _leave_lane(queue, group)
    _drop_if_done(queue, group, record)


def _delete_at(line: deque[Any], places: list[int]) -> None:
    """Delete these places. The line is turned, in C, past each of them and back again once."""
    turned = 0
    for gone, at in enumerate(sorted(places)):
        step = at - gone - turned
        line.rotate(-step)
        turned += step
        line.popleft()
    line.rotate(turned)
