"""Pillarbox: mailboxes, logs and pipelines for Python.

A mailbox is a work queue: one holder for each message, and a lease on it.

Examples:
    >>> from pillarbox import open_mailbox
    >>> orders = open_mailbox("memory:orders", str)
    >>> _ = orders.send("tea", priority=9)
    >>> for message in orders.receive(wait_time_seconds=5):
    ...     print(message.body, message.acknowledge())
    tea True
"""

import importlib
import typing

if typing.TYPE_CHECKING:
    from pillarbox.bus import MessageBus
    from pillarbox.core.errors import (
        InvalidParameterError,
        MailboxClosedError,
        MailboxConnectionError,
        MailboxError,
        MailboxFullError,
        MailboxStorageError,
        ReceiptHandleExpiredError,
        ReentrantCallError,
        RequestRejectedError,
        SerializationError,
    )
    from pillarbox.log import Log, LogReader, Retention
    from pillarbox.mailbox.broker import AsyncBrokerMailbox, BrokerMailbox
    from pillarbox.mailbox.durable import AsyncDurableMailbox, DurableMailbox
    from pillarbox.mailbox.memory import AsyncInMemoryMailbox, InMemoryMailbox
    from pillarbox.mailbox.message import (
        AsyncMessage,
        DeadLetter,
        FailedDelivery,
        Message,
        Undecodable,
    )
    from pillarbox.mailbox.postgres import (
        AsyncOutbox,
        AsyncPostgresMailbox,
        Outbox,
        PostgresMailbox,
    )
    from pillarbox.mailbox.protocol import AsyncMailbox, DeadLetterPolicy, Mailbox, Stats
    from pillarbox.mailbox.redis import AsyncRedisMailbox, RedisMailbox
    from pillarbox.mailbox.request import AsyncRequestClient, RequestClient
    from pillarbox.mailbox.sqs import AsyncSQSMailbox, SQSMailbox
    from pillarbox.mailbox.url import open_async_mailbox, open_mailbox
    from pillarbox.pipeline import Pipeline
    from pillarbox.worker import Dispatcher, MainLoop, Worker

__version__ = "0.2.0"

__all__ = [
    "AsyncBrokerMailbox",
    "AsyncDurableMailbox",
    "AsyncInMemoryMailbox",
    "AsyncMailbox",
    "AsyncMessage",
    "AsyncOutbox",
    "AsyncPostgresMailbox",
    "AsyncRedisMailbox",
    "AsyncRequestClient",
    "AsyncSQSMailbox",
    "BrokerMailbox",
    "DeadLetter",
    "DeadLetterPolicy",
    "Dispatcher",
    "DurableMailbox",
    "FailedDelivery",
    "InMemoryMailbox",
    "InvalidParameterError",
    "Log",
    "LogReader",
    "Mailbox",
    "MailboxClosedError",
    "MailboxConnectionError",
    "MailboxError",
    "MailboxFullError",
    "MailboxStorageError",
    "MainLoop",
    "Message",
    "MessageBus",
    "Outbox",
    "Pipeline",
    "PostgresMailbox",
    "ReceiptHandleExpiredError",
    "RedisMailbox",
    "ReentrantCallError",
    "RequestClient",
    "RequestRejectedError",
    "Retention",
    "SQSMailbox",
    "SerializationError",
    "Stats",
    "Undecodable",
    "UnknownOutcomeError",
    "Worker",
    "open_async_mailbox",
    "open_mailbox",
]

# Each name is imported when it is first used: `import pillarbox` takes milliseconds, and a program
# pays only for what it uses. The decorator `worker` has the name of its package and stays there:
# `from pillarbox.worker import worker`.
_HOMES = {
    "AsyncBrokerMailbox": "pillarbox.mailbox.broker",
    "AsyncDurableMailbox": "pillarbox.mailbox.durable",
    "AsyncInMemoryMailbox": "pillarbox.mailbox.memory",
    "AsyncMailbox": "pillarbox.mailbox.protocol",
    "AsyncMessage": "pillarbox.mailbox.message",
    "AsyncOutbox": "pillarbox.mailbox.postgres",
    "AsyncPostgresMailbox": "pillarbox.mailbox.postgres",
    "AsyncRedisMailbox": "pillarbox.mailbox.redis",
    "AsyncRequestClient": "pillarbox.mailbox.request",
    "AsyncSQSMailbox": "pillarbox.mailbox.sqs",
    "BrokerMailbox": "pillarbox.mailbox.broker",
    "DeadLetter": "pillarbox.mailbox.message",
    "DeadLetterPolicy": "pillarbox.mailbox.protocol",
    "Dispatcher": "pillarbox.worker",
    "DurableMailbox": "pillarbox.mailbox.durable",
    "FailedDelivery": "pillarbox.mailbox.message",
    "InMemoryMailbox": "pillarbox.mailbox.memory",
    "InvalidParameterError": "pillarbox.core.errors",
    "Log": "pillarbox.log",
    "LogReader": "pillarbox.log",
    "Mailbox": "pillarbox.mailbox.protocol",
    "MailboxClosedError": "pillarbox.core.errors",
    "MailboxConnectionError": "pillarbox.core.errors",
    "MailboxError": "pillarbox.core.errors",
    "MailboxFullError": "pillarbox.core.errors",
    "MailboxStorageError": "pillarbox.core.errors",
    "MainLoop": "pillarbox.worker",
    "Message": "pillarbox.mailbox.message",
    "MessageBus": "pillarbox.bus",
    "Outbox": "pillarbox.mailbox.postgres",
    "Pipeline": "pillarbox.pipeline",
    "PostgresMailbox": "pillarbox.mailbox.postgres",
    "ReceiptHandleExpiredError": "pillarbox.core.errors",
    "RedisMailbox": "pillarbox.mailbox.redis",
    "ReentrantCallError": "pillarbox.core.errors",
    "RequestClient": "pillarbox.mailbox.request",
    "RequestRejectedError": "pillarbox.core.errors",
    "Retention": "pillarbox.log",
    "SQSMailbox": "pillarbox.mailbox.sqs",
    "SerializationError": "pillarbox.core.errors",
    "Stats": "pillarbox.mailbox.protocol",
    "Undecodable": "pillarbox.mailbox.message",
    "UnknownOutcomeError": "pillarbox.core.errors",
    "Worker": "pillarbox.worker",
    "open_async_mailbox": "pillarbox.mailbox.url",
    "open_mailbox": "pillarbox.mailbox.url",
}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'pillarbox' has no attribute {name!r}")
    found: object = getattr(importlib.import_module(home), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
