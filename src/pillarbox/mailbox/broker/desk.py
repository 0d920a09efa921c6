"""A queue behind a broker, with the face of `mailbox.desk.Desk`: each verb is one command.

`LocalMailbox` checks what callers give and reads what comes back, whatever desk it has; here
it is put on a desk far away. What `ask` does with a command decides how: for threads it waits
for the outcome, for asyncio it hands the command back to be awaited.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from pillarbox.clock import WallClock
from pillarbox.core import limits
from pillarbox.core.errors import InvalidParameterError
from pillarbox.core.queue import Extra
from pillarbox.mailbox.broker.channel import Channels, Parked, WokenError
from pillarbox.mailbox.broker.errors import QueueNotFoundError
from pillarbox.mailbox.broker.tries import ANSWER_SECONDS_MAX
from pillarbox.mailbox.broker.wire import (
    BATCH_MAX,
    Acknowledge,
    Command,
    Declare,
    Declared,
    Delivery,
    Extend,
    Nack,
    Peek,
    Purge,
    Receive,
    Reject,
    Release,
    Send,
    Tally,
    microseconds,
)

Ask = Callable[[Command], Any]

_PLAIN = Extra()


class RemoteStore:
    """What a mailbox asks of its store. Ids come from the broker ready-made."""

    def __init__(self) -> None:
        self.clock = WallClock()

    def message_id(self, message_id: str) -> str:
        return message_id

    def message_ids(self, ids: list[str]) -> list[str]:
        return ids

    def key_of(self, message_id: str) -> str:
        return message_id


class RemoteQueue:
    """What a mailbox asks of its queue."""

    def __init__(self, name: str) -> None:
        self.name = name


class RemoteDesk:
    """One queue of a broker."""

    def __init__(self, name: str, ask: Ask) -> None:
        self.queue = RemoteQueue(name)
        self.store = RemoteStore()
        self.dead: str | None = None  # the name of the dead-letter queue
        self.ask = ask

    def send(
        self,
        bodies: Sequence[bytes],
        priority: int = 0,
        delay: int = 0,
        attributes: dict[str, str] | None = None,
        extra: Callable[[], Extra] | None = None,
    ) -> Any:
        if len(bodies) > BATCH_MAX:
            raise _too_many("bodies", len(bodies))
        special = extra() if extra is not None else _PLAIN
        return self.ask(
            Send(
                list(bodies),
                priority,
                microseconds(delay),
                attributes,
                special.group,
                special.deduplication,
            )
        )

    def acknowledge(self, leases: Sequence[Any]) -> Any:
        return self.ask(Acknowledge(_handles(leases)))

    def nack(self, leases: Sequence[Any], delay: int) -> Any:
        return self.ask(Nack(_handles(leases), microseconds(delay)))

    def extend(self, leases: Sequence[Any], timeout: int) -> Any:
        return self.ask(Extend(_handles(leases), microseconds(timeout)))

    def release(self, leases: Sequence[Any]) -> Any:
        return self.ask(Release(_handles(leases)))

    def reject(self, leases: Sequence[Any], reason: str) -> Any:
        return self.ask(Reject(_handles(leases), reason))

    def purge(self) -> Any:
        return self.ask(Purge())

    def counts(self) -> Any:
        return self.ask(Tally())

    def look(self, state: Any, count: int) -> list[tuple[Delivery, int]]:
        return seen(self.ask(Peek(state, count)))

    def bodies(self, records: Sequence[Delivery]) -> list[bytes | None]:
        return [record.body for record in records]


class ThreadDesk(RemoteDesk):
    """A queue of a broker, for threads: whoever asks waits for the outcome."""

    def __init__(self, name: str, channels: Channels) -> None:
        super().__init__(name, self.outcome)
        self.channels = channels
        self.declaration = Declare()
        self.declared_at = ""  # the instance of the broker
        self._parked: set[Parked] = set()
        self._lock = threading.RLock()  # a signal handler may receive or close, too

    def outcome(self, command: Command, *, again: bool = True, **how: Any) -> Any:
        """What comes of this command; `again` if the queue may be made again for it."""
        name = self.queue.name
        try:
            return self.channels.ask(name, (command,), **how)[0].value
        except QueueNotFoundError as error:
            if not again:
                raise
            self.may_declare_again(error)
        self.declare(self.declaration)
        return self.channels.ask(name, (command,), **how)[0].value

    def declare(self, declaration: Declare) -> None:
        """Open the queue."""
        (declared,) = self.channels.ask(self.queue.name, (declaration,))
        self.channels.instance = declared.instance
        self.note(declaration, declared)

    def note(self, declaration: Declare, declared: Declared) -> None:
        """The queue is open, as the broker says."""
        if declaration.create:
            self.declaration = declaration
        self.declared_at = declared.instance
        self.dead = declared.dead_letters

    def may_declare_again(self, error: QueueNotFoundError) -> None:
        """A broker that was restarted may have forgotten; one that deleted it meant it."""
        if error.instance == self.declared_at:
            raise error

    def receive(self, owner: Any, count: int, timeout: int, wait: int) -> list[Delivery]:
        """Lease what is there; else wait until something is, or the time is up."""
        parked = Parked(owner)
        with self._lock:
            self._parked.add(parked)
        command = Receive(count, microseconds(timeout), microseconds(wait))
        seconds = wait / limits.SECOND_NS + ANSWER_SECONDS_MAX
        try:
            if owner.closed:  # asked only now: a signal handler may have closed it just before
                return []
            deliveries: list[Delivery] = self.outcome(command, seconds=seconds, parked=parked)
            return deliveries
        except WokenError:
            return []
        finally:
            with self._lock:
                self._parked.discard(parked)

    def wake_all(self, owner: object) -> None:
        """Every receive parked by this owner ends empty-handed."""
        with self._lock:
            for parked in list(self._parked):
                if parked.owner is owner:
                    parked.wake()


class TaskDesk(ThreadDesk):
    """A queue of a broker, for asyncio: a verb answers with its command, to be awaited."""

    def __init__(self, name: str, channels: Channels) -> None:
        super().__init__(name, channels)
        self.ask = lambda command: [command]
        self.rejected: deque[Command] = deque()  # bodies that don't decode, not yet told

    def reject(self, leases: Sequence[Any], reason: str) -> Any:
        noted = super().reject(leases, reason)
        self.rejected.extend(noted)
        return noted


def seen(deliveries: Sequence[Delivery]) -> list[tuple[Delivery, int]]:
    """Messages that were looked at, and how often each was delivered."""
    return [(delivery, delivery.number) for delivery in deliveries]


def _handles(leases: Sequence[Any]) -> list[str]:
    if len(leases) > BATCH_MAX:
        raise _too_many("messages", len(leases))
    return [lease.record.handle for lease in leases]


def _too_many(parameter: str, count: int) -> InvalidParameterError:
    return InvalidParameterError(parameter, f"{count:,}", f"at most {BATCH_MAX:,} in one batch")
