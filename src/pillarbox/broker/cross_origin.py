"""Refuses cross-origin requests that a web page makes a browser send to the broker.

A browser sends some requests for any page without a preflight: images, forms, links, simple
fetches. It marks them with `Sec-Fetch-Site` or `Origin`, which no page can change; other clients
send neither. After DNS rebinding, a page counts as same-origin to the browser, so without keys
the `Host` must be one of the broker's own names.
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
# Reserved names: nobody can register them, so no public website has one.
_PRIVATE: Final = (".internal", ".local", ".test", ".home.arpa")


class CrossOriginProtection:
    """Checks the head of every request before any handler sees it."""

    def __init__(
        self, listens_at: str, allowed_hosts: Sequence[str] = (), *, any_host: bool = False
    ) -> None:
        self._any_host = any_host  # with keys, a page can't do anything under any name
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
            return  # not a current browser
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
        """Compare host and port, not the scheme: a proxy may terminate TLS."""
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


def may_be_browser(request: Request) -> bool:
    """Whether a browser may have sent this request, even one without `Sec-Fetch-Site`.

    Every browser's user agent begins with Mozilla, and a page needs a preflight to change it.
    SDKs, libraries and command-line tools have other user agents.
    """
    agent = request.headers.get("user-agent", "")
    return not agent or agent.startswith("Mozilla/") or "accept-language" in request.headers


def _is_address(name: str) -> bool:
    """Whether a name is an IP address, which is not looked up and so can't be rebound."""
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True


def _is_link(request: Request) -> bool:
    """Whether the user followed a link here; the other page can't read the response."""
    return (
        request.method in ("GET", "HEAD")
        and request.headers.get("sec-fetch-mode") == "navigate"
        and request.headers.get("sec-fetch-dest") == "document"
    )
