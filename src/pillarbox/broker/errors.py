"""SQS errors: one table from an error's name to its shape, query code and HTTP status.

Actions raise `SqsError(name, message)`; the protocols write it in their own form.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from pillarbox.core.errors import (
    InvalidParameterError,
    MailboxError,
    MailboxFullError,
    ReceiptHandleExpiredError,
    SerializationError,
)
from pillarbox.mailbox.broker.errors import QueueNotFoundError


class Kind(NamedTuple):
    """An error in both protocols."""

    shape: str  # the `__type` of the JSON protocol
    code: str  # in the query protocol, and in the header x-amzn-query-error
    status: int = 400


def _modelled(shape: str, code: str | None = None, status: int = 400) -> Kind:
    return Kind(f"com.amazonaws.sqs#{shape}", code or shape, status)


def _prefixed(shape: str, code: str | None = None, status: int = 400) -> Kind:
    return _modelled(shape, f"AWS.SimpleQueueService.{code or shape}", status)


def _general(shape: str, code: str | None = None, status: int = 400) -> Kind:
    return Kind(f"com.amazon.coral.service#{shape}", code or shape, status)


KINDS: Final = {
    "QueueDoesNotExist": _prefixed("QueueDoesNotExist", "NonExistentQueue"),
    "QueueDeletedRecently": _prefixed("QueueDeletedRecently"),
    "QueueNameExists": _modelled("QueueNameExists", "QueueAlreadyExists"),
    "PurgeQueueInProgress": _prefixed("PurgeQueueInProgress", status=403),
    "EmptyBatchRequest": _prefixed("EmptyBatchRequest"),
    "TooManyEntriesInBatchRequest": _prefixed("TooManyEntriesInBatchRequest"),
    "BatchEntryIdsNotDistinct": _prefixed("BatchEntryIdsNotDistinct"),
    "BatchRequestTooLong": _prefixed("BatchRequestTooLong"),
    "InvalidBatchEntryId": _prefixed("InvalidBatchEntryId"),
    "UnsupportedOperation": _prefixed("UnsupportedOperation"),
    "InvalidAttributeName": _modelled("InvalidAttributeName"),
    "InvalidAttributeValue": _modelled("InvalidAttributeValue"),
    "InvalidMessageContents": _modelled("InvalidMessageContents"),
    "InvalidIdFormat": _modelled("InvalidIdFormat"),
    "InvalidAddress": _modelled("InvalidAddress", status=404),
    "InvalidSecurity": _modelled("InvalidSecurity", status=403),
    "ReceiptHandleIsInvalid": _modelled("ReceiptHandleIsInvalid"),
    "ResourceNotFoundException": _modelled("ResourceNotFoundException", status=404),
    "OverLimit": _modelled("OverLimit", status=403),
    "RequestThrottled": _modelled("RequestThrottled", status=403),
    "InvalidParameterValue": _general("InvalidParameterValueException", "InvalidParameterValue"),
    "MissingParameter": _general("MissingRequiredParameterException", "MissingParameter"),
    "InvalidAction": _general("UnknownOperationException", "InvalidAction"),
    "UnknownOperationException": _general("UnknownOperationException", status=404),
    "SerializationException": _general("SerializationException", "MalformedInput"),
    "AccessDenied": _general("AccessDeniedException", "AccessDenied", 403),
    "MissingAuthenticationToken": _general(
        "MissingAuthenticationTokenException", "MissingAuthenticationToken", 403
    ),
    "IncompleteSignature": _general("IncompleteSignatureException", "IncompleteSignature"),
    "SignatureDoesNotMatch": _general("InvalidSignatureException", "SignatureDoesNotMatch", 403),
    "InvalidClientTokenId": _general("UnrecognizedClientException", "InvalidClientTokenId", 403),
    "InternalFailure": _general("InternalFailure", status=500),
    "ServiceUnavailable": _general("ServiceUnavailableException", "ServiceUnavailable", 503),
}


NO_ACCESS: Final = "The specified queue does not exist or you do not have access to it."


class SqsError(Exception):
    """An error response. `name` is a key of `KINDS`."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(message)
        self.name = name
        self.kind = KINDS[name]
        self.message = message

    @property
    def is_senders(self) -> bool:
        return self.kind.status < 500

    @property
    def query_error(self) -> str:
        """The value of the header x-amzn-query-error, which SDKs read before the body."""
        return f"{self.kind.code};{'Sender' if self.is_senders else 'Receiver'}"


def invalid(message: str) -> SqsError:
    return SqsError("InvalidParameterValue", message)


def invalid_value(parameter: str, value: object, reason: str) -> SqsError:
    """Return the usual error about a parameter that is out of range."""
    return invalid(f"Value {value} for parameter {parameter} is invalid. Reason: {reason}")


def missing(parameter: str) -> SqsError:
    return SqsError("MissingParameter", f"The request must contain the parameter {parameter}.")


def no_such_queue() -> SqsError:
    return SqsError("QueueDoesNotExist", "The specified queue does not exist.")


def no_access() -> SqsError:
    """Return the error for queues of other accounts; it does not reveal whether they exist."""
    return SqsError("QueueDoesNotExist", NO_ACCESS)


def invalid_handle(handle: str) -> SqsError:
    return SqsError(
        "ReceiptHandleIsInvalid",
        f'The input receipt handle "{handle}" is not a valid receipt handle.',
    )


def expired_handle(handle: str | None) -> SqsError:
    return invalid_value("ReceiptHandle", handle, "The receipt handle has expired.")


def not_available(handle: str | None) -> SqsError:
    return invalid_value(
        "ReceiptHandle",
        handle,
        "Message does not exist or is not available for visibility timeout change.",
    )


def beyond_limit(seconds: int) -> SqsError:
    return invalid_value(
        "VisibilityTimeout",
        seconds,
        "Total VisibilityTimeout for the message is beyond the limit [43200 seconds].",
    )


def too_many_in_flight(name: str) -> SqsError:
    return SqsError("OverLimit", f"Too many messages are in flight in queue {name}.")


def purge_in_progress(name: str, interval_seconds: int) -> SqsError:
    return SqsError(
        "PurgeQueueInProgress",
        f"Only one PurgeQueue operation on {name} is allowed every {interval_seconds} seconds.",
    )


def for_sqs_only() -> SqsError:
    return SqsError("AccessDenied", "A key with an account of its own is for SQS clients only.")


def of_mailbox(error: MailboxError) -> SqsError:
    """Return the SQS error for an error of the store."""
    if isinstance(error, InvalidParameterError | SerializationError):
        return invalid(str(error))
    if isinstance(error, ReceiptHandleExpiredError):
        return SqsError("ReceiptHandleIsInvalid", str(error))
    if isinstance(error, MailboxFullError):
        return SqsError("OverLimit", str(error))
    if isinstance(error, QueueNotFoundError):
        return SqsError("QueueDoesNotExist", str(error))
    return SqsError("ServiceUnavailable", str(error))
