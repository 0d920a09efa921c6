"""Receives that wait until there is something: one parked poll for both protocols."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pillarbox.broker.consumers import Consumer
from pillarbox.core.queue import Lease
from pillarbox.mailbox.waiters import TaskWaiter

if TYPE_CHECKING:
    from pillarbox.broker.server import Broker
    from pillarbox.mailbox.queue_session import QueueSession


async def poll(
    broker: Broker,
    session: QueueSession,
    consumer: Consumer,
    count: int,
    timeout_ns: int,
    wait_ns: int,
) -> list[Lease]:
    """What becomes ready within `wait_ns`. A client that hangs up cancels this.

    No task polls: whoever makes a message ready leases it for the poll that waits longest.
    """
    clock = session.store.clock
    waiter = TaskWaiter(broker, count, timeout_ns)
    cancel_alarm = clock.call_at(clock.now() + wait_ns, waiter.finish, broker.loop)
    broker.metrics.parked += 1
    consumer.waiting += 1
    try:
        if count:
            session.enter(waiter)
        await waiter.done
        leases = session.leave(waiter)
        consumer.hold(leases)
        return leases
    except BaseException:  # nobody will see what it was given
        session.give_up(waiter)
        raise
    finally:
        cancel_alarm()
        broker.metrics.parked -= 1
        consumer.waiting -= 1


async def read_bodies(
    session: QueueSession, leases: Sequence[Lease], most_bytes: int | None = None
) -> list[bytes | None]:
    """`bodies` of these messages; if they are on disk, others go on meanwhile."""
    records = [lease.record for lease in leases]
    try:
        return session.bodies(records, wait=False, most_bytes=most_bytes)
    except BlockingIOError:
        return await asyncio.to_thread(session.bodies, records, most_bytes=most_bytes)


def give_back(session: QueueSession, leases: Sequence[Lease]) -> None:
    """The client hung up before it could have read these: to the front again, uncounted."""
    if leases:
        session.release(leases[::-1], to_front=True)
