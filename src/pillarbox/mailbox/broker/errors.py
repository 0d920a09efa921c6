"""Errors specific to broker mailboxes, and the encoding of errors on the wire."""

from __future__ import annotations

from pillarbox.core import errors
from pillarbox.core.errors import InvalidParameterError, MailboxError
from pillarbox.mailbox.broker.wire import Failed


class QueueNotFoundError(MailboxError):
    """The queue does not exist on the broker. Open the mailbox again to create it."""

    instance = ""  # of the broker that raised it


class AccessDeniedError(MailboxError):
    """The broker refused the credentials, or they do not permit this call."""


_TYPES: dict[str, type[MailboxError]] = {
    kind.__name__: kind
    for kind in (
        errors.SerializationError,
        errors.ReceiptHandleExpiredError,
        errors.MailboxFullError,
        errors.MailboxClosedError,
        errors.MailboxStorageError,
        errors.MailboxConnectionError,
        errors.UnknownOutcomeError,
        QueueNotFoundError,
        AccessDeniedError,
    )
}


def failed(error: MailboxError) -> Failed:
    """Encode an error for the client."""
    if isinstance(error, InvalidParameterError):
        return Failed(
            "InvalidParameterError", str(error), error.parameter, str(error.value), error.allowed
        )
    names = (kind.__name__ for kind in type(error).__mro__ if kind.__name__ in _TYPES)
    code = next(names, "MailboxError")
    return Failed(code, str(error), value=getattr(error, "instance", ""))


def error_of(outcome: Failed) -> MailboxError:
    """Decode the broker's error for the client to raise."""
    if outcome.code == "InvalidParameterError":
        return InvalidParameterError(outcome.parameter, outcome.value, outcome.allowed)
    error = _TYPES.get(outcome.code, MailboxError)(outcome.message)
    if isinstance(error, QueueNotFoundError):
        error.instance = outcome.value
    return error
