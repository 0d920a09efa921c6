"""Refuses what a web page of another site has a browser send to us.

A browser sends some requests for any page without asking first: images, forms, links, simple
fetches. It says so in `Sec-Fetch-Site` or `Origin`, which no page can change; other clients
send neither. A page whose own name is made to resolve to our address (DNS rebinding) counts as
ours to the browser, so without keys the `Host` must be one that we are known by.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Final

from pillarbox.broker.config import is_loopback
from pillarbox.broker.http import Request
from pillarbox.broker.limits import LimitError

_HOST: Final = re.compile(r"([a-z0-9._-]+|\[[0-9a-f:.]+\])(?::[0-9]{0,5})?\Z", re.ASCII)
_OWN_SITE: Final = ("same-origin", "none")  # none: the user typed the address
# Reserved names: nobody can register them, so no page of the web is served under one.
_PRIVATE: Final = (".internal", ".local", ".test", ".home.arpa")


class CrossOriginProtection:
    """Decides for every request, by its head alone, before any handler sees it."""

    def __init__(
        self, listens_at: str, allowed_hosts: Sequence[str] = (), *, any_host: bool = False
    ) -> None:
        self._any_host = any_host  # with keys: a page has none, by whatever name it comes
        self._allowed = [each.lower() for each in allowed_hosts]
        self._own = {"localhost", listens_at.lower(), socket.gethostname().lower()}
        self._private = () if is_loopback(listens_at) else _PRIVATE
        self._is_allowed = lru_cache(256)(self._decide)

    def check(self, request: Request) -> None:
        """Raise LimitError if this request is refused."""
        headers = request.headers
        host = headers.get("host", "").lower()
        if host and not self._is_allowed(host):
            raise LimitError(
                421,
                "MisdirectedRequest",
                f"This broker does not serve the host {host}. If that is one of its names, add it "
                "to allowed_hosts (--allowed-hosts, PILLARBOX_ALLOWED_HOSTS), or give it keys.",
            )
        site, origin = headers.get("sec-fetch-site"), headers.get("origin")
        if site is None and origin is None:
            return  # no browser of today
        own = site in _OWN_SITE if site is not None else self._is_own(origin or "", host)
        if not own and not _is_link(request):
            raise LimitError(
                403,
                "AccessDenied",
                f"A web page of another site ({origin or site}) made this request; web pages can't "
                "use the broker. If the page is the broker's own, behind a proxy that changes the "
                "Host field, add the page's host to allowed_hosts.",
            )

    def _is_own(self, origin: str, host: str) -> bool:
        """The scheme is not compared: a proxy may have taken TLS away."""
        place = origin.partition("://")[2].lower()
        return bool(place) and (place == host or place in self._allowed)

    def _decide(self, host: str) -> bool:
        found = _HOST.match(host)
        if found is None:
            raise LimitError(400, "MalformedHttpRequest", "The Host field names no host.")
        name = found[1].removesuffix(".")
        if self._any_host or name in self._own or name.endswith(".localhost") or _is_address(name):
            return True
        # Only someone on our network can make these resolve, who can then connect directly.
        if self._private and ("." not in name or name.endswith(self._private)):
            return True
        return any(fnmatchcase(each, known) for each in (name, host) for known in self._allowed)


def _is_address(name: str) -> bool:
    """No page is rebound to an address: it is not looked up."""
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True


def _is_link(request: Request) -> bool:
    """A link that the user follows to a page of ours: the other page can't see the answer."""
    return (
        request.method in ("GET", "HEAD")
        and request.headers.get("sec-fetch-mode") == "navigate"
        and request.headers.get("sec-fetch-dest") == "document"
    )
