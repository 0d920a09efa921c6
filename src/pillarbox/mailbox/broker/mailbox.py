"""`BrokerMailbox` and `AsyncBrokerMailbox`: mailboxes on a broker, over persistent connections."""

from __future__ import annotations

import ssl
from typing import Any, Generic, Unpack

from pillarbox.codec import codec_for
from pillarbox.core import limits
from pillarbox.mailbox.abstract import AbstractAsyncMailbox, AbstractMailbox
from pillarbox.mailbox.broker.address import PATIENCE_SECONDS, Address, address_of
from pillarbox.mailbox.broker.connection import AsyncBrokerConnection, BrokerConnection
from pillarbox.mailbox.broker.verbs import BrokerVerbs
from pillarbox.mailbox.broker.wire import Declare, Policy
from pillarbox.mailbox.options import check_options, default_redelivery
from pillarbox.mailbox.protocol import ANY, B, BodyType, FairOptions

DEFAULT_URL = "http://127.0.0.1:9324"
_PATIENCE_SECONDS_MAX = 3_600


class BrokerOptions(FairOptions, total=False):
    """Options to open a mailbox on a broker.

    Without `dead_letters` a new queue gets the broker's default policy; with None, no policy.
    """

    url: str
    patience_seconds: float
    tls: ssl.SSLContext | None


_OPTIONS = tuple(BrokerOptions.__annotations__)


class BrokerMailbox(AbstractMailbox[B], Generic[B]):
    """A mailbox on the broker at `url`. Thread-safe; threads share a few connections.

    After a lost connection it reconnects for up to `patience_seconds` and repeats the request. The
    broker does nothing twice; if it can't know whether it has processed the request already, the
    call raises `UnknownOutcomeError`.
    """

    _verbs: BrokerVerbs[B]

    def __init__(
        self, name: str, body_type: BodyType[B] = ANY, **options: Unpack[BrokerOptions]
    ) -> None:
        verbs = _verbs(name, body_type, options)
        self._start(verbs, BrokerConnection(verbs.address))


class AsyncBrokerMailbox(AbstractAsyncMailbox[B], Generic[B]):
    """`BrokerMailbox` for asyncio. Concurrent calls are combined into one request.

    Close it before its event loop ends.
    """

    def __init__(
        self, name: str, body_type: BodyType[B] = ANY, **options: Unpack[BrokerOptions]
    ) -> None:
        verbs = _verbs(name, body_type, options)
        self._connect(verbs, AsyncBrokerConnection(verbs.address))


def _verbs(name: str, body_type: Any, options: BrokerOptions) -> BrokerVerbs[Any]:
    declaration = _declaration(name, options)
    return BrokerVerbs(name, codec_for(body_type), _address(options), declaration)


def _declaration(name: str, options: BrokerOptions) -> Declare:
    """Return the declaration of a queue with these options; raise if one is invalid."""
    limits.queue_name(name)
    check_options(options, _OPTIONS)
    policy = options.get("dead_letters")
    buried = None
    if policy is not None:
        buried = Policy(policy.max_deliveries, policy.queue_of(name))
    return Declare(
        redelivery=default_redelivery(options),
        capacity=options.get("capacity"),
        policy=buried,
        immortal="dead_letters" in options and policy is None,
        create=options.get("create", True),
        fair=options.get("fair", False),
    )


def _address(options: BrokerOptions) -> Address:
    """Return the broker's address from these options."""
    patience = options.get("patience_seconds", PATIENCE_SECONDS)
    limits.seconds("patience_seconds", patience, _PATIENCE_SECONDS_MAX)
    url = options.get("url", DEFAULT_URL)
    address, _ = address_of(url.rstrip("/") + "/", options.get("tls"), patience)
    return address
