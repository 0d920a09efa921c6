"""SQS queue attributes: names, defaults and valid values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct

from pillarbox.broker.errors import SqsError, invalid_value
from pillarbox.broker.limits import decimal
from pillarbox.core import sqs_limits
from pillarbox.core.limits import DELIVERIES_MAX

RANGES: Final = {
    "VisibilityTimeout": (0, sqs_limits.VISIBILITY_SECONDS_MAX),
    "MessageRetentionPeriod": (60, sqs_limits.RETENTION_SECONDS_MAX),
    "MaximumMessageSize": (1_024, sqs_limits.MESSAGE_BYTES_MAX),
    "DelaySeconds": (0, sqs_limits.DELAY_SECONDS_MAX),
    "ReceiveMessageWaitTimeSeconds": (0, sqs_limits.WAIT_SECONDS_MAX),
    "KmsDataKeyReusePeriodSeconds": (60, 86_400),
}
_BOOLEANS: Final = frozenset(("SqsManagedSseEnabled", "ContentBasedDeduplication", "FifoQueue"))
_CHOICES = {
    "DeduplicationScope": ("queue", "messageGroup"),
    "FifoThroughputLimit": ("perQueue", "perMessageGroupId"),
}
FIFO_ONLY: Final = frozenset(
    ("FifoQueue", "ContentBasedDeduplication", "DeduplicationScope", "FifoThroughputLimit")
)
SETTABLE: Final = (
    frozenset(RANGES)
    | frozenset(_CHOICES)
    | _BOOLEANS
    | {
        "Policy",
        "RedrivePolicy",
        "RedriveAllowPolicy",
        "KmsMasterKeyId",
    }
)
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


SCOPE_BEFORE: Final = "scope_before"  # a queue's previous scope (by group?), and until when
SCOPE_DELAY_SECONDS: Final = 60
STATEMENTS_MAX: Final = 20  # of a policy
POLICY_BYTES_MAX: Final = 8_192
SOURCES_MAX: Final = 10  # of a redrive allow policy
_KMS: Final = {"KmsDataKeyReusePeriodSeconds": "300", "SqsManagedSseEnabled": "false"}
_POLICY = frozenset(("Version", "Id", "Statement"))
_STATEMENT = frozenset(
    (
        "Sid",
        "Effect",
        "Principal",
        "NotPrincipal",
        "Action",
        "NotAction",
        "Resource",
        "NotResource",
        "Condition",
    )
)
_VERSIONS = ("2008-10-17", "2012-10-17")
_ALLOW = "Amazon SQS can't create the redrive allow policy"


class RedrivePolicy(Struct):
    """Where dead letters go, and after how many receives."""

    deadLetterTargetArn: str
    maxReceiveCount: int


class RedriveAllowPolicy(Struct, forbid_unknown_fields=True):
    """Which queues may send their dead letters here."""

    redrivePermission: Literal["allowAll", "denyAll", "byQueue"]
    sourceQueueArns: list[str] | None = None


def with_defaults(given: Mapping[str, str], *, fifo: bool) -> dict[str, str]:
    """Return every settable attribute, with defaults for those that were not given."""
    kms = _KMS if given.get("KmsMasterKeyId") else {}
    special = {"FifoQueue": "true", **FIFO_DEFAULTS} if fifo else {}
    known = {**DEFAULTS, **special, **kms, **given}
    if not kms:
        known.pop("KmsDataKeyReusePeriodSeconds", None)  # kept, and shown once there is a key
    return {name: value for name, value in known.items() if value != ""}


def checked(attributes: Mapping[str, str], *, fifo: bool) -> dict[str, str]:
    """Return the attributes in the form that is stored; raise for an unknown name or value."""
    kept = dict(attributes)
    for name, value in attributes.items():
        if name in _CHOICES and not fifo:
            reason = f"You can specify the {name} only when FifoQueue is set to true."
            raise SqsError("InvalidAttributeName", reason)
        if name not in SETTABLE or (name in FIFO_ONLY and not fifo):
            raise unknown(name)
        if name in _BOOLEANS:
            kept[name] = value.lower()
            if name == "FifoQueue" and kept[name] == "false":
                raise unknown(name)
            if kept[name] not in ("true", "false"):
                raise bad_value(name)
        elif name in RANGES:
            kept[name] = _number(name, value)
        elif name in _CHOICES and value not in _CHOICES[name]:
            raise bad_value(name)
        elif name in _DOCUMENTS and value:
            _DOCUMENTS[name](value)
    if kept.get("RedrivePolicy"):
        kept["RedrivePolicy"] = msgspec.json.encode(redrive_policy(kept["RedrivePolicy"])).decode()
    return kept


def check_throughput(attributes: Mapping[str, str]) -> None:
    """Raise unless DeduplicationScope and FifoThroughputLimit go together."""
    by_group = attributes.get("DeduplicationScope") == "messageGroup"
    if attributes.get("FifoThroughputLimit") == "perMessageGroupId" and not by_group:
        reason = "To set FifoThroughputLimit to perMessageGroupId, the DeduplicationScope must be messageGroup."  # noqa: E501
        raise bad_value("FifoThroughputLimit", reason)


def check_encryption(attributes: Mapping[str, str]) -> None:
    managed = attributes.get("SqsManagedSseEnabled", "").lower() == "true"
    if managed and attributes.get("KmsMasterKeyId"):
        raise SqsError(
            "InvalidAttributeName",
            "You can use one type of server-side encryption (SSE) at one time. You can either "
            "enable KMS SSE or SQS SSE.",
        )


def merged(given: Mapping[str, str], changes: Mapping[str, str]) -> dict[str, str]:
    """Return the attributes after a change; an empty value deletes one."""
    found = {**given, **changes}
    if changes.get("KmsMasterKeyId") and "SqsManagedSseEnabled" not in changes:
        found["SqsManagedSseEnabled"] = "false"  # for good, even if the key is removed later
    check_encryption(found)
    check_throughput(found)
    return {name: value for name, value in found.items() if value != ""}


def by_group(notes: Mapping[str, Any], now_seconds: int) -> bool:
    """Whether deduplication is per message group (else per queue)."""
    before = notes.get(SCOPE_BEFORE)
    if before is not None and now_seconds < before[1]:
        return bool(before[0])
    found: bool = notes.get("attributes", {}).get("DeduplicationScope") == "messageGroup"
    return found


def with_scope(notes: dict[str, Any], old: Mapping[str, Any], now_seconds: int) -> dict[str, Any]:
    """Return a queue's new notes. As on AWS, a new DeduplicationScope takes effect later."""
    if "attributes" not in old:
        return notes
    was = by_group(old, now_seconds)
    if by_group({**notes, SCOPE_BEFORE: None}, now_seconds) == was:
        return {name: value for name, value in notes.items() if name != SCOPE_BEFORE}
    return {**notes, SCOPE_BEFORE: [was, now_seconds + SCOPE_DELAY_SECONDS]}


