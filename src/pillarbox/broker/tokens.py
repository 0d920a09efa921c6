"""Tokens: a client of the private protocol signs once, and shows what it was given after that.

They live in this process and for half a day; a client that shows one we don't know signs again.
"""

from __future__ import annotations

import secrets
import time
from collections import OrderedDict
from typing import Final

from pillarbox.broker.access import Access, Principal
from pillarbox.broker.errors import SqsError
from pillarbox.broker.http import Request

_SCHEME: Final = "Pillarbox "
_SECONDS_MAX: Final = 43_200
_TOKENS_MAX: Final = 100_000


class Tokens:
    """Who was given which."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._known: OrderedDict[str, tuple[Principal, float]] = OrderedDict()

    def make(self, principal: Principal) -> str:
        token = secrets.token_urlsafe(32)
        self._known[token] = principal, time.monotonic() + _SECONDS_MAX
        if len(self._known) > _TOKENS_MAX:
            self._known.popitem(last=False)
        return token

    def principal(self, request: Request) -> Principal:
        """Whoever shows a token or has signed the request; SqsError if nobody did."""
        shown = request.headers.get("authorization", "")
        if self._access.open_to_all or not shown.startswith(_SCHEME):
            return self._access.principal(request)
        principal = self._holder(shown)
        if principal is None:
            raise SqsError("InvalidClientTokenId", "This token is not known any more.")
        return principal

    def forget_revoked(self) -> None:
        """Forget the tokens of keys that were changed or removed; their clients sign again."""
        for token, (principal, _) in list(self._known.items()):
            if self._access.holder(principal.name) is not principal:
                del self._known[token]

    def shows_key(self, request: Request) -> bool:
        """Whether the head of a request, whose body is still to come, shows who sends it."""
        shown = request.headers.get("authorization", "")
        if shown.startswith(_SCHEME):
            return self._holder(shown) is not None
        return self._access.shows_key(request)

    def _holder(self, shown: str) -> Principal | None:
        # 256 random bits: a look-up tells nothing that could be guessed on.
        principal, until = self._known.get(shown.removeprefix(_SCHEME), (None, 0.0))
        return principal if until >= time.monotonic() else None
