"""Every error a mailbox can raise. `retryable` means that the same call may succeed later.

MailboxError
├── InvalidParameterError        the call itself is wrong; nothing was changed
├── SerializationError           a body can't be encoded or decoded
├── ReceiptHandleExpiredError    the lease of a receipt handle has ended
├── RequestRejectedError         a worker dead-lettered the request of a client
├── MailboxFullError             the mailbox or the disk is full
├── MailboxClosedError           the mailbox was closed
├── ReentrantCallError           a signal handler interrupted a call on the same mailbox
├── MailboxStorageError          the disk failed; the mailbox is read-only now
├── MailboxConnectionError       the server can't be reached; nothing was changed
└── UnknownOutcomeError          the response was lost: the call may have taken effect
"""

from __future__ import annotations

from typing import ClassVar


class MailboxError(Exception):
    """Something went wrong with a mailbox."""

    retryable: ClassVar[bool] = False


class InvalidParameterError(MailboxError, ValueError):
    """A parameter is outside its allowed range; nothing was changed."""

    def __init__(self, parameter: str, value: object, allowed: str) -> None:
        super().__init__(f"{parameter} must be {allowed}; got {_brief(value)}")
        self.parameter = parameter
        self.value = value
        self.allowed = allowed

    def __reduce__(self) -> tuple[type[InvalidParameterError], tuple[str, object, str]]:
        return type(self), (self.parameter, self.value, self.allowed)


class SerializationError(MailboxError):
    """A body can't be encoded as, or decoded into, the mailbox's body type."""


class ReceiptHandleExpiredError(MailboxError):
    """The lease has ended: it expired, or the message was acknowledged or returned."""


class RequestRejectedError(MailboxError):
    """The request of a `RequestClient` was dead-lettered; `reason` says why."""

    def __init__(self, request_id: str, mailbox: str, reason: str) -> None:
        super().__init__(f"request {request_id} to mailbox {mailbox!r} was dead-lettered: {reason}")
        self.request_id = request_id
        self.mailbox = mailbox
        self.reason = reason

    def __reduce__(self) -> tuple[type[RequestRejectedError], tuple[str, str, str]]:
        return type(self), (self.request_id, self.mailbox, self.reason)


class MailboxFullError(MailboxError):
    """The mailbox or the disk is full; receive messages, raise the capacity or free disk space."""

    retryable = True


class MailboxClosedError(MailboxError):
    """The mailbox was closed; open it again to use it."""


class ReentrantCallError(MailboxError):
    """A signal handler called a mailbox that the interrupted call is using; nothing was changed.

    Set a flag in the handler, put the work on a `queue.SimpleQueue`, or hand it to a thread.
    """


class MailboxStorageError(MailboxError):
    """The disk failed, or the files of the store can't be used."""


class MailboxConnectionError(MailboxError):
    """The server behind the mailbox can't be reached; nothing was changed."""

    retryable = True


class UnknownOutcomeError(MailboxError):
    """The connection was lost before the response: the call may or may not have taken effect.

    Check the queue (`stats`, `peek`) before you retry, or send with a `deduplication_id`, which
    makes a repeated send harmless.
    """


def _brief(value: object, length_max: int = 80) -> str:
    text = repr(value)
    return text if len(text) <= length_max else f"{text[:length_max]}... ({type(value).__name__})"
