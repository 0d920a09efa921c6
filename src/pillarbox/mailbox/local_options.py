"""The options of a mailbox whose queue lives in this process."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from pillarbox.core import limits
from pillarbox.core.errors import InvalidParameterError
from pillarbox.core.queue import Settings
from pillarbox.mailbox.protocol import DeadLetterPolicy, QueueOptions
from pillarbox.mailbox.queue_session import QueueSession
from pillarbox.mailbox.store import Store, no_queue

_CAPACITY_MAX = 1 << 40


class LocalOptions(QueueOptions, total=False):
    """How every mailbox of this process may be opened.

    `fair=True` makes the group of a message the name of a tenant: a tenant that holds more than
    its share of what is in flight waits behind the others. Such groups keep no order, and what
    comes back takes its old place.
    """

    fair: bool
    max_body_bytes: int


def check_options(options: Mapping[str, Any], allowed: Collection[str]) -> None:
    """Raise for an option that is unknown, or out of its range."""
    for option in options.keys() - set(allowed):
        raise InvalidParameterError("option", option, f"one of {', '.join(allowed)}")
    limits.one_of("redelivery", options.get("redelivery", "tail"), ("tail", "original"))
    if not isinstance(options.get("fair", False), bool):
        raise InvalidParameterError("fair", options["fair"], "True or False")
    if options.get("fair") and options.get("redelivery") == "tail":
        raise InvalidParameterError("redelivery", "tail", "'original' for a fair queue")
    if options.get("capacity") is not None:
        limits.whole("capacity", options["capacity"], 1, _CAPACITY_MAX)
    if "max_body_bytes" in options:
        limits.whole("max_body_bytes", options["max_body_bytes"], 1, limits.BODY_BYTES_CEILING)


def open_session(store: Store, name: str, options: Mapping[str, Any]) -> QueueSession:
    """The session of a queue; these settings are for a new one, the dead letters for any."""
    if not options.get("create", True) and name not in store.sessions:
        raise no_queue(name)
    fair, capacity = options.get("fair", False), options.get("capacity")
    redelivery = options.get("redelivery", "original" if fair else "tail")
    session = store.session(name, Settings(redelivery=redelivery, capacity=capacity, fair=fair))
    policy: DeadLetterPolicy | None = options.get("dead_letters")
    if policy is not None:
        store.set_dead_letters(
            session, store.session(policy.name or f"{name}_dlq"), policy.max_deliveries
        )
    return session
