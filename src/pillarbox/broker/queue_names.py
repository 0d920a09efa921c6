"""Queue names: URLs, ARNs, and the namespaces of regions and accounts."""

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
        """Return the default dead-letter queue of a new queue, or None."""
        stem = name.removesuffix(FIFO_SUFFIX)
        if not self._config.max_deliveries or stem.endswith("_dlq"):
            return None
        return f"{stem[:75]}_dlq{FIFO_SUFFIX if name != stem else ''}"

    def namespace(self, region: str, account: str) -> str:
        """Return the prefix of these queues' names in the store; empty for the broker's own."""
        known = self._namespaces.get((region, account))
        if known is None:
            own = (self._config.region, self._config.account)
            # It may come from an unsigned request.
            if region != own[0] and not _REGION.match(region):
                return self.namespace(own[0], account)
            known = "" if (region, account) == own else f"{region}:{account}:"
            if len(self._namespaces) >= _NAMESPACES_MAX:
                self._namespaces.clear()
            self._namespaces[region, account] = known
        return known

    def by_arn(self, arn: str, namespace: str) -> str | None:
        """Return a queue's name in the store, or None if its ARN is outside this namespace."""
        name = namespace + plain_name(arn)
        return name if self.arn(name) == arn else None

    def account_of(self, name: str) -> str:
        """Return the account of a queue, by its name in the store."""
        return name.split(":")[1] if ":" in name else self._config.account

    def arn(self, name: str) -> str:
        full = self._full(name)
        return f"arn:{partition(full)}:sqs:{full}"

    def path(self, name: str) -> str:
        """Return the path of a queue's URL; it names the region if it is not the broker's own."""
        region, account, plain = self._full(name).split(":")
        named = "" if region == self._config.region else f"/queue/{region}"
        return f"{named}/{account}/{plain}"

    def _full(self, name: str) -> str:
        return name if ":" in name else f"{self._config.region}:{self._config.account}:{name}"


def partition(region: str) -> str:
    """Return the AWS partition of a region, or of a longer string that begins with one."""
    found = (name for prefix, name in _PARTITIONS.items() if region.startswith(prefix))
    return next(found, "aws")


def plain_name(name: str) -> str:
    """Return a queue's name without region and account, from its store name or ARN."""
    return name.rpartition(":")[2]


def namespace_of(name: str) -> str:
    """Return the part before a queue's plain name in the store."""
    return name.removesuffix(plain_name(name))


def owner_and_name(url: str | None) -> tuple[str, str]:
    """Return the account and the queue name in a URL, ignoring its host.

    The account is empty if the URL has none, such as a bare name.
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
    """Return the queue name in a URL, which may end with a slash as in AWS's examples."""
    return url.rstrip("/").rpartition("/")[2]
