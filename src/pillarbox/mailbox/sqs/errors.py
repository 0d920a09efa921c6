"""Translates errors of SQS and botocore to mailbox errors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectionClosedError,
    HTTPClientError,
    NoCredentialsError,
    ReadTimeoutError,
)
from botocore.exceptions import (
    ConnectionError as EndpointError,
)

from pillarbox.core.errors import (
    InvalidParameterError,
    MailboxConnectionError,
    MailboxError,
    MailboxFullError,
    ReceiptHandleExpiredError,
    SerializationError,
)

_PREFIX = "AWS.SimpleQueueService."
_THROTTLED = frozenset(("RequestThrottled", "Throttling", "KmsThrottled", "TooManyRequests"))
_MISSING_QUEUE = frozenset(("NonExistentQueue", "QueueDoesNotExist"))
_STALE_HANDLE = frozenset(("ReceiptHandleIsInvalid", "MessageNotInflight", "InvalidParameterValue"))
_TOO_LONG = "beyond the limit"  # of 12 hours since the receive: the handle is not stale
_TEXT_CHARS_MAX = 300
_SETTLES = frozenset(("delete_message", "change_message_visibility"))
_UNKNOWN_VERB = frozenset(("InvalidAction", "UnknownOperation", "UnsupportedOperation"))
_DENIED = frozenset(("AccessDenied", "InvalidClientTokenId", "SignatureDoesNotMatch"))


class PurgeInProgressError(MailboxError):
    """SQS purges a queue at most once in 60 seconds; retry later."""

    retryable = True


class UnsupportedOperationError(MailboxError):
    """SQS does not support this operation."""


class LostAnswerError(MailboxConnectionError):
    """SQS may have received the request, but the response was lost. Verbs translate it."""


class BatchError(MailboxError):
    """SQS accepted only some messages of a batch.

    `sent` has the ids of the accepted messages, `failed` the errors of the others, both by position
    in the batch. Send the failed ones again; a message that failed with `UnknownOutcomeError` may
    have been sent.
    """

    def __init__(
        self, queue: str, sent: Mapping[int, str], failed: Mapping[int, MailboxError]
    ) -> None:
        first = next(iter(failed.values()))
        super().__init__(
            f"{len(failed):,} of {len(sent) + len(failed):,} messages were not sent to queue "
            f"{queue!r}: send those in `failed` again; the first error: {first}"
        )
        self.queue = queue
        self.sent = dict(sent)
        self.failed = dict(failed)
        self.retryable = all(error.retryable for error in failed.values())  # type: ignore[misc]

    def __reduce__(self) -> tuple[type[BatchError], tuple[object, ...]]:
        return type(self), (self.queue, self.sent, self.failed)


def from_botocore(error: Exception, operation: str, queue: str) -> MailboxError:
    """Return the mailbox error for an error of botocore."""
    if isinstance(error, ClientError):
        answer = error.response
        status = answer.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        about = answer.get("Error", {})
        if operation in _SETTLES and says_stale(about):
            return ReceiptHandleExpiredError(f"the lease has ended: {about.get('Message', '')}")
        return from_code(about.get("Code", ""), about.get("Message", ""), operation, queue, status)
    verb = _name_of(operation)
    if isinstance(error, HTTPClientError | EndpointError):
        lost = isinstance(error, ReadTimeoutError | ConnectionClosedError)
        kind = LostAnswerError if lost else MailboxConnectionError
        return kind(
            f"SQS can't be reached for {verb} on queue {queue!r}: {error}; "
            "check that the endpoint and the region are right and that the network is up"
        )
    if isinstance(error, NoCredentialsError):
        return MailboxError(
            f"no AWS credentials for {verb} on queue {queue!r}: set AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY, name a profile in AWS_PROFILE, or pass session="
        )
    if isinstance(error, BotoCoreError):
        return MailboxError(f"{verb} on queue {queue!r} can't be called: {error}")
    raise error


def from_code(
    code: str, message: str, operation: str, queue: str, status: int = 400
) -> MailboxError:
    """Return the mailbox error for an SQS error code."""
    code = _plain(code)
    verb = _name_of(operation)
    what = f"SQS refused {verb} on queue {queue!r}: {code}: {message[:_TEXT_CHARS_MAX]}"
    if code in _MISSING_QUEUE:
        wanted = "a queue that exists: create it first, or open it with create=True"
        return InvalidParameterError("name", queue, wanted)
    if code == "PurgeQueueInProgress":
        return PurgeInProgressError(
            f"queue {queue!r} was purged less than 60 seconds ago: wait, then purge again"
        )
    if code == "OverLimit":
        return MailboxFullError(f"{what}; acknowledge messages in flight first")
    if code in _THROTTLED or status == 429:
        return MailboxFullError(f"{what}; slow down, or send in batches")
    if code == "InvalidMessageContents":
        return SerializationError(what)
    if code in _UNKNOWN_VERB or status == 501:
        return UnsupportedOperationError(what)
    if code in _DENIED:
        return MailboxError(f"{what}; check that the credentials are right and allow sqs:{verb}")
    if status >= 500:
        return MailboxConnectionError(what)
    return MailboxError(what)


def says_stale(refusal: Mapping[str, Any]) -> bool:
    """Return whether SQS refused because the receipt handle is stale."""
    code, text = _plain(refusal.get("Code", "")), refusal.get("Message", "")
    return code in _STALE_HANDLE and _TOO_LONG not in text


def _plain(code: str) -> str:
    """Return an error code without the prefix and suffix of one SQS protocol."""
    return code.removeprefix(_PREFIX).removesuffix("Exception")


def _name_of(operation: str) -> str:
    """Return the SQS action of a boto3 method: SendMessage for send_message."""
    return operation.title().replace("_", "")
