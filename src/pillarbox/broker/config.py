"""The broker's configuration: flags override the environment, which overrides `pillarbox.toml`.

`Config` is complete and valid once it exists. Keys of the file are the names of its fields.
"""

from __future__ import annotations

import ipaddress
import os
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta, Struct

from pillarbox.broker import limits
from pillarbox.broker.attributes import checked
from pillarbox.broker.errors import SqsError
from pillarbox.broker.queue_names import FIFO_SUFFIX
from pillarbox.core.errors import InvalidParameterError
from pillarbox.core.limits import PRIORITY_MAX, queue_name, whole

DEFAULT_PORT: Final = 9324
CONFIG_FILE: Final = "pillarbox.toml"

Durability = Literal["fsync", "os", "memory"]


class Key(Struct, frozen=True, forbid_unknown_fields=True):
    """A client's key: which queues it may use (`orders*`), and for which actions.

    A key with its own `account` has its own queues, and works with SQS clients only.
    """

    id: str
    secret: str
    queues: tuple[str, ...] = ("*",)
    actions: tuple[str, ...] = ("*",)
    account: str | None = None  # default: the broker's
    requests_per_second: Annotated[float, Meta(gt=0)] | None = None
    messages_per_second: Annotated[float, Meta(gt=0)] | None = None  # sent
    bytes_per_second: Annotated[float, Meta(gt=0)] | None = None  # sent


class DeclaredQueue(Struct, frozen=True, forbid_unknown_fields=True):
    """A queue to create at startup: attributes by their SQS names, tags, a priority."""

    attributes: dict[str, str | int | bool | dict[str, Any]] = {}
    tags: dict[str, str] = {}
    priority: int = 0

    def notes(self, name: str) -> dict[str, Any]:
        """Return the notes to store for a queue of this name; raise if SQS would refuse it."""
        given = {key: _text(value) for key, value in self.attributes.items()}
        fifo = name.endswith(FIFO_SUFFIX)
        if fifo:
            given["FifoQueue"] = "true"
        with blaming_configuration(name):
            given = checked(given, fifo=fifo)
        return {"attributes": given, "tags": self.tags, "priority": self.priority, "keeps": False}


class Config(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of one broker."""

    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    data: str | None = "./data"  # None: keep everything in memory
    store: str | None = None  # URL of a store that several brokers share, instead of `data`
    durability: Durability = "fsync"
    account: str = "000000000000"
    region: str = "us-east-1"
    keys: tuple[Key, ...] = ()
    anonymous: bool = False  # without keys, serve other machines too
    allowed_hosts: tuple[str, ...] = ()  # without keys, host names that clients may use
    audit_log: str | None = None  # file for administrative actions, one JSON object per line
    tls_certificate: str | None = None
    tls_key: str | None = None
    clock_skew_seconds: int = 300
    purge_interval_seconds: int = 60
    recreate_after_seconds: int = 60
    max_deliveries: int = 5  # of queues that were not created through the SQS API
    in_flight_max: int = 120_000
    idle_seconds: float = limits.IDLE_SECONDS
    stop_seconds: float = 25.0
    connections_max: int = limits.CONNECTIONS_MAX
    request_buffer_bytes_max: int = limits.BUFFERS_BYTES_MAX  # of all incomplete requests together
    queues: dict[str, DeclaredQueue] = {}

    def __post_init__(self) -> None:
        whole("port", self.port, 0, 65_535)
        least = 4 * limits.BODY_BYTES_MAX
        whole("request_buffer_bytes_max", self.request_buffer_bytes_max, least, 1 << 50)
        for account in (self.account, *(key.account for key in self.keys if key.account)):
            if not (account.isascii() and account.isdecimal() and len(account) == 12):
                raise InvalidParameterError("account", account, "12 digits")
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise InvalidParameterError(
                "tls_certificate and tls_key", self.tls_certificate or self.tls_key, "given both"
            )
        if not self.keys and not self.anonymous and not is_loopback(self.host):
            raise InvalidParameterError(
                "host", self.host, "a loopback address (127.0.0.1) while there are no keys, since "
                "anyone who can connect may do everything. Add a key ([[keys]] in pillarbox.toml, "
                "or PILLARBOX_KEY=id:secret), or set anonymous = true (--anonymous, "
                "PILLARBOX_ANONYMOUS=true) where the network itself is guarded",
            )  # fmt: skip
        for name, declared in self.queues.items():
            queue_name(name, "queues")
            whole(f"queues.{name}.priority", declared.priority, 0, PRIORITY_MAX)


@contextmanager
def blaming_configuration(name: str) -> Iterator[None]:
    """Turn an SQS error about this queue into a configuration error."""
    try:
        yield
    except SqsError as error:
        wrong = f"declared as SQS has it ({error.message})"
        raise InvalidParameterError("queues", name, wrong) from error


def _text(value: str | int | bool | dict[str, Any]) -> str:
    """Return a configuration value as SQS writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return msgspec.json.encode(value).decode() if isinstance(value, dict) else str(value)


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def load(path: str | None, flags: Mapping[str, Any], key: str | None = None) -> Config:
    """Read the configuration file, apply flags, and add one more key (`id:secret`).

    If `path` is given, the file must exist.
    """
    settings: dict[str, Any] = {}
    if path is not None or os.path.exists(CONFIG_FILE):
        settings = _read(path or CONFIG_FILE)
    settings |= {name: value for name, value in flags.items() if value is not None}
    if settings.get("data") == "none":
        settings["data"] = None
    if key:
        name, _, secret = key.partition(":")
        if not name or not secret:
            raise InvalidParameterError("key", "(not shown)", "of the form id:secret")
        settings["keys"] = [*settings.get("keys", ()), {"id": name, "secret": secret}]
    if settings.get("data") and settings.get("store"):
        wanted = "none, or not given, with a store: a broker keeps its messages in one of the two"
        raise InvalidParameterError("data", settings["data"], wanted)
    try:
        return msgspec.convert(settings, Config)
    except msgspec.ValidationError as error:
        if isinstance(error.__cause__, InvalidParameterError):
            raise error.__cause__ from None  # its message is complete
        raise InvalidParameterError(
            "configuration", path or CONFIG_FILE, f"valid ({error})"
        ) from error


def _read(path: str) -> dict[str, Any]:
    try:
        with open(path, "rb") as file:
            return tomllib.load(file)
    except FileNotFoundError:
        raise InvalidParameterError("--config", path, "a file that exists") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidParameterError("--config", path, f"valid TOML ({error})") from None
