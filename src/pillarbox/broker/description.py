"""What a broker tells of itself, for `pillarbox doctor URL`."""

from __future__ import annotations

import shutil
import time
from typing import TYPE_CHECKING, Final

from pillarbox import __version__
from pillarbox.broker.access import Principal
from pillarbox.mailbox.broker.wire import Described
from pillarbox.mailbox.durable_store import DurableStore

if TYPE_CHECKING:
    from pillarbox.broker.server import Broker

_ACTIONS: Final = (
    "SendMessage",
    "ReceiveMessage",
    "DeleteMessage",
    "GetQueueAttributes",
    "CreateQueue",
    "PurgeQueue",
    "StartMessageMoveTask",
)


def describe(broker: Broker, principal: Principal, queue: str) -> Described:
    """What it is; how much room it has only for a key that may do everything."""
    store = broker.store
    durable = isinstance(store, DurableStore)
    free = None
    if isinstance(store, DurableStore) and principal.is_unlimited:
        free = shutil.disk_usage(store.path).free
    return Described(
        __version__,
        time.time_ns(),
        broker.config.durability if durable else "none",
        not broker.access.open_to_all,
        [action for action in _ACTIONS if principal.may(action, queue)],
        broker.health.problem(),
        free,
    )
