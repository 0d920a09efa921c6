"""The attributes of a queue: their names, defaults and ranges, as SQS has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct

from pillarbox.broker.errors import SqsError, invalid_value
from pillarbox.core.limits import DELIVERIES_MAX

RANGES: Final = {
    "VisibilityTimeout": (0, 43_200),
    "MessageRetentionPeriod": (60, 1_209_600),
    "MaximumMessageSize": (1_024, 1_048_576),
    "DelaySeconds": (0, 900),
    "ReceiveMessageWaitTimeSeconds": (0, 20),
    "KmsDataKeyReusePeriodSeconds": (60, 86_400),
}
_CHOICES = {
    "SqsManagedSseEnabled": ("true", "false"),
    "ContentBasedDeduplication": ("true", "false"),
    "FifoQueue": ("true",),
    "DeduplicationScope": ("queue", "messageGroup"),
    "FifoThroughputLimit": ("perQueue", "perMessageGroupId"),
}
FIFO_ONLY: Final = frozenset(
    ("FifoQueue", "ContentBasedDeduplication", "DeduplicationScope", "FifoThroughputLimit")
)
_DOCUMENTS = frozenset(("Policy", "RedrivePolicy", "RedriveAllowPolicy"))
SETTABLE: Final = frozenset(RANGES) | frozenset(_CHOICES) | _DOCUMENTS | {"KmsMasterKeyId"}
COMPUTED: Final = (
    "QueueArn",
    "ApproximateNumberOfMessages",
    "ApproximateNumberOfMessagesNotVisible",
    "ApproximateNumberOfMessagesDelayed",
    "CreatedTimestamp",
    "LastModifiedTimestamp",
)
DEFAULTS: Final = {
    "VisibilityTimeout": "30",
    "MaximumMessageSize": "1048576",
    "MessageRetentionPeriod": "345600",
    "DelaySeconds": "0",
    "ReceiveMessageWaitTimeSeconds": "0",
    "SqsManagedSseEnabled": "true",
}
FIFO_DEFAULTS: Final = {
    "ContentBasedDeduplication": "false",
    "DeduplicationScope": "queue",
    "FifoThroughputLimit": "perQueue",
}


class RedrivePolicy(Struct):
    """Where dead letters go, and after how many receives."""

    deadLetterTargetArn: str
    maxReceiveCount: int | str

    @property
    def most(self) -> int:
        return int(self.maxReceiveCount)


class RedriveAllowPolicy(Struct):
    """Which queues may send their dead letters here."""

    redrivePermission: str
    sourceQueueArns: list[str] | None = None


def check(attributes: Mapping[str, str], *, fifo: bool) -> None:
    """Raise for an attribute that is unknown, or whose value is."""
    for name, value in attributes.items():
        if name not in SETTABLE or (name in FIFO_ONLY and not fifo):
            raise SqsError("InvalidAttributeName", f"Unknown Attribute {name}.")
        if name in RANGES:
            _check_number(name, value)
        elif name in _CHOICES and value.lower() not in map(str.lower, _CHOICES[name]):
            raise bad_value(name)
        elif name in _DOCUMENTS and value:
            _check_document(name, value)
    scope = attributes.get("DeduplicationScope", "messageGroup")
    if attributes.get("FifoThroughputLimit") == "perMessageGroupId" and scope != "messageGroup":
        raise bad_value("DeduplicationScope")


def _check_number(name: str, value: str) -> None:
    least, most = RANGES[name]
    if not (value.isascii() and value.isdecimal()) or not least <= int(value[:12]) <= most:
        raise bad_value(name)


def _check_document(name: str, value: str) -> None:
    try:
        document = msgspec.json.decode(value)
    except (msgspec.DecodeError, RecursionError):
        document = None
    if not isinstance(document, dict):
        if name == "Policy":
            raise bad_value(name)
        raise invalid_value(name, value, f"{name} is not valid JSON.")
    if name == "RedrivePolicy":
        redrive_policy(value)
    elif name == "RedriveAllowPolicy":
        allow_policy(value)


def bad_value(name: str) -> SqsError:
    return SqsError("InvalidAttributeValue", f"Invalid value for the parameter {name}.")


def redrive_policy(value: str) -> RedrivePolicy:
    """A redrive policy; its count may be a text, as many tools write it."""
    name = "RedrivePolicy"
    known = _document(value)
    for field in ("deadLetterTargetArn", "maxReceiveCount"):
        if field not in known:
            reason = f"Redrive policy does not contain mandatory attribute: {field}."
            raise invalid_value(name, value, reason)
    count = known["maxReceiveCount"]
    text = str(count) if type(count) in (int, str) else ""
    if not (text.isascii() and text.isdecimal()) or not 1 <= int(text[:9]) <= DELIVERIES_MAX:
        reason = f"Invalid value for maxReceiveCount: {count}, valid values are from 1 to 1000 both inclusive."  # fmt: skip  # noqa: E501
        raise invalid_value(name, value, reason)
    if not isinstance(known["deadLetterTargetArn"], str):
        raise invalid_value(name, value, "Invalid value for deadLetterTargetArn.")
    return RedrivePolicy(known["deadLetterTargetArn"], int(text))


def allow_policy(value: str) -> RedriveAllowPolicy:
    name = "RedriveAllowPolicy"
    try:
        policy = msgspec.json.decode(value, type=RedriveAllowPolicy)
    except msgspec.DecodeError:
        reason = "Redrive allow policy does not contain mandatory attribute: redrivePermission."
        raise invalid_value(name, value, reason) from None
    if policy.redrivePermission not in ("allowAll", "denyAll", "byQueue"):
        raise invalid_value(name, value, "redrivePermission must be allowAll, denyAll or byQueue.")
    sources = policy.sourceQueueArns
    if (policy.redrivePermission == "byQueue") != (sources is not None):
        raise invalid_value(
            name, value, "sourceQueueArns must be given for byQueue, and only then."
        )
    if sources is not None and not 1 <= len(sources) <= 10:
        raise invalid_value(name, value, "sourceQueueArns must have 1 to 10 entries.")
    return policy


def _document(value: str) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.json.decode(value)
    return found