def unknown(name: str) -> SqsError:
    return SqsError("InvalidAttributeName", f"Unknown Attribute {name}.")


def bad_value(name: str, reason: str = "") -> SqsError:
    because = f" Reason: {reason}" if reason else ""
    return SqsError("InvalidAttributeValue", f"Invalid value for the parameter {name}.{because}")


def _number(name: str, value: str) -> str:
    """Return a number as it is stored, without leading zeros; raise if it is out of range."""
    number, (least, most) = decimal(value), RANGES[name]
    if number is None or not least <= number <= most:
        raise bad_value(name)
    return str(number)


def check_policy(value: str) -> None:
    """Raise if this is not a valid access policy; `policies` evaluates it."""
    if len(value.encode()) > POLICY_BYTES_MAX:
        raise bad_value("Policy", f"It has more than {POLICY_BYTES_MAX:,} bytes.")
    policy = _map(value)
    if policy is None or policy.keys() - _POLICY or policy.get("Version") not in _VERSIONS:
        raise bad_value("Policy")
    statements = policy.get("Statement")
    statements = statements if isinstance(statements, list) else [statements]
    if not all(isinstance(each, dict) and not each.keys() - _STATEMENT for each in statements):
        raise bad_value("Policy")
    if not statements:
        raise bad_value("Policy")
    if len(statements) > STATEMENTS_MAX:
        raise SqsError(
            "OverLimit",
            f"{len(statements)} statements were found in the submitted policy, max allowed is "
            f"{STATEMENTS_MAX}",
        )


def redrive_policy(value: str) -> RedrivePolicy:
    """Parse a redrive policy; maxReceiveCount may be a string, as many tools write it."""
    known = _map(value)
    if known is None:
        raise bad_value("RedrivePolicy", "Redrive policy is not a valid JSON map.")
    problem = _problem_of_redrive(known)
    if problem is not None:
        raise invalid_value("RedrivePolicy", value, problem)
    return RedrivePolicy(known["deadLetterTargetArn"], decimal(str(known["maxReceiveCount"])) or 0)


def _problem_of_redrive(known: dict[str, Any]) -> str | None:
    for field in ("maxReceiveCount", "deadLetterTargetArn"):
        if field not in known:
            return f"Redrive policy does not contain mandatory attribute: {field}."
    if len(known) > 2:
        return "Only following attributes are supported: [maxReceiveCount, deadLetterTargetArn]."
    count = known["maxReceiveCount"]
    number = decimal(str(count)) if type(count) in (int, str) else None
    if number is None or not 1 <= number <= DELIVERIES_MAX:
        return f"Invalid value for maxReceiveCount: {count}, valid values are from 1 to 1000 both inclusive."  # fmt: skip  # noqa: E501
    parts = str(known["deadLetterTargetArn"]).split(":")
    if len(parts) != 6 or parts[0] != "arn":
        return "Invalid value for deadLetterTargetArn."
    if parts[2] != "sqs":
        return "Only SQS queues are valid resources for deadLetterTargetArn."
    return None


def allow_policy(value: str) -> RedriveAllowPolicy:
    name = "RedriveAllowPolicy"
    try:
        policy = msgspec.json.decode(value, type=RedriveAllowPolicy)
    except (msgspec.DecodeError, RecursionError):
        raise bad_value(name, f"{_ALLOW}, as it\u2019s in an unsupported format.") from None
    sources = policy.sourceQueueArns
    if policy.redrivePermission == "byQueue" and not sources:
        reason = f"{_ALLOW}. When you specify the byQueue permission type, you must also specify one or more sourceQueueArns values."  # fmt: skip  # noqa: E501
        raise invalid_value(name, value, reason)
    if policy.redrivePermission != "byQueue" and sources is not None:
        reason = f"{_ALLOW}. To specify one or more source queue ARNs, you must set redrivePermission to byQueue."  # fmt: skip  # noqa: E501
        raise invalid_value(name, value, reason)
    if sources is not None and len(sources) > SOURCES_MAX:
        reason = f"{_ALLOW}. The maximum number of source queue ARNs you can specify is {SOURCES_MAX}."  # fmt: skip  # noqa: E501
        raise invalid_value(name, value, reason)
    return policy


def _map(value: str) -> dict[str, Any] | None:
    try:
        found = msgspec.json.decode(value)
    except (msgspec.DecodeError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


_DOCUMENTS: Final[dict[str, Callable[[str], object]]] = {
    "Policy": check_policy,
    "RedrivePolicy": redrive_policy,
    "RedriveAllowPolicy": allow_policy,
}
