"""The options of mailboxes in memory and on disk."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pillarbox.core.queue import Settings
from pillarbox.mailbox.options import default_redelivery
from pillarbox.mailbox.protocol import DeadLetterPolicy, FairOptions
from pillarbox.mailbox.queue_session import QueueSession
from pillarbox.mailbox.store import Store, no_queue


class LocalOptions(FairOptions, total=False):
    """Options to open a mailbox in memory or on disk."""

    max_body_bytes: int


def open_session(store: Store, name: str, options: Mapping[str, Any]) -> QueueSession:
    """The session of a queue; these settings are for a new one, the dead letters for any."""
    if not options.get("create", True) and name not in store.sessions:
        raise no_queue(name)
    fair, capacity = options.get("fair", False), options.get("capacity")
    redelivery = default_redelivery(options)
    session = store.session(name, Settings(redelivery=redelivery, capacity=capacity, fair=fair))
    policy: DeadLetterPolicy | None = options.get("dead_letters")
    if policy is not None:
        dead = store.session(policy.queue_of(name))
        store.set_dead_letters(session, dead, policy.max_deliveries)
    return session
