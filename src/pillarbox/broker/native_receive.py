"""The Receive command of the private protocol, with long polling.

Messages that a client did not get because it disconnected return to the front of the queue
without counting as a delivery.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from pillarbox.broker.consumers import Consumer
from pillarbox.broker.errors import SqsError
from pillarbox.broker.http import Answer, Response
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

HEADERS = {"Content-Type": "application/msgpack"}
MICROSECOND_NS = 1_000
LARGE_BATCH = 100  # messages; larger batches are handled in slices
AT_ONCE_MAX = 50  # messages per slice of a large batch


def response(results: Sequence[wire.Result]) -> Response:
    return Response(200, wire.encode(results), HEADERS)


class NativeReceive:
    """Answers the command `Receive`."""

    def __init__(
        self,
        broker: Broker,
        recent_answers: RecentAnswers,
        failed: Callable[[MailboxError | SqsError], wire.Failed],
    ) -> None:
        self._broker = broker
        self._recent_answers = recent_answers
        self._failed = failed

    def answer(
        self, asked: wire.Request, command: wire.Receive, session: QueueSession, consumer: Consumer
    ) -> Answer:
        leases = self._lease(command, session, consumer, 0)
        if not leases and command.wait_us and not self._broker.closed:
            return self._wait(asked, command, session, consumer)
        return self._delivery(asked, command, session, leases)

    def _lease(
        self, command: wire.Receive, session: QueueSession, consumer: Consumer, have: int
    ) -> list[Lease]:
        """Lease all requested messages, or the first slice of a large batch."""
        count = _at_once(command.count - have)
        queue = self._broker.local.get(session.queue.name)
        timeout_ns = command.timeout_us * MICROSECOND_NS
        leases = list(lease_fresh(self._broker, queue, count, timeout_ns))
        consumer.hold(leases)
        return leases

    async def _wait(
        self, asked: wire.Request, command: wire.Receive, session: QueueSession, consumer: Consumer
    ) -> Response:
        count, timeout_ns = _at_once(command.count), command.timeout_us * MICROSECOND_NS
        wait_ns = command.wait_us * MICROSECOND_NS
        try:
            leases = await poll(self._broker, session, consumer, count, timeout_ns, wait_ns)
            answer = self._delivery(asked, command, session, leases)
            return answer if isinstance(answer, Response) else await answer
        except MailboxError as error:  # the disk failed
            return response([self._failed(error)])

    def _delivery(
        self, asked: wire.Request, command: wire.Receive, session: QueueSession, leases: list[Lease]
    ) -> Answer:
        """Build the response from the leased messages, as many as fit."""
        if AT_ONCE_MAX == len(leases) < command.count:
            return self._read(asked, command, session, leases)
        try:
            records = [lease.record for lease in leases]
            bodies = session.bodies(records, wait=False, most_bytes=wire.ANSWER_BYTES_MAX)
        except BlockingIOError:
            return self._read(asked, command, session, leases)
        rendered, _ = self._render_some(session, leases, bodies, wire.ANSWER_BYTES_MAX)
        return self._delivered(asked, session, leases[: len(rendered)], rendered)

    async def _read(
        self, asked: wire.Request, command: wire.Receive, session: QueueSession, some: list[Lease]
    ) -> Response:
        """Build a large response, or one whose bodies are on disk, with pauses for others."""
        room = wire.ANSWER_BYTES_MAX
        leases: list[Lease] = []
        rendered: list[wire.Delivery] = []
        pauses = Pauses(self._broker)
        try:
            while some:
                leases += some
                bodies = await read_bodies(session, some, room)
                told, room = self._render_some(session, some, bodies, room)
                rendered += told
                del leases[len(rendered) :]
                if len(told) < len(some) or len(rendered) == command.count:
                    break
                await pauses.pause()
                some = self._lease(command, session, leases[0].holder, len(rendered))
        except MailboxError as error:
            self._unsent(asked, session, leases)
            return response([self._failed(error)])
        except BaseException:  # the client disconnected
            self._unsent(asked, session, leases)
            raise
        return self._delivered(asked, session, leases, rendered)

    def _render_some(
        self, session: QueueSession, leases: list[Lease], bodies: Sequence[bytes | None], room: int
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
            rendered.append(self.render(session, lease, body))
        give_back(session, leases[len(rendered) :])
        self._broker.metrics.delivered(leases[: len(rendered)])
        return rendered, room

    def _delivered(
        self,
        asked: wire.Request,
        session: QueueSession,
        leases: list[Lease],
        rendered: list[wire.Delivery],
    ) -> Response:
        answer = response([wire.Delivered(rendered)])
        if leases:
            answer.unsent = lambda: self._unsent(asked, session, leases)
            self._recent_answers.keep(asked, answer.body)
        return answer

    def _unsent(self, asked: wire.Request, session: QueueSession, leases: list[Lease]) -> None:
        self._recent_answers.forget(asked)
        give_back(session, leases)

    def render(self, session: QueueSession, lease: Lease, body: bytes | None) -> wire.Delivery:
        """Return a message in the form of the private protocol."""
        record, extra, store = lease.record, lease.extra, self._broker.store
        epoch, noted = store.clock.epoch_ns, record.attributes
        died = None
        if extra is not None and extra.death is not None:
            death = extra.death
            attempts = [
                (a.leased_at + epoch, a.ended_at + epoch, a.outcome) for a in extra.attempts
            ]
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
