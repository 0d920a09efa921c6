"""Long polls, for both protocols."""

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
    """Wait up to `wait_ns` for messages, and return their leases. Disconnecting cancels this.

    Nothing polls: the operation that makes a message ready leases it to the longest waiter.
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
    except BaseException:  # the client will not see its messages
        session.give_up(waiter)
        raise
    finally:
        cancel_alarm()
        broker.metrics.parked -= 1
        consumer.waiting -= 1


async def read_bodies(
    session: QueueSession, leases: Sequence[Lease], most_bytes: int | None = None
) -> list[bytes | None]:
    """Return the bodies of these messages; read them in a thread if they are on disk."""
    records = [lease.record for lease in leases]
    try:
        return session.bodies(records, wait=False, most_bytes=most_bytes)
    except BlockingIOError:
        return await asyncio.to_thread(session.bodies, records, most_bytes=most_bytes)


def give_back(session: QueueSession, leases: Sequence[Lease]) -> None:
    """Return messages that the client did not read to the front, without counting a delivery."""
    if leases:
        session.release(leases[::-1], to_front=True)
