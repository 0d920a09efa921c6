"""How queues are named: URLs and ARNs, and the namespaces of regions and accounts."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pillarbox.broker.errors import missing, no_such_queue

if TYPE_CHECKING:
    from pillarbox.broker.config import Config

FIFO_SUFFIX = ".fifo"
_NAMESPACES_MAX = 10_000
_REGION = re.compile(r"[a-z0-9-]{1,40}\Z")
_PARTITIONS = {
    "cn-": "aws-cn",
    "us-gov-": "aws-us-gov",
    "us-iso-": "aws-iso",
    "us-isob-": "aws-iso-b",
    "eu-isoe-": "aws-iso-e",
    "us-isof-": "aws-iso-f",
    "eusc-": "aws-eusc",
}


class QueueNames:
    """The names of one broker's queues."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._namespaces: dict[tuple[str, str], str] = {}  # by region and account

    def dead_letters_of(self, name: str) -> str | None:
        """The dead-letter queue that a new queue gets by default; None for none."""
        stem = name.removesuffix(FIFO_SUFFIX)
        if not self._config.max_deliveries or stem.endswith("_dlq"):
            return None
        return f"{stem[:75]}_dlq{FIFO_SUFFIX if name != stem else ''}"

    def namespace(self, region: str, account: str) -> str:
        """What the store's names of these queues begin with; nothing for the broker's own."""
        known = self._namespaces.get((region, account))
        if known is None:
            own = (self._config.region, self._config.account)
            named = region if _REGION.match(region) else own[0]  # it may not be signed
            known = "" if (named, account) == own else f"{named}:{account}:"
            if len(self._namespaces) >= _NAMESPACES_MAX:
                self._namespaces.clear()
            self._namespaces[region, account] = known
        return known

    def by_arn(self, arn: str, namespace: str) -> str | None:
        """The store's name of a queue, if it is in the region and account of this namespace."""
        name = namespace + plain_name(arn)
        return name if self.arn(name) == arn else None

    def account_of(self, name: str) -> str:
        """Whose queue this is, by its name in the store."""
        return name.split(":")[1] if ":" in name else self._config.account

    def arn(self, name: str) -> str:
        full = name if ":" in name else f"{self._config.region}:{self._config.account}:{name}"
        return f"arn:{partition(full)}:sqs:{full}"


def partition(region: str) -> str:
    """The partition of AWS that a region belongs to, or whatever begins with its name."""
    found = (name for prefix, name in _PARTITIONS.items() if region.startswith(prefix))
    return next(found, "aws")


def plain_name(name: str) -> str:
    """A queue's name without its region and account, from its name in the store or its ARN."""
    return name.rpartition(":")[2]


def namespace_of(name: str) -> str:
    """What comes before a queue's plain name in the store."""
    return name.removesuffix(plain_name(name))


def owner_and_name(url: str | None) -> tuple[str, str]:
    """The account and the name of the queue that a URL is of, whatever its host.

    The account is empty if the URL does not tell it: a bare name will do.
    """
    if not url:
        raise missing("QueueUrl")
    name = name_in(url)
    if ":" in name:  # the store's name of a queue of another region or account
        raise no_such_queue()
    owner = name_in(url.rstrip("/").removesuffix(name))
    return owner if is_account(owner) else "", name


def is_account(text: str) -> bool:
    return len(text) == 12 and text.isascii() and text.isdecimal()


def name_in(url: str) -> str:
    """The name of the queue that a URL is of. In AWS's examples such a URL ends with a slash."""
    return url.rstrip("/").rpartition("/")[2]
