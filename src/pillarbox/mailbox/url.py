"""`open_mailbox(url, body_type)` opens a mailbox of any backend.

A URL's scheme names a module, which is imported when first needed and has two functions,
`open_url(url, body_type, **options)` and `open_async_url`. A third-party package adds a scheme with
an entry point in the group `pillarbox.backends`: its name is the scheme, its value the module.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Unpack
from urllib.parse import SplitResult, urlsplit

from pillarbox.core import limits
from pillarbox.core.errors import InvalidParameterError
from pillarbox.mailbox.protocol import ANY, AsyncMailbox, B, BodyType, Mailbox, QueueOptions

if TYPE_CHECKING:
    from ssl import SSLContext

    from pillarbox.clock import Clock
    from pillarbox.log import Disk, Retention

ENTRY_POINTS = "pillarbox.backends"


class MailboxOptions(QueueOptions, total=False):
    """The options of `open_mailbox`.

    Those of `QueueOptions` work on every backend, except for `capacity` on SQS. SQS creates a queue
    only with `create=True`, all others unless you pass `create=False`. The others, by backend:

    - `memory:` `max_body_bytes`, `fair`, `clock`
    - `file:` the same, `durability`, `history` (a `Retention`), `segment_bytes` and `disk`
    - `http:` `fair`, `patience_seconds`, `tls`
    - `redis:` `max_body_bytes`, `fair`, `retry_seconds`, `durability`, `replicas`,
      `replica_seconds` and `journal`
    - `postgresql:` `max_body_bytes`, `fair`, `retry_seconds`, `history` (True or False), `pooler`
    - `sqs:` `region`, `endpoint`, `session`, `clock`
    """

    max_body_bytes: int
    fair: bool
    durability: Literal["fsync", "os", "memory", "master", "replicated"]
    history: Retention | bool | None
    segment_bytes: int
    disk: Disk | None
    clock: Clock | None
    patience_seconds: float
    tls: SSLContext | None
    replicas: int
    replica_seconds: float
    journal: bool
    retry_seconds: float
    pooler: bool
    region: str | None
    endpoint: str | None
    session: Any


class _Backend(NamedTuple):
    """The module that opens a scheme, and the form of its URLs."""

    opener: Any  # a module, or its name
    form: str


_BROKER = _Backend("pillarbox.mailbox.broker", "http://host:9324/name")
_REDIS = _Backend("pillarbox.mailbox.redis", "redis://host/name")
_SQS = _Backend("pillarbox.mailbox.sqs", "sqs://region/name")

_SCHEMES = {
    "memory": _Backend("pillarbox.mailbox.memory", "memory:name"),
    "file": _Backend("pillarbox.mailbox.durable", "file:directory/name"),
    "http": _BROKER,
    "https": _BROKER,
    "redis": _REDIS,
    "rediss": _REDIS,
    "redis+cluster": _REDIS,
    "redis+sentinel": _REDIS,
    "rediss+cluster": _REDIS,
    "rediss+sentinel": _REDIS,
    "sqs": _SQS,
    "sqs+http": _SQS,
    "sqs+https": _SQS,
}


def open_mailbox(
    url: str, body_type: BodyType[B] = ANY, **options: Unpack[MailboxOptions]
) -> Mailbox[B]:
    """Open the mailbox at `url`; options are those of its class (see `MailboxOptions`).

    Examples:
        >>> box = open_mailbox("memory:greetings", str)
        >>> _ = box.send("hello")
        >>> [message.body for message in box.receive()]
        ['hello']
    """
    mailbox: Mailbox[B] = opener_of(url).open_url(url, body_type, **options)
    return mailbox


def open_async_mailbox(
    url: str, body_type: BodyType[B] = ANY, **options: Unpack[MailboxOptions]
) -> AsyncMailbox[B]:
    """Create the async mailbox at `url`. Does no I/O: see `AsyncMailbox` on how it is opened."""
    mailbox: AsyncMailbox[B] = opener_of(url).open_async_url(url, body_type, **options)
    return mailbox


def opener_of(url: str) -> Any:
    """Return the module that opens mailboxes of this URL; some modules also list queues."""
    scheme, colon, _ = limits.text("url", url).partition(":")
    split_url(url, "a URL")
    backend = _SCHEMES.get(scheme) or _from_entry_point(scheme)
    if backend is None or not colon:
        raise InvalidParameterError(
            "url", without_password(url), f"of the form {', '.join(_forms())}"
        )
    if not isinstance(backend.opener, str):
        return backend.opener
    return import_module(backend.opener)


def _forms() -> list[str]:
    """Return the URL forms of all backends, including those of installed packages."""
    from importlib.metadata import entry_points  # noqa: PLC0415 - slow to import

    others = {found.name for found in entry_points(group=ENTRY_POINTS)} - _SCHEMES.keys()
    known = dict.fromkeys(each.form for each in _SCHEMES.values())
    return [*known, *(f"{scheme}:..." for scheme in sorted(others))]


def _from_entry_point(scheme: str) -> _Backend | None:
    """Return the backend that an installed package registers for this scheme."""
    from importlib.metadata import entry_points  # noqa: PLC0415 - slow to import

    for found in entry_points(group=ENTRY_POINTS, name=scheme):
        _SCHEMES[scheme] = backend = _Backend(found.load(), f"{scheme}:...")
        return backend
    return None


def split_url(url: str, form: str, parameter: str = "url") -> SplitResult:
    """Return the parts of a URL; raise if a bracket or a password breaks it."""
    try:
        parts = urlsplit(url)
    except ValueError:  # its text may have the password
        form = f"{form}, with a valid host"
        raise InvalidParameterError(parameter, without_password(url), form) from None
    if _ends_in_password(parts):
        form = f"{form}, with / as %2F, ? as %3F and # as %23 in the password"
        raise InvalidParameterError(parameter, without_password(url), form)
    return parts


def without_password(url: str) -> str:
    """Return the URL without its password, for display."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return f"{url.partition('//')[0]}//..."
    if not parts.netloc:  # a file path
        return url
    user, at, hosts = parts.netloc.rpartition("@")
    if _ends_in_password(parts):
        return f"{parts.scheme}://{hosts.partition(':')[0]}:..."
    shown = user.partition(":")[0] + at + hosts
    return parts._replace(netloc=shown, query="").geturl()


def _ends_in_password(parts: SplitResult) -> bool:
    """Return whether user and password have been taken for host and port."""
    host, colon, port = parts.netloc.partition(":")
    if not colon or "@" in parts.netloc or host[:1] == "[":
        return False
    if port.split(",")[0].isdecimal():  # a port; but no name in a path has an @
        return "@" in parts.path
    return any("@" in each for each in (parts.path, parts.query, parts.fragment))
