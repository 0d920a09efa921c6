"""The address of a broker, parsed from the URL of a mailbox."""

from __future__ import annotations

import re
import ssl
from functools import cache
from typing import NamedTuple
from urllib.parse import unquote

from pillarbox.core.errors import InvalidParameterError
from pillarbox.mailbox.url import split_url, without_password

_FORM = "of the form http://[key:secret@]host[:port]/name"
_ACCOUNT = re.compile(r"/\d{12}\Z")  # the account id in SQS queue URLs
PATIENCE_SECONDS = 15.0
_PORTS = {"http": 80, "https": 443}


class Address(NamedTuple):
    """A broker and the client's credentials. `tls` is None for plain HTTP."""

    host: str
    port: int
    base: str = ""
    access_key: str = ""
    secret_key: str = ""
    tls: ssl.SSLContext | None = None
    patience_seconds: float = PATIENCE_SECONDS  # how long to retry a lost connection

    @property
    def authority(self) -> str:
        """Host and port."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def origin(self) -> str:
        """The broker's URL without credentials."""
        return f"{'https' if self.tls else 'http'}://{self.authority}{self.base}"


def address_of(
    url: str, tls: ssl.SSLContext | None = None, patience_seconds: float = PATIENCE_SECONDS
) -> tuple[Address, str]:
    """Return the broker and the queue (possibly empty) that a URL names."""
    parts = split_url(url, _FORM)
    try:
        port, key = parts.port, unquote(parts.username or "")
        f"{parts.hostname}{unquote(parts.path)}{key}".encode("latin-1")  # as requests need it
    except UnicodeEncodeError:
        form = f"{_FORM}, with characters of Latin-1 only"
        raise InvalidParameterError("url", without_password(url), form) from None
    except ValueError:  # its text may have the secret
        raise InvalidParameterError("url", without_password(url), _FORM) from None
    if parts.scheme not in _PORTS or not parts.hostname or parts.query or parts.fragment:
        raise InvalidParameterError("url", without_password(url), _FORM)
    base, _, name = parts.path.rpartition("/")
    context = None if parts.scheme == "http" else tls or _default_context()
    return Address(
        parts.hostname,
        _PORTS[parts.scheme] if port is None else port,
        _ACCOUNT.sub("", base),
        key,
        unquote(parts.password or ""),
        context,
        patience_seconds,
    ), unquote(name)


@cache
def _default_context() -> ssl.SSLContext:
    """Return the shared default context; mailboxes with the same context share connections."""
    return ssl.create_default_context()
