"""A queue as one would explain it: one list of messages, searched from end to end.

Written from the contract, to judge the state machine by: no heaps, no lanes, no masks, and
nothing shared with `pillarbox.core`. Times are nanoseconds; `now` is always an argument.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

READY, SCHEDULED, IN_FLIGHT = "ready", "scheduled", "in flight"
NOISY_HELD_MIN, NOISY_SHARE = 2, 3  # the world makes it so for both sides


class Full(Exception):
    """The queue can't take that many more messages."""


@dataclass(eq=False)
class Message:
    key: int  # half the time of its sending, made unique
    body: Any
    priority: int = 0
    group: str | None = None
    deduplication: str | None = None
    state: str = READY
    deliveries: int = 0
    place: int = 0  # half the time at which it joined the line
    turn: int = 0  # those of a priority are delivered by turn; a group has one for all
    is_back: bool = False  # it took its old place again (redelivery="original")
    given_back: bool = False  # scheduled because of a nack with a delay
    due: int = 0
    lease: Lease | None = None
    releases: int = 0  # deliveries that its count leaves out: released, or before a redrive
    attempts: tuple[tuple[int, int, str], ...] = ()
    death: tuple[str, str, int, int] | None = None

    @property
    def held(self) -> bool:
        """While it is, the rest of its group waits."""
        return self.state == IN_FLIGHT or (self.state == SCHEDULED and self.given_back)


def standing(message: Message) -> tuple[int, int]:
    """Who joined earlier stands before; at the same time, the older one."""
    return (message.place, message.key)


@dataclass(eq=False)
class Lease:
    message: Message
    number: int
    leased_at: int
    deadline: int
    over: bool = False

    def is_live(self, now: int) -> bool:
        return not self.over and self.deadline > now


