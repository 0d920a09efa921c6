"""Every error a mailbox can raise, and what each means on the SQS wire.

MailboxError
├── InvalidParameterError        the call itself is wrong; nothing was changed
├── SerializationError           a body can't be turned into bytes, or back
├── ReceiptHandleExpiredError    the lease behind a receipt handle is over
├── RequestRejectedError         a worker dead-lettered the request that a client waits for
├── MailboxFullError             the mailbox holds as much as it may
├── MailboxClosedError           the mailbox was closed
├── ReentrantCallError           a signal handler interrupted the call that it needs
├── MailboxStorageError          the disk under the mailbox failed; it is read-only now
├── MailboxConnectionError       the server can't be reached; nothing was changed
└── UnknownOutcomeError          the answer was lost: it may have been done, or not
"""

from __future__ import annotations

from typing import ClassVar


class MailboxError(Exception):
    """Something went wrong with a mailbox."""

    sqs_code: ClassVar[str] = "InternalFailure"
    http_status: ClassVar[int] = 500
    retryable: ClassVar[bool] = False


class InvalidParameterError(MailboxError, ValueError):
    """A parameter is outside its allowed range; nothing was changed."""

    sqs_code = "InvalidParameterValue"
    http_status = 400

    def __init__(self, parameter: str, value: object, allowed: str) -> None:
        super().__init__(f"{parameter} must be {allowed}; got {_brief(value)}")
        self.parameter = parameter
        self.value = value
        self.allowed = allowed

    def __reduce__(self) -> tuple[type[InvalidParameterError], tuple[str, object, str]]:
        return type(self), (self.parameter, self.value, self.allowed)


class SerializationError(MailboxError):
    """A body can't be encoded as, or decoded into, the mailbox's body type."""

    sqs_code = "InvalidMessageContents"
    http_status = 400


class ReceiptHandleExpiredError(MailboxError):
    """The lease is over: it ran out, or the message was acknowledged or given back."""

    sqs_code = "ReceiptHandleIsInvalid"
    http_status = 400


class RequestRejectedError(MailboxError):
    """The request of a `RequestClient` was dead-lettered; `reason` says why."""

    http_status = 400

    def __init__(self, request_id: str, mailbox: str, reason: str) -> None:
        super().__init__(f"request {request_id} to mailbox {mailbox!r} was dead-lettered: {reason}")
        self.request_id = request_id
        self.mailbox = mailbox
        self.reason = reason

    def __reduce__(self) -> tuple[type[RequestRejectedError], tuple[str, str, str]]:
        return type(self), (self.request_id, self.mailbox, self.reason)


class MailboxFullError(MailboxError):
    """The mailbox holds as many messages as it may; receive some, or raise its capacity."""

    sqs_code = "OverLimit"
    http_status = 403
    retryable = True


class MailboxClosedError(MailboxError):
    """The mailbox was closed; open it again to use it."""

    sqs_code = "ServiceUnavailable"
    http_status = 503


class ReentrantCallError(MailboxError):
    """A signal handler needs what the call that it interrupted is using; nothing was changed.

    Set a flag in the handler, put the work on a `queue.SimpleQueue`, or hand it to a thread.
    """


class MailboxStorageError(MailboxError):
    """The disk under the mailbox failed, or what is on it can't be used."""


class MailboxConnectionError(MailboxError):
    """The server behind the mailbox can't be reached; nothing was changed."""

    sqs_code = "ServiceUnavailable"
    http_status = 503
    retryable = True


class UnknownOutcomeError(MailboxError):
    """The connection broke before the answer came: it may have been done, or not.

    Look (`stats`, `peek`) before you ask again, or send with a `deduplication_id`, which makes
    a repeated send harmless.
    """

    sqs_code = "ServiceUnavailable"
    http_status = 503


def _brief(value: object, length_max: int = 80) -> str:
    text = repr(value)
    return text if len(text) <= length_max else f"{text[:length_max]}... ({type(value).__name__})"
