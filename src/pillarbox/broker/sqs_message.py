"""Renders a delivery as a message of ReceiveMessage, with the MD5 checksums that clients verify."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from pillarbox.broker import translation
from pillarbox.broker.queue import BrokerQueue, Delivery
from pillarbox.broker.shapes import Attribute

try:  # CPython's own takes half the time of OpenSSL's for short bodies
    from _md5 import md5  # type: ignore[import-not-found]
except ImportError:
    from hashlib import md5

if TYPE_CHECKING:
    from pillarbox.broker.server import Broker

SYSTEM_ATTRIBUTES = frozenset(
    (
        "All",
        "SenderId",
        "SentTimestamp",
        "ApproximateReceiveCount",
        "ApproximateFirstReceiveTimestamp",
        "SequenceNumber",
        "MessageDeduplicationId",
        "MessageGroupId",
        "AWSTraceHeader",
        "DeadLetterQueueSourceArn",
    )
)


class Wanted(NamedTuple):
    """The requested system and message attributes."""

    system: frozenset[str]
    names: frozenset[str]
    prefixes: tuple[str, ...]
    everything: bool

    def has(self, name: str) -> bool:
        return self.everything or name in self.names or name.startswith(self.prefixes)


NOTHING = Wanted(frozenset(), frozenset(), (), everything=False)


def sqs_message(
    broker: Broker, queue: BrokerQueue, delivery: Delivery, wanted: Wanted
) -> dict[str, Any]:
    record = delivery.lease.record
    text, attributes = translation.unpack(delivery.body, record.attributes, record.priority)
    message: dict[str, Any] = {
        "MessageId": delivery.message_id,
        "ReceiptHandle": delivery.handle,
        "MD5OfBody": md5_of(text.encode()),
        "Body": text,
    }
    if wanted is NOTHING:
        return message
    if wanted.system:
        message["Attributes"] = _system_attributes(broker, queue, delivery, wanted.system)
    chosen = {name: attributes[name] for name in sorted(attributes) if wanted.has(name)}
    if chosen:
        message["MD5OfMessageAttributes"] = md5_of_attributes(chosen)
        message["MessageAttributes"] = {n: translation.on_wire(chosen[n]) for n in chosen}
    return message


def _system_attributes(
    broker: Broker, queue: BrokerQueue, delivery: Delivery, wanted: frozenset[str]
) -> dict[str, str]:
    lease = delivery.lease
    record, extra = lease.record, lease.extra
    epoch_ns = queue.epoch_ns
    first = extra.attempts[0].leased_at if extra and extra.attempts else lease.leased_at
    noted = record.attributes or {}
    known: dict[str, str | None] = {
        "SenderId": noted.get(translation.SENDER_NOTE) or broker.names.account_of(queue.name),
        "SentTimestamp": _milliseconds((record.key << 1) + epoch_ns),
        "ApproximateReceiveCount": str(lease.number),
        "ApproximateFirstReceiveTimestamp": _milliseconds(first + epoch_ns),
        "AWSTraceHeader": noted.get(translation.TRACE_NOTE),
        "MessageGroupId": noted.get(translation.GROUP_NOTE),
    }
    if extra is not None:
        if extra.group is not None:
            known["MessageGroupId"] = extra.group
            if queue.fifo:
                known["SequenceNumber"] = sequence_number(delivery.sequence)
        known["MessageDeduplicationId"] = extra.deduplication
        if extra.death is not None:
            known["DeadLetterQueueSourceArn"] = broker.names.arn(extra.death.source)
            if extra.deduplication is not None:  # two dead letters may have the same one
                known["MessageDeduplicationId"] = delivery.message_id
    return {
        name: value
        for name, value in known.items()
        if value is not None and ("All" in wanted or name in wanted)
    }


def sequence_number(key: int) -> str:
    """Return 20 digits that do not begin with 0, as AWS does, so that no client drops one."""
    return str((1 << 64) + key)


def _milliseconds(nanoseconds: int) -> str:
    return str(nanoseconds // 1_000_000)


def md5_of(body: bytes) -> str:
    digest: str = md5(body, usedforsecurity=False).hexdigest()
    return digest


def md5_of_attributes(attributes: Mapping[str, Attribute]) -> str:
    """Hash attributes sorted by name: length-prefixed name, type, 1 (text) or 2 (bytes), value."""
    digest = md5(usedforsecurity=False)
    for name in sorted(attributes):
        attribute = attributes[name]
        binary = attribute.BinaryValue is not None
        value = attribute.BinaryValue if binary else (attribute.StringValue or "").encode()
        for part in (name.encode(), (attribute.DataType or "").encode()):
            digest.update(len(part).to_bytes(4, "big") + part)
        assert value is not None
        digest.update((b"\x02" if binary else b"\x01") + len(value).to_bytes(4, "big") + value)
    text: str = digest.hexdigest()
    return text