@dataclass(eq=False)
class NaiveQueue:
    name: str
    max_deliveries: int = 0
    dead_on_receive: bool = False
    redelivery: str = "tail"
    capacity: int | None = None
    deduplicate_by_group: bool = False
    deduplication_ns: int = 300 * 10**9
    fair: bool = False
    dead_letters: NaiveQueue | None = None
    messages: list[Message] = field(default_factory=list)
    known: dict[Any, tuple[int, int]] = field(default_factory=dict)  # id: first key, until
    turns: dict[str, tuple[int, int]] = field(default_factory=dict)  # group: priority, turn
    groups: list[str] = field(default_factory=list)  # those with something ready or held
    last_turn: int = 0
    first_turn: int = 0
    paused: bool = False

    # What can be asked

    def send(self, messages: list[Message], delay: int, now: int) -> list[int]:
        """The keys under which they were accepted: the first one's, for a duplicate."""
        fresh, keys, first = [], [], dict(self.known)
        for message in messages:
            name = self._duplicate_id(message)
            if name is not None and name in first and first[name][1] > now:
                keys.append(first[name][0])
                continue
            if name is not None:
                first[name] = (message.key, message.key * 2 + self.deduplication_ns)
            fresh.append(message)
            keys.append(message.key)
        if fresh and self.capacity is not None and len(self.messages) + len(fresh) > self.capacity:
            raise Full
        self.known = first
        for message in fresh:
            message.place = message.key
            if delay:
                message.state, message.due = SCHEDULED, now + delay
                self.messages.append(message)
            else:
                self._join(message)
        return keys

    def receive(self, count: int, timeout: int, now: int) -> list[Lease]:
        leases: list[Lease] = []
        if self.paused:
            return leases
        for message in self.line():
            if len(leases) == count:
                break
            if self._is_spent(message):
                self._die(message, f"delivered {message.deliveries} times", now)
                continue
            message.deliveries += 1
            message.lease = Lease(message, message.deliveries, now, now + timeout)
            self._hold(message)
            leases.append(message.lease)
        return leases

    def acknowledge(self, leases: list[Lease], now: int) -> list[bool]:
        return self._each(leases, now, self._delete)

    def nack(self, leases: list[Lease], delay: int, now: int) -> list[bool]:
        due = now + delay if delay else 0
        return self._each(leases, now, lambda m: self._fail(m, "nacked", now, due))

    def release(self, leases: list[Lease], to_front: bool, now: int) -> list[bool]:
        def release(message: Message) -> None:
            self._end(message)
            message.deliveries -= 1
            message.releases += 1
            self._give_back(message, to_front)

        return self._each(leases, now, release)

    def extend(self, leases: list[Lease], timeout: int, now: int) -> list[bool]:
        def extend(message: Message) -> None:
            message.lease.deadline = now + timeout  # type: ignore[union-attr]

        return self._each(leases, now, extend)

    def reject(self, leases: list[Lease], reason: str, now: int) -> list[bool]:
        def reject(message: Message) -> None:
            if self.dead_letters is not None:
                self._note(message, "rejected", now)
                self._die(message, reason, now)
            else:
                self._retry(message, "rejected", now, 0)

        return self._each(leases, now, reject)

    def purge(self) -> int:
        count = len(self.messages)
        for message in self.messages:
            if message.lease is not None:
                message.lease.over = True
        self.messages, self.known, self.turns, self.groups = [], {}, {}, []
        return count

    def remove(self, keys: Iterable[int]) -> int:
        """What is in flight or scheduled first, then what is in line; the oldest first."""
        found = sorted((m for m in self.messages if m.key in keys), key=lambda m: m.key)
        found.sort(key=lambda m: m.state == READY)
        for message in found:
            self._delete(message)
        return len(found)

    def redrive(self, keys: Iterable[int], target: NaiveQueue, now: int) -> int:
        """Those that took their old place again, the rest of the line, then the groups."""
        chosen = [message for message in self.waiting() if message.key in keys]
        grouped = [message for message in chosen if message.group is not None]
        plain = [message for message in chosen if message.group is None]
        found = sorted((m for m in plain if m.is_back), key=standing)
        found += [m for m in plain if not m.is_back]
        found += sorted(grouped, key=standing)
        for message in found:
            self._delete(message)
        for message in found:
            message.releases += message.deliveries  # the count starts anew, its handles may not
            message.deliveries, message.death, message.place = 0, None, now // 2
            target._join(message)
        return len(found)

    def settle(self, now: int) -> None:
        """What is due happens in the order of the times; the older message first."""
        due = [
            (m.due if m.state == SCHEDULED else m.lease.deadline, m.key, m)  # type: ignore[union-attr]
            for m in self.messages
            if m.state != READY
        ]
        for at, _, message in sorted(entry for entry in due if entry[0] <= now):
            if message.state == IN_FLIGHT:
                self._fail(message, "expired", at, 0)
            else:
                self._come_due(message, at)

    def reschedule(self, key: int, due: int) -> bool:
        found = [m for m in self.messages if m.key == key and m.state == SCHEDULED]
        for message in found:
            message.due = due
        return bool(found)

    def change_visibility(self, key: int, timeout: int, now: int) -> bool:
        """It can be received in `timeout`, whoever holds it; whether that is a change."""
        message = next((m for m in self.messages if m.key == key), None)
        if message is None or (message.state == READY and not timeout):
            return False
        if message.state == SCHEDULED:
            message.due = now + timeout
        elif message.state == READY:
            message.lease = Lease(message, message.deliveries, now, now + timeout)
            self._hold(message)
        elif timeout:
            message.lease.deadline = now + timeout  # type: ignore[union-attr]
        else:
            self._fail(message, "nacked", now, 0)
        return True

    def force(self, now: int) -> int:
        """Before their time, but in the order of their times; the older message first."""
        found = [m for m in self.messages if m.state == SCHEDULED]
        for message in sorted(found, key=lambda m: (m.due, m.key)):
            self._come_due(message, now)
        return len(found)

    # What can be seen

    def line(self) -> list[Message]:
        """What can be delivered now, in the order of delivery."""
        if self.fair:
            return self._fair_line()
        units = [
            (m.priority, m.turn, [m])
            for m in self.messages
            if m.state == READY and m.group is None and not m.is_back
        ]
        for name, (priority, turn) in self.turns.items():
            units.append((priority, turn, self._able_of(name)))
        units.sort(key=lambda unit: (-unit[0], unit[1]))
        for message in self._back():
            units.insert(self._place_among(units, message), (message.priority, -1, [message]))
        return [message for _, _, messages in units for message in messages]

    def waiting(self) -> list[Message]:
        """The line, then what is behind a held group."""
        return self.line() + self.blocked()

    def blocked(self) -> list[Message]:
        """What can't be delivered because its group is held."""
        if self.fair:
            return []
        found = []
        for name in self.groups:
            able = self._able_of(name) if name in self.turns else []
            found += [m for m in self._ready_of(name) if m not in able]
        return found

    def count(self, state: str) -> int:
        return sum(message.state == state for message in self.messages)

    def next_deadline(self) -> int | None:
        times = [m.due for m in self.messages if m.state == SCHEDULED]
        times += [m.lease.deadline for m in self.messages if m.state == IN_FLIGHT]  # type: ignore[union-attr]
        return min(times, default=None)

    def oldest(self, line: list[Message]) -> int | None:
        """The oldest of those first in a line: of each priority the new and those put back,
        and of each group that is held."""
        heads: dict[Any, Message] = {}
        if self.fair:
            for message in sorted(line, key=standing):
                heads.setdefault((message.priority, message.is_back), message)
            return min((message.key for message in heads.values()), default=None)
        for message in line:
            priority = message.priority if message.group is None else self.turns[message.group][0]
            heads.setdefault((priority, message.is_back), message)
        for message in self.blocked():
            if message.group not in self.turns:
                heads.setdefault((message.group, False), message)
        return min((message.key for message in heads.values()), default=None)

    # How it works

    def _each(self, leases: list[Lease], now: int, what: Any) -> list[bool]:
        """One step: who is live is settled before anything is done; nobody counts twice."""
        live = [
            lease.is_live(now) and not any(lease is other for other in leases[:at])
            for at, lease in enumerate(leases)
        ]
        for lease, answer in zip(leases, live, strict=True):
            if answer:
                what(lease.message)
        return live

    def _fail(self, message: Message, outcome: str, at: int, due: int) -> None:
        most = self.max_deliveries
        if most and message.deliveries >= most and not self.dead_on_receive and self.dead_letters:
            self._note(message, outcome, at)
            self._die(message, f"{outcome} after {message.deliveries} deliveries", at)
        else:
            self._retry(message, outcome, at, due)

    def _retry(self, message: Message, outcome: str, at: int, due: int) -> None:
        if self.max_deliveries or self.dead_on_receive:
            self._note(message, outcome, at)
        self._end(message)
        if due:
            message.state, message.due, message.given_back = SCHEDULED, due, True
        else:
            self._give_back(message)

    def _come_due(self, message: Message, at: int) -> None:
        if message.given_back:
            self._give_back(message)
        else:
            self.messages.remove(message)
            message.place = at // 2
            self._join(message)

    def _is_spent(self, message: Message) -> bool:
        """As SQS has it: looked at when it would be delivered once more."""
        if not self.dead_on_receive or self.dead_letters is None or not self.max_deliveries:
            return False
        return message.deliveries >= self.max_deliveries

    def _note(self, message: Message, outcome: str, at: int) -> None:
        assert message.lease is not None
        message.attempts = (*message.attempts, (message.lease.leased_at, at, outcome))[-100:]

    def _die(self, message: Message, reason: str, at: int) -> None:
        assert self.dead_letters is not None
        self._delete(message)
        message.death, message.place = (self.name, reason, at, message.deliveries), at // 2
        self.dead_letters._join(message)

    def _end(self, message: Message) -> None:
        assert message.lease is not None
        message.lease.over = True
        message.lease = None

    def _delete(self, message: Message) -> None:
        if message.lease is not None:
            self._end(message)
        self.messages.remove(message)
        self._regroup(self.name_of(message))

    def _join(self, message: Message) -> None:
        """A message that is new here, at the end of the line."""
        self.messages.append(message)
        message.state, message.is_back, message.given_back = READY, False, False
        message.turn = self._next_turn()
        self._regroup(self.name_of(message))

    def _hold(self, message: Message) -> None:
        message.state, message.is_back = IN_FLIGHT, False
        self._regroup(self.name_of(message))

    def _give_back(self, message: Message, to_front: bool = False) -> None:
        message.state, message.given_back = READY, False
        if message.group is not None:
            self._regroup(self.name_of(message))
        elif self.redelivery == "original":
            message.is_back = True
        elif to_front:
            self.first_turn -= 1
            message.turn = self.first_turn
        else:
            message.turn = self._next_turn()

    def _next_turn(self) -> int:
        self.last_turn += 1
        return self.last_turn

    def _regroup(self, name: str | None) -> None:
        """A group with something to deliver has a turn; a new one is the last."""
        if name is None:
            return
        ready, held = self._ready_of(name), self._is_held(name)
        if not self._able_of(name):
            self.turns.pop(name, None)
        elif name not in self.turns:
            self.turns[name] = (ready[0].priority, self._next_turn())
        if not ready and not held and name in self.groups:
            self.groups.remove(name)
        elif (ready or held) and name not in self.groups:
            self.groups.append(name)

    def _ready_of(self, name: str) -> list[Message]:
        """A group's own order never changes: the place of each is the time it joined."""
        ready = [m for m in self.messages if self.name_of(m) == name and m.state == READY]
        return sorted(ready, key=standing)

    def _is_held(self, name: str) -> bool:
        return any(m.held for m in self.messages if self.name_of(m) == name)

    def _able_of(self, name: str) -> list[Message]:
        """All of a group, or what stands before those of it that are held."""
        held = [standing(m) for m in self.messages if self.name_of(m) == name and m.held]
        ready = self._ready_of(name)
        if self.fair or not held:
            return ready
        return [m for m in ready if self.redelivery == "original" and standing(m) < min(held)]

    def name_of(self, message: Message) -> str | None:
        """In a fair queue a tenant has a line for each priority."""
        if message.group is None or not self.fair:
            return message.group
        return f"{message.priority} {message.group}"

    def _fair_line(self) -> list[Message]:
        """By place, but a tenant that holds much of what is in flight comes after the others."""
        line: list[Message] = []
        ready = [m for m in self.messages if m.state == READY]
        for priority in sorted({m.priority for m in ready}, reverse=True):
            in_flight, noisy = self.count(IN_FLIGHT), []
            held = Counter(self.name_of(m) for m in self.messages if m.held)
            aside: set[str | None] = set()
            for message in sorted((m for m in ready if m.priority == priority), key=standing):
                name = self.name_of(message)
                much = held[name] >= NOISY_HELD_MIN and held[name] * NOISY_SHARE > in_flight
                if name is not None and (much or name in aside):
                    aside.add(name)
                    noisy.append(message)
                    continue
                line.append(message)
                if name is not None:
                    held[name] += 1
                    in_flight += 1
            line += noisy
        return line

    def _back(self) -> list[Message]:
        back = [m for m in self.messages if m.state == READY and m.is_back]
        return sorted(back, key=standing)

    @staticmethod
    def _place_among(units: list[tuple[int, int, list[Message]]], message: Message) -> int:
        """Before the first of its priority that joined later, else behind all of them."""
        for at, (priority, _, others) in enumerate(units):
            if priority < message.priority:
                return at
            if priority == message.priority and standing(message) < standing(others[0]):
                return at
        return len(units)

    def _duplicate_id(self, message: Message) -> Any:
        if message.deduplication is None:
            return None
        return (message.group if self.deduplicate_by_group else None, message.deduplication)
