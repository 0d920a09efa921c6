"""The broker: a queue server that speaks the SQS protocol, in one process on one port."""

from pillarbox.extras import extra as _extra

with _extra("broker", "the broker"):
    from pillarbox.broker.config import Config, DeclaredQueue, Key
    from pillarbox.broker.http import Handler, Request, Response, StreamingResponse
    from pillarbox.broker.server import Broker

__all__ = [
    "Broker",
    "Config",
    "DeclaredQueue",
    "Handler",
    "Key",
    "Request",
    "Response",
    "StreamingResponse",
]
