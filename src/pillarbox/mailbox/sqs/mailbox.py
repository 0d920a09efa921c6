"""`SQSMailbox` and `AsyncSQSMailbox`: mailboxes on Amazon SQS or a compatible server."""

from __future__ import annotations

from typing import Any, Generic, Unpack

from pillarbox.mailbox.abstract import AbstractAsyncMailbox, AbstractMailbox
from pillarbox.mailbox.protocol import ANY, B, BodyType
from pillarbox.mailbox.sqs.async_connection import AsyncSQSConnection
from pillarbox.mailbox.sqs.connection import SQSConnection
from pillarbox.mailbox.sqs.verbs import SQSOptions, SQSVerbs, verbs_for


class SQSMailbox(AbstractMailbox[B], Generic[B]):
    """A mailbox on Amazon SQS, or on another server with the SQS protocol. Thread-safe.

    `name` is the name, ARN or URL of the queue. Options: `region`, `endpoint` (of another server
    than Amazon's), `session` (a `boto3.Session`), `create=True` to create the queue if it does not
    exist, `dead_letters` to set its redrive policy.

    `peek` and `delete` raise `UnsupportedOperationError`: SQS has neither. Counts are approximate,
    and a queue can be purged once a minute. `send_many` checks all bodies before it sends the
    first; if SQS refuses some of them, it raises `BatchError`.
    """

    _verbs: SQSVerbs[B]
    _connection: SQSConnection

    def __init__(
        self, name: str, body_type: BodyType[B] = ANY, **options: Unpack[SQSOptions]
    ) -> None:
        verbs = verbs_for(name, body_type, options)
        self._start(verbs, SQSConnection(*_target(verbs, options)))


class AsyncSQSMailbox(AbstractAsyncMailbox[B], Generic[B]):
    """`SQSMailbox` for asyncio: the same arguments and methods, as coroutines.

    `session` is an `aiobotocore.session.AioSession` here.
    """

    def __init__(
        self, name: str, body_type: BodyType[B] = ANY, **options: Unpack[SQSOptions]
    ) -> None:
        verbs = verbs_for(name, body_type, options)
        self._connect(verbs, AsyncSQSConnection(*_target(verbs, options)))


def _target(verbs: SQSVerbs[Any], options: SQSOptions) -> tuple[Any, str | None, str | None]:
    """Return session, region and endpoint."""
    address = verbs.queue.address
    region = options.get("region") or address.region
    return options.get("session"), region, options.get("endpoint") or address.endpoint
