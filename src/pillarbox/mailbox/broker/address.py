"""Where a broker is: the URL of a mailbox, read."""

from __future__ import annotations

import re
import ssl
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from pillarbox.core.errors import InvalidParameterError

_FORM = "of the form http://[key:secret@]host[:port]/name"
_ACCOUNT = re.compile(r"/\d{12}\Z")  # as in the queue URLs that SQS clients know
PATIENCE_SECONDS = 15.0
_PORTS = {"http": 80, "https": 443}


class Address(NamedTuple):
    """One broker, and who asks. `tls` is None for plain HTTP."""

    host: str
    port: int
    base: str = ""
    access_key: str = ""
    secret_key: str = ""
    tls: ssl.SSLContext | None = None
    patience_seconds: float = PATIENCE_SECONDS  # how long a broken connection is tried again

    @property
    def authority(self) -> str:
        """Host and port."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def origin(self) -> str:
        """The broker as people write it, without the secret."""
        return f"{'https' if self.tls else 'http'}://{self.authority}{self.base}"


def address_of(
    url: str, tls: ssl.SSLContext | None = None, patience_seconds: float = PATIENCE_SECONDS
) -> tuple[Address, str]:
    """The broker that a URL names, and the queue (empty if it names none)."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise InvalidParameterError("url", url, f"{_FORM} ({error})") from None
    if parts.scheme not in _PORTS or not parts.hostname or parts.query or parts.fragment:
        raise InvalidParameterError("url", url, _FORM)
    base, _, name = parts.path.rpartition("/")
    context = None if parts.scheme == "http" else tls or _default_context()
    return Address(
        parts.hostname,
        _PORTS[parts.scheme] if port is None else port,
        _ACCOUNT.sub("", base),
        unquote(parts.username or ""),
        unquote(parts.password or ""),
        context,
        patience_seconds,
    ), unquote(name)


_contexts: list[ssl.SSLContext] = []


def _default_context() -> ssl.SSLContext:
    """One for all: mailboxes with the same context share their connections."""
    if not _contexts:
        _contexts.append(ssl.create_default_context())
    return _contexts[0]
