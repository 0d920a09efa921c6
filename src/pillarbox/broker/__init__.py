"""The broker: queues behind the real SQS protocol, in one process on one port."""

try:
    import httptools as _httptools
    import uvloop as _uvloop
except ImportError as error:
    raise ImportError("the broker needs more packages: pip install 'pillarbox[broker]'") from error

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

del _httptools, _uvloop
