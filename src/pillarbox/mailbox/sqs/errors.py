"""What SQS and the way to it answer when something is wrong, in the words of our error tree."""

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
_TOO_LONG = "beyond the limit"  # of 12 hours since the receive, which is no stale handle
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
    """SQS may have got the request, and its answer did not come. Verbs turn it into another."""


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
            f"{queue!r}: send those again that `failed` names; the first: {first}"
        )
        self.queue = queue
        self.sent = dict(sent)
        self.failed = dict(failed)
        self.retryable = all(error.retryable for error in failed.values())  # type: ignore[misc]

    def __reduce__(self) -> tuple[type[BatchError], tuple[object, ...]]:
        return type(self), (self.queue, self.sent, self.failed)


def from_botocore(error: Exception, operation: str, queue: str) -> MailboxError:
    """The error of ours that says what an error of botocore's means."""
    if isinstance(error, ClientError):
        answer = error.response
        status = answer.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        about = answer.get("Error", {})
        if operation in _SETTLES and says_stale(about):
            return ReceiptHandleExpiredError(f"the delivery is over: {about.get('Message', '')}")
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
    """The error of ours for an error code of SQS."""
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
        return MailboxFullError(f"{what}; acknowledge what is in flight first")
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
    """True if SQS refuses to settle a message because its delivery is over."""
    code, text = _plain(refusal.get("Code", "")), refusal.get("Message", "")
    return code in _STALE_HANDLE and _TOO_LONG not in text


def _plain(code: str) -> str:
    """A code without what only one of SQS's protocols writes around it."""
    return code.removeprefix(_PREFIX).removesuffix("Exception")


def _name_of(operation: str) -> str:
    """`send_message` as SQS writes it."""
    return operation.title().replace("_", "")
