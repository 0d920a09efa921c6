"""Pillarbox: mailboxes, logs and pipelines for Python.

A mailbox is a work queue. Receiving leases a message to one consumer until it is acknowledged.

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
        UnknownOutcomeError,
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
_NAMES = {
    "bus": "MessageBus",
    "log": "Log LogReader Retention",
    "mailbox.broker": "AsyncBrokerMailbox BrokerMailbox",
    "mailbox.durable": "AsyncDurableMailbox DurableMailbox",
    "mailbox.memory": "AsyncInMemoryMailbox InMemoryMailbox",
    "mailbox.message": "AsyncMessage DeadLetter FailedDelivery Message Undecodable",
    "mailbox.postgres": "AsyncOutbox AsyncPostgresMailbox Outbox PostgresMailbox",
    "mailbox.protocol": "AsyncMailbox DeadLetterPolicy Mailbox Stats",
    "mailbox.redis": "AsyncRedisMailbox RedisMailbox",
    "mailbox.request": "AsyncRequestClient RequestClient",
    "mailbox.sqs": "AsyncSQSMailbox SQSMailbox",
    "mailbox.url": "open_async_mailbox open_mailbox",
    "pipeline": "Pipeline",
    "worker": "Dispatcher MainLoop Worker",
}
_HOMES = {name: home for home, names in _NAMES.items() for name in names.split()}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'pillarbox' has no attribute {name!r}")
    home = importlib.import_module(f"pillarbox.{_HOMES.get(name, 'core.errors')}")
    found: object = getattr(home, name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
