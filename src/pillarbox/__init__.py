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

from pillarbox.core.errors import (
    InvalidParameterError,
    MailboxClosedError,
    MailboxConnectionError,
    MailboxError,
    MailboxFullError,
    MailboxStorageError,
    ReceiptHandleExpiredError,
    ReentrantCallError,
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

if typing.TYPE_CHECKING:
    from pillarbox.bus import MessageBus
    from pillarbox.pipeline import Pipeline
    from pillarbox.worker import Dispatcher, MainLoop, Worker

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
    "Pipeline",
    "ReceiptHandleExpiredError",
    "ReentrantCallError",
    "RequestClient",
    "Retention",
    "SerializationError",
    "Stats",
    "Undecodable",
    "Worker",
    "open_async_mailbox",
    "open_mailbox",
]

# Imported when first asked for, so that a plain mailbox stays cheap to import. The decorator
# `worker` has the name of its package, and so stays there: `from pillarbox.worker import worker`.
_LATER = {
    "Dispatcher": "pillarbox.worker",
    "MainLoop": "pillarbox.worker",
    "MessageBus": "pillarbox.bus",
    "Pipeline": "pillarbox.pipeline",
    "Worker": "pillarbox.worker",
}


def __getattr__(name: str) -> object:
    home = _LATER.get(name)
    if home is None:
        raise AttributeError(f"module 'pillarbox' has no attribute {name!r}")
    found: object = getattr(importlib.import_module(home), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
