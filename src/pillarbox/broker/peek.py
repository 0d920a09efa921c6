"""`GET /pillarbox/v1/{queue}/messages`: look at messages without receiving them, as JSON.

For users of SQS, whose API can't: the answer has the form of ReceiveMessage, without handles.
Nothing is leased, and nothing is counted.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl

import msgspec

from pillarbox.broker import translation
from pillarbox.broker.errors import SqsError, invalid_value
from pillarbox.broker.http import NOT_FOR_OTHER_SITES, Answer, Request, Response
from pillarbox.broker.md5 import md5_of
from pillarbox.core.queue import Record
from pillarbox.mailbox.broker import wire

if TYPE_CHECKING:
    from pillarbox.broker.server import Broker
    from pillarbox.mailbox.queue_session import QueueSession

_PEEK: Final = wire.Peek("ready", 1)  # it takes the same right
_ENDING: Final = "/messages"
_STATES: Final = ("ready", "scheduled", "in_flight")
_MESSAGES_MAX: Final = 1_000
_BYTES_MAX: Final = 1 << 20  # of bodies in one answer, and one body at the least
_JSON: Final = {
    "Content-Type": "application/json",
    "Cache-Control": "no-store",
    **NOT_FOR_OTHER_SITES,
}
_ASK: Final = {**_JSON, "WWW-Authenticate": 'Basic realm="pillarbox", charset="UTF-8"'}


class PeekHandler:
    """Shows what queues hold."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def handle(self, request: Request, path: str) -> Answer:
        """`path` is what follows the version: `{queue}/messages`."""
        if not path.endswith(_ENDING):
            return Response(404, b"GET /pillarbox/v1/{queue}/messages?state=ready&max=10\n")
        name = path.removesuffix(_ENDING)
        try:
            principal = self._broker.access.known(request, time.time())
            self._broker.rights.check_native(principal, _PEEK, name)
            session = self._broker.catalogue.get(name).session
            state, most = _wanted(dict(parse_qsl(request.query)))
        except SqsError as error:
            self._broker.metrics.errors[error.kind.code] += 1
            told = {"__type": error.kind.shape, "message": error.message}
            headers = _ASK if error.name == "MissingAuthenticationToken" else _JSON
            return Response(error.kind.status, msgspec.json.encode(told), headers)
        return asyncio.to_thread(self._show, session, state, most)  # bodies may be on disk

    def _show(self, session: QueueSession, state: str, most: int) -> Response:
        seen = session.look(state, most)
        found: list[dict[str, Any]] = []
        room = _BYTES_MAX
        for (record, count), body in zip(seen, session.bodies([r for r, _ in seen]), strict=True):
            room -= len(body or b"")
            if room < 0 and found:
                break
            if body is not None:  # else it was lost to damage of the disk
                found.append(self._told(record, count, body))
        return Response(200, msgspec.json.encode({"Messages": found}), _JSON)

    def _told(self, record: Record, count: int, body: bytes) -> dict[str, Any]:
        broker, extra = self._broker, record.extra
        text, attributes = translation.unpack(body, record.attributes, record.priority)
        sent = (record.key << 1) + broker.store.clock.epoch_ns
        system = {"SentTimestamp": str(sent // 1_000_000), "ApproximateReceiveCount": str(count)}
        group = translation.group_of(extra.group if extra is not None else None, record.attributes)
        if group is not None:
            system["MessageGroupId"] = group
        if extra is not None and extra.death is not None:
            system["DeadLetterQueueSourceArn"] = broker.catalogue.arn(extra.death.source)
        told = {
            "MessageId": broker.store.message_id(record.key),
            "Body": text,
            "MD5OfBody": md5_of(text.encode()),
            "Attributes": system,
        }
        noted = {name: translation.on_wire(attributes[name]) for name in sorted(attributes)}
        return {**told, "MessageAttributes": noted} if noted else told


def _wanted(query: Mapping[str, str]) -> tuple[str, int]:
    state, most = query.get("state", "ready"), query.get("max", "10")
    if state not in _STATES:
        raise invalid_value("state", state, f"Must be one of {', '.join(_STATES)}.")
    if not (most.isascii() and most.isdecimal()) or not 1 <= int(most[:9]) <= _MESSAGES_MAX:
        raise invalid_value("max", most, f"Must be between 1 and {_MESSAGES_MAX}.")
    return state, int(most)
