"""The options of a mailbox on Redis, its URL, and the servers they name.

    redis://user:password@host:6379/orders        rediss://... with TLS
    redis://host/2/orders                         in database 2
    redis+cluster://host:7000,host:7001/orders
    redis+sentinel://host:26379,host:26380/service/orders

The query after `?` has options of the mailbox or of redis-py's connections.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from redis import connection as connections
from redis.asyncio import connection as async_connections
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from pillarbox.core import limits
from pillarbox.core.errors import InvalidParameterError
from pillarbox.mailbox.options import check_options, take_options
from pillarbox.mailbox.protocol import FairOptions
from pillarbox.mailbox.redis.scripts import SCRIPTS, Scripts
from pillarbox.mailbox.redis.servers import Address, ClusterServers, SentinelServers, Servers
from pillarbox.mailbox.url import split_url, without_password

Durability = Literal["master", "replicated"]

RETRY_SECONDS = 15.0
REPLICA_SECONDS = 5.0
_CONNECT_SECONDS = 2.0
_ANSWER_SECONDS = 5.0
_FORM = (
    "redis://host/name, rediss://host/name, redis+cluster://host:port,host:port/name "
    "or redis+sentinel://host:port,host:port/service/name"
)


class RedisOptions(FairOptions, total=False):
    """Options to open a mailbox on Redis.

    Pass the servers as `url`, or as a client of redis-py (`client`: `Redis` or `RedisCluster`).
    With `durability="replicated"` a send returns when `replicas` have the message, or raises
    `NotReplicatedError` after `replica_seconds`. `journal=True` keeps the history of the queue in a
    stream. While the servers can't be reached, a call is retried for `retry_seconds`.
    """

    client: Any
    url: str
    max_body_bytes: int
    durability: Durability
    replicas: int
    replica_seconds: float
    journal: bool
    retry_seconds: float
    scripts: Scripts


_OPTIONS = tuple(RedisOptions.__annotations__)


class CheckedOptions:
    """The validated options of one mailbox."""

    def __init__(self, options: Mapping[str, Any], *, asynchronous: bool) -> None:
        check_options(options, _OPTIONS)
        self.max_body_bytes: int = options.get("max_body_bytes", limits.BODY_BYTES_MAX)
        self.retry_seconds = float(options.get("retry_seconds", RETRY_SECONDS))
        durability = options.get("durability", "master")
        limits.one_of("durability", durability, ("master", "replicated"))
        replicas = limits.whole("replicas", options.get("replicas", 1), 1, 100)
        self.replicas = replicas if durability == "replicated" else 0
        self.replica_seconds = float(options.get("replica_seconds", REPLICA_SECONDS))
        self.scripts: Scripts = options.get("scripts", SCRIPTS)
        names = ("dead_letters", "redelivery", "capacity", "fair", "journal", "create")
        self.settings = {name: options[name] for name in names if name in options}
        client, url = options.get("client"), options.get("url")
        if (client is None) == (url is None):
            raise InvalidParameterError("client", client, "given, or else url")
        if client is not None:
            self.servers = servers_of_client(client, asynchronous=asynchronous)
        else:
            self.servers = servers_of_url(str(url), asynchronous=asynchronous)[0]


def servers_of_client(client: Any, *, asynchronous: bool) -> Servers:
    """Return the servers of a redis-py client, which is only read and stays the caller's."""
    if hasattr(client, "nodes_manager"):
        nodes = list(client.nodes_manager.startup_nodes.values())
        seeds = [(node.host, int(node.port)) for node in nodes]
        pool = nodes[0]
        if not asynchronous:
            pool = client.get_redis_connection(client.get_default_node()).connection_pool
        options = _tuned(pool.connection_kwargs, asynchronous)
        return ClusterServers(pool.connection_class, options, seeds)
    if not hasattr(client, "connection_pool"):
        raise InvalidParameterError("client", client, "a client of redis-py")
    pool = client.connection_pool
    return Servers(pool.connection_class, _tuned(pool.connection_kwargs, asynchronous))


def servers_of_url(url: str, *, asynchronous: bool) -> tuple[Servers, str, dict[str, Any]]:
    """Return the servers of a URL, the mailbox name in it, and the mailbox's options."""
    parts = split_url(url, f"of the form {_FORM}")
    scheme, _, kind = parts.scheme.partition("+")
    path = [unquote(part) for part in parts.path.split("/") if part]
    if scheme not in ("redis", "rediss") or kind not in ("", "cluster", "sentinel") or not path:
        raise _bad_url(url)
    name = path.pop()
    if kind == "" and path and not (len(path) == 1 and path[0].isdecimal()):
        raise _bad_url(url, ", or redis://host/2/name for database 2")
    query = dict(parse_qsl(parts.query))
    options = take_options(query, _OPTIONS)
    user, at, hosts = parts.netloc.rpartition("@")
    first = hosts.split(",")[0]
    database = path[-1] if path and kind == "" else "0"
    plain = f"{scheme}://{user}{at}{first}/{database}?{urlencode(query, quote_via=quote)}"
    module: Any = async_connections if asynchronous else connections
    connection_class = module.SSLConnection if scheme == "rediss" else module.Connection
    port = 26379 if kind == "sentinel" else 6379
    try:
        settings = dict(connections.parse_url(plain))  # type: ignore[no-untyped-call]
        settings.pop("connection_class", None)
        settings = _tuned(settings, asynchronous)
        connection_class(**settings)  # does not connect; raises for an unknown option
        seeds = [_address(host, port) for host in hosts.split(",")]
    except (TypeError, ValueError, RedisError) as error:
        raise _bad_url(url, f" ({error})") from error
    if kind == "cluster":
        return ClusterServers(connection_class, settings, seeds), name, options
    if kind == "sentinel":
        if len(path) != 1:
            raise _bad_url(url)
        return SentinelServers(connection_class, settings, seeds, path[0]), name, options
    return Servers(connection_class, settings), name, options


def _bad_url(url: str, why: str = "") -> InvalidParameterError:
    return InvalidParameterError("url", without_password(url), f"of the form {_FORM}{why}")


def named_in(url: str) -> tuple[str, dict[str, Any]]:
    """Return the mailbox name of a URL, and the options to open it with."""
    _, name, options = servers_of_url(url, asynchronous=False)
    return name, {"url": url, **options}


def _address(text: str, port: int) -> Address:
    parts = urlsplit(f"//{text}")
    return parts.hostname or "localhost", parts.port or port


def _tuned(options: Mapping[str, Any], asynchronous: bool) -> dict[str, Any]:
    """Return connection options for bytes in and out, no retries, and timeouts."""
    kept = {name: options[name] for name in options if not name.startswith("retry_on_")}
    return kept | {
        "decode_responses": False,
        "health_check_interval": 0,
        "retry": AsyncRetry(NoBackoff(), 0) if asynchronous else Retry(NoBackoff(), 0),
        "socket_connect_timeout": options.get("socket_connect_timeout") or _CONNECT_SECONDS,
        "socket_timeout": options.get("socket_timeout") or _ANSWER_SECONDS,
    }
