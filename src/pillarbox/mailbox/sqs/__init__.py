"""Mailboxes on Amazon SQS, and on servers that speak its protocol, for threads and for asyncio.

    SQSMailbox("orders", Order, region="eu-west-1")
    open_mailbox("sqs://eu-west-1/orders", Order)
    open_mailbox("sqs+http://127.0.0.1:9324/orders", Order, create=True)

This package is the only one that imports boto3 and aiobotocore: `pip install 'pillarbox[sqs]'`.
"""

from __future__ import annotations

from pillarbox.extras import extra
from pillarbox.mailbox.options import openers

with extra("sqs", "a mailbox on SQS"):
    from pillarbox.mailbox.sqs.errors import (
        BatchError,
        PurgeInProgressError,
        UnsupportedOperationError,
    )
    from pillarbox.mailbox.sqs.mailbox import AsyncSQSMailbox, SQSMailbox
    from pillarbox.mailbox.sqs.queues import delete_queue, list_queues

__all__ = [
    "AsyncSQSMailbox",
    "BatchError",
    "PurgeInProgressError",
    "SQSMailbox",
    "UnsupportedOperationError",
    "delete_queue",
    "list_queues",
    "open_async_url",
    "open_url",
]

open_url, open_async_url = openers(SQSMailbox, AsyncSQSMailbox, lambda url: (url, {}))
