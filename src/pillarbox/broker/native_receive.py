"""The Receive command of the private protocol, with long polling.

Messages that a client did not get because it disconnected return to the front of the queue
without counting as a delivery.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from pillarbox.broker.consumers import Consumer
from pillarbox.broker.errors import SqsError
from pillarbox.broker.http import Answer, Response
from pillarbox.broker.native_protocol import response
from pillarbox.broker.parked_polls import give_back, poll, read_bodies
from pillarbox.broker.pauses import Pauses
from pillarbox.broker.recent_answers import RecentAnswers
from pillarbox.broker.retention import lease_fresh
from pillarbox.broker.translation import group_of
from pillarbox.core.errors import MailboxError
from pillarbox.core.queue import Lease
from pillarbox.mailbox.broker import wire
from pillarbox.mailbox.queue_session import QueueSession

if TYPE_CHECKING:
    from pillarbox.broker.server import Broker

MICROSECOND_NS = 1_000
LARGE_BATCH = 100  # messages; larger batches are handled in slices
AT_ONCE_MAX = 50  # messages per slice of a large batch


class NativeReceive(Struct, eq=False):
    """One `Receive` command, from the first lease to the response."""

    broker: Broker
    recent_answers: RecentAnswers
    failed: Callable[[MailboxError | SqsError], wire.Failed]
    asked: wire.Request
    command: wire.Receive
    session: QueueSession
    consumer: Consumer

    def answer(self) -> Answer:
        leases = self._lease(self.command.count)
        if not leases and self.command.wait_us and not self.broker.closed:
            return self._later(leases)
        return self._now(leases) or self._later(leases)

    def _lease(self, count: int) -> list[Lease]:
        """Lease this many messages, or the first slice of a large batch."""
        queue = self.broker.local.get(self.session.queue.name)
        timeout_ns = self.command.timeout_us * MICROSECOND_NS
        leases = list(lease_fresh(self.broker, queue, _at_once(count), timeout_ns))
        self.consumer.hold(leases)
        return leases

    def _now(self, leases: list[Lease]) -> Response | None:
        """Build the response at once; return None if it is large, or bodies are on disk."""
        if AT_ONCE_MAX == len(leases) < self.command.count:
            return None
        try:
            records = [lease.record for lease in leases]
            bodies = self.session.bodies(records, wait=False, most_bytes=wire.ANSWER_BYTES_MAX)
        except BlockingIOError:
            return None
        rendered, _ = self._render_some(leases, bodies, wire.ANSWER_BYTES_MAX)
        return self._delivered(leases[: len(rendered)], rendered)

    async def _later(self, leases: list[Lease]) -> Response:
        """Wait for messages if there are none, and for their bodies."""
        command = self.command
        count, timeout_ns = _at_once(command.count), command.timeout_us * MICROSECOND_NS
        wait_ns = command.wait_us * MICROSECOND_NS
        try:
            if not leases:
                holder = self.consumer
                leases = await poll(self.broker, self.session, holder, count, timeout_ns, wait_ns)
                if (answer := self._now(leases)) is not None:
                    return answer
            return await self._read(leases)
        except (MailboxError, SqsError) as error:  # the disk failed, or the queue was deleted
            return response([self.failed(error)])

    async def _read(self, some: list[Lease]) -> Response:
        """Build a large response, or one whose bodies are on disk, with pauses for others."""
        room = wire.ANSWER_BYTES_MAX
        leases: list[Lease] = []
        rendered: list[wire.Delivery] = []
        pauses = Pauses(self.broker)
        try:
            while some:
                leases += some
                bodies = await read_bodies(self.session, some, room)
                told, room = self._render_some(some, bodies, room)
                rendered += told
                del leases[len(rendered) :]
                if len(told) < len(some) or len(rendered) == self.command.count:
                    break
                await pauses.pause()
                some = self._lease(self.command.count - len(rendered))
        except BaseException:  # the disk failed, or the client disconnected
            self._unsent(leases)
            raise
        return self._delivered(leases, rendered)

    def _render_some(
        self, leases: list[Lease], bodies: Sequence[bytes | None], room: int
    ) -> tuple[list[wire.Delivery], int]:
        """Render the messages that fit into so many bytes (at least one), and return the rest.

        Also return how many bytes are left.
        """
        rendered: list[wire.Delivery] = []
        for lease, body in zip(leases, bodies, strict=False):
            size = len(body or b"")
            if size > room and (rendered or room < wire.ANSWER_BYTES_MAX):
                break
            room -= size
            rendered.append(render(self.session, lease, body))
        give_back(self.session, leases[len(rendered) :])
        self.broker.metrics.delivered(leases[: len(rendered)])
        return rendered, room

    def _delivered(self, leases: list[Lease], rendered: list[wire.Delivery]) -> Response:
        answer = response([wire.Delivered(rendered)])
        if leases:
            answer.unsent = lambda: self._unsent(leases)
            self.recent_answers.keep(self.asked, answer.body)
        return answer

    def _unsent(self, leases: list[Lease]) -> None:
        self.recent_answers.forget(self.asked)
        give_back(self.session, leases)


def render(session: QueueSession, lease: Lease, body: bytes | None) -> wire.Delivery:
    """Return a message in the form of the private protocol."""
    record, extra, store = lease.record, lease.extra, session.store
    epoch, noted = store.clock.epoch_ns, record.attributes
    died = None
    if extra is not None and extra.death is not None:
        death = extra.death
        attempts = [(a.leased_at + epoch, a.ended_at + epoch, a.outcome) for a in extra.attempts]
        died = wire.Died(death.source, death.reason, death.died_at + epoch, attempts)
    return wire.Delivery(
        store.message_id(record.key),
        store.handle(session.queue, lease) if lease.leased_at else "",
        body,
        lease.number,
        (record.key << 1) + epoch,
        record.priority,
        noted,
        group_of(extra.group if extra is not None else None, noted),
        died,
    )


def _at_once(count: int) -> int:
    """Return how many of these messages to lease in one step."""
    return count if count <= LARGE_BATCH else AT_ONCE_MAX
