"""New keys for a broker that runs: add, rotate and revoke them without a restart."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pillarbox.broker.config import Config
from pillarbox.core.errors import MailboxError
from pillarbox.logger import logger

if TYPE_CHECKING:
    from pillarbox.broker.server import Broker


def reload_keys(broker: Broker, read: Callable[[], Config]) -> bool:
    """Read the configuration again and take over its keys; whether that was done.

    A revoked key is refused from the next request on. What can't be used changes nothing: a bad
    file, or one that would open the broker to everybody or close it to those who have no key.
    """
    try:
        keys = read().keys
    except (MailboxError, OSError) as error:
        logger.error("the configuration can't be used; the old keys stay", error=str(error))
        return False
    if bool(keys) == broker.access.open_to_all:
        logger.error("restart the broker to introduce keys, or to do without; the old keys stay")
        return False
    broker.access.replace_keys(keys)
    broker.tokens.forget_revoked()
    if broker.audit is not None:
        broker.audit.note("", "ReloadKeys", "", by="signal")
    logger.warning("the keys were read again", keys=[key.id for key in keys])
    return True
