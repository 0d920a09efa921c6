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

from pillarbox.core.errors import (
    InvalidParameterError,
    MailboxClosedError,
    MailboxConnectionError,
    MailboxError,
    MailboxFullError,
    MailboxStorageError,
    ReceiptHandleExpiredError,
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
from pillarbox.mailbox.protocol import AsyncMailbox, DeadLetterPolicy, Mailbox, Stats
from pillarbox.mailbox.request import RequestClient
from pillarbox.mailbox.url import open_async_mailbox, open_mailbox

__version__ = "0.1.0"

__all__ = [
    "AsyncBrokerMailbox",
    "AsyncDurableMailbox",
    "AsyncInMemoryMailbox",
    "AsyncMailbox",
    "AsyncMessage",
    "BrokerMailbox",
    "DeadLetter",
    "DeadLetterPolicy",
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
    "Message",
    "ReceiptHandleExpiredError",
    "RequestClient",
    "Retention",
    "SerializationError",
    "Stats",
    "Undecodable",
    "open_async_mailbox",
    "open_mailbox",
]
