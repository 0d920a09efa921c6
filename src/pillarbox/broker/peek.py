"""`GET /pillarbox/v1/{queue}/messages`: peek at messages without receiving them, as JSON.

For users of SQS, whose API can't. The response has the form of ReceiveMessage, without handles.
Peeking leases nothing and counts nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl

import msgspec

from pillarbox.broker.access import LOG_IN
from pillarbox.broker.errors import SqsError, for_sqs_only, invalid_value
from pillarbox.broker.http import NOT_FOR_OTHER_SITES, Answer, Request, Response
from pillarbox.broker.limits import decimal
from pillarbox.broker.queue import Delivery
from pillarbox.broker.sqs_message import Wanted, sqs_message
from pillarbox.core.queue import Lease
from pillarbox.mailbox.broker import wire

if TYPE_CHECKING:
    from pillarbox.broker.local_queue import LocalQueue
    from pillarbox.broker.server import Broker
    from pillarbox.mailbox.queue_session import QueueSession

_PEEK: Final = wire.Peek("ready", 1)  # needs the same right
_EVERYTHING: Final = Wanted(
    frozenset(
        ("SentTimestamp", "ApproximateReceiveCount", "MessageGroupId", "DeadLetterQueueSourceArn")
    ),
    frozenset(),
    (),
    everything=True,
)
_ENDING: Final = "/messages"
_STATES: Final = ("ready", "scheduled", "in_flight")
_MESSAGES_MAX: Final = 1_000
_BYTES_MAX: Final = 1 << 20  # of all bodies in one response; at least one is shown
_JSON: Final = {
    "Content-Type": "application/json",
    "Cache-Control": "no-store",
    **NOT_FOR_OTHER_SITES,
}
_ASK: Final = {**_JSON, **LOG_IN}


def answer_peek(broker: Broker, request: Request) -> Answer:
    """Answer `GET /pillarbox/v1/{queue}/messages`."""
    path = request.path.removeprefix("/pillarbox/v1/")
    if not path.endswith(_ENDING):
        return Response(404, b"GET /pillarbox/v1/{queue}/messages?state=ready&max=10\n")
    name = path.removesuffix(_ENDING)
    try:
        principal = broker.access.known(request)
        if principal.has_own_account:
            raise for_sqs_only()
        broker.rights.check_native(principal, _PEEK, name)
        queue = broker.local.get(name)
        state, most = _wanted(dict(parse_qsl(request.query)))
    except SqsError as error:
        broker.metrics.errors[error.kind.code] += 1
        body = {"__type": error.kind.shape, "message": error.message}
        headers = _ASK if error.name == "MissingAuthenticationToken" else _JSON
        return Response(error.kind.status, msgspec.json.encode(body), headers)
    return asyncio.to_thread(_show, broker, queue, state, most)  # bodies may be on disk


def _show(broker: Broker, queue: LocalQueue, state: str, most: int) -> Response:
    found = [
        _message(broker, queue, lease, body)
        for lease, body in peek_leases(queue.session, state, most, 0, _BYTES_MAX)
        if body is not None  # else lost to disk damage
    ]
    return Response(200, msgspec.json.encode({"Messages": found}), _JSON)


def _message(broker: Broker, queue: LocalQueue, lease: Lease, body: bytes) -> dict[str, Any]:
    key = lease.record.key
    delivery = Delivery(broker.store.message_id(key), "", key, lease, body)
    message = sqs_message(broker, queue, delivery, _EVERYTHING)
    del message["ReceiptHandle"]
    return message


def peek_leases(
    session: QueueSession, state: str, count: int, skip: int, room: int
) -> Iterator[tuple[Lease, bytes | None]]:
    """Yield messages as if received, each with an expired lease.

    Stop when the bodies exceed `room` bytes, but yield at least one.
    """
    seen = session.look(state, count, skip)
    bodies = session.bodies([record for record, _ in seen], most_bytes=room)
    for at, ((record, number), body) in enumerate(zip(seen, bodies, strict=False)):
        room -= len(body or b"")
        if room < 0 and at:
            return
        yield Lease(record, number, 0, 0, 0, record.extra), body


def _wanted(query: Mapping[str, str]) -> tuple[str, int]:
    state, most = query.get("state", "ready"), query.get("max", "10")
    if state not in _STATES:
        raise invalid_value("state", state, f"Must be one of {', '.join(_STATES)}.")
    count = decimal(most)
    if count is None or not 1 <= count <= _MESSAGES_MAX:
        raise invalid_value("max", most, f"Must be between 1 and {_MESSAGES_MAX}.")
    return state, count
