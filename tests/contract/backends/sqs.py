"""The contract's backends on a server that speaks SQS's protocol, by boto3 and by aiobotocore.

What SQS itself can't do is declared here. A server that can do more takes it out of the list.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Protocol

from pillarbox.clock import Clock
from pillarbox.core.sqs_limits import DELAY_SECONDS_MAX, WAIT_SECONDS_MAX
from pillarbox.mailbox.protocol import Mailbox
from pillarbox.mailbox.sqs import AsyncSQSMailbox, SQSMailbox
from pillarbox.testing.contract.as_sync import EventLoopThread, SyncMailbox
from pillarbox.testing.contract.backend import Bounds, Capability, MailboxClassBackend

_LOOK_SECONDS = 0.005  # between two looks at how many are parked

SQS_CANNOT: Mapping[Capability, str] = {
    Capability.PRIORITY: "SQS has no priorities; `priority` is sent as an attribute",
    Capability.FIFO_ORDER: "a standard queue is best-effort; a .fifo queue keeps order by group",
    Capability.ORIGINAL_PLACE: "SQS decides where a redelivered message goes",
    Capability.TAIL: "a redelivered message precedes what was sent while it was in flight",
    Capability.FULL_BATCH: "a short poll queries only some of the SQS servers",
    Capability.EXACT_COUNT: "SQS counts are approximate, and up to a minute old",
    Capability.OLDEST_AGE: "SQS reports it to CloudWatch only",
    Capability.PURGE_AT_WILL: "SQS allows one purge in 60 seconds, and takes up to 60 to do it",
    Capability.PURGE_TELLS_HOLDERS: "SQS accepts the deletion of a message that is gone already",
    Capability.PEEK: "SQS has no way to read a message but to receive it",
    Capability.DELETE_BY_ID: "SQS deletes by receipt handle only",
    Capability.CAPACITY: "an SQS queue has no maximum size",
    Capability.SUBSECOND_TIMES: "SQS has whole seconds only; fractions are rounded up",
    Capability.LONG_DELAY: "the maximum delay of SQS is 15 minutes",
    Capability.RELEASE_UNCOUNTED: "SQS counts every receive",
    Capability.REJECT: "SQS dead-letters a message only after its last delivery; until then it is "
    "returned to the queue",
    Capability.DEAD_AT_ONCE: "SQS moves a message on the receive after its last delivery",
    Capability.DEAD_LETTER_HISTORY: "SQS records the source queue only, not the reason or the time",
    Capability.REDRIVE_KEEPS_ID: "SQS gives a redriven message a new id",
    Capability.GROUPS: "only .fifo queues have ordered groups",
    Capability.FAIR: "standard queues are fair by themselves, and mailboxes send no tenants",
    Capability.DEDUPLICATION: "only .fifo queues deduplicate",
    Capability.FIRST_COME_FIRST_SERVED: "SQS serves waiting receives in any order",
    Capability.HANG_UP: "SQS may deliver a message to a client that has disconnected",
    Capability.TIME_TRAVEL: "Amazon's servers run on real time",
}


_BROKER_CAN = frozenset(
    (
        Capability.PRIORITY,
        Capability.FIFO_ORDER,
        Capability.FULL_BATCH,
        Capability.EXACT_COUNT,
        Capability.REDRIVE_KEEPS_ID,
        Capability.FIRST_COME_FIRST_SERVED,
        Capability.HANG_UP,
    )
)

BROKER_CANNOT: Mapping[Capability, str] = {  # by SQS's protocol; `BrokerMailbox` can do more
    **{what: why for what, why in SQS_CANNOT.items() if what not in _BROKER_CAN},
    Capability.PURGE_AT_WILL: "it purges like SQS, unless purge_interval_seconds = 0",
    Capability.TIME_TRAVEL: "it runs on real time, unless a test passes another clock",
}


class Server(Protocol):
    """A running server whose queues are all forgotten between two cases."""

    endpoint: str
    clock: Clock | None  # the server's, if a test can move it

    def reset(self) -> None:
        """Forget every queue."""

    def pass_time(self, seconds: float) -> None:
        """At least this much time passes, for the server and for `clock`."""

    def parked(self, queue: str) -> int:
        """How many receives wait at this queue."""


class SQSBackend(MailboxClassBackend):
    """`SQSMailbox` on a server; all that SQS can do, and no more, is asked of it."""

    name = "SQS"
    cannot = SQS_CANNOT
    bounds = Bounds(
        delay_seconds_max=DELAY_SECONDS_MAX,
        wait_seconds_max=WAIT_SECONDS_MAX,
        attribute_bytes=len("Pillarbox.Attributes" + "String" + '{"":""}'),
    )
    patience_seconds = 30
    crowd_messages = 25
    mailbox_class: Any = SQSMailbox

    def __init__(self, server: Server, loop: EventLoopThread | None = None) -> None:
        super().__init__(loop, endpoint=server.endpoint, clock=server.clock)
        self.server = server

    def open(
        self, body_type: Any = Any, *, name: str | None = None, **options: Any
    ) -> Mailbox[Any]:
        return super().open(body_type, name=name, **{"create": True, **options})

    def pass_time(self, seconds: float) -> None:
        self.server.pass_time(seconds)

    def wait_until_parked(self, mailbox: Mailbox[Any], count: int = 1) -> None:
        until = time.monotonic() + self.patience_seconds
        while (parked := self.server.parked(mailbox.name)) < count:
            assert time.monotonic() < until, f"{parked} of {count} receives are parked"
            time.sleep(_LOOK_SECONDS)

    def close(self) -> None:
        super().close()
        if self._opened:
            self.server.reset()


class AsyncSQSBackend(SQSBackend):
    """`AsyncSQSMailbox`, driven from threads through an event loop."""

    name = "async SQS"
    mailbox_class = AsyncSQSMailbox


def hold_client(server: Server, loop: EventLoopThread) -> Mailbox[Any]:
    """A mailbox that keeps the client of `AsyncSQSBackend` open from case to case."""
    mailbox: AsyncSQSMailbox[Any] = AsyncSQSMailbox("held", create=True, endpoint=server.endpoint)
    loop.call(mailbox.open())
    return SyncMailbox(mailbox, loop)
