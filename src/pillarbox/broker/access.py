"""Authentication: the keys, and the queues and actions that each key allows.

Without keys, every client is allowed everything. `rights` says which rights a request needs.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import time
from collections.abc import Iterable
from fnmatch import fnmatchcase
from functools import lru_cache, partial
from typing import Final

from pillarbox.broker.config import Config, Key
from pillarbox.broker.errors import SqsError
from pillarbox.broker.http import Request, Response
from pillarbox.broker.quotas import quota_of
from pillarbox.broker.sigv4 import account_of, signature_of, verify, verify_head
from pillarbox.broker.translation import SENDER_NOTE

_SENDS = frozenset(("SendMessage", "SendMessageBatch"))
_RECEIVES = frozenset(
    (
        "ReceiveMessage",
        "DeleteMessage",
        "DeleteMessageBatch",
        "ChangeMessageVisibility",
        "ChangeMessageVisibilityBatch",
    )
)
_READS = frozenset(
    (
        "GetQueueUrl",
        "GetQueueAttributes",
        "ListQueues",
        "ListQueueTags",
        "ListDeadLetterSourceQueues",
    )
)
LOG_IN: Final = {"WWW-Authenticate": 'Basic realm="pillarbox", charset="UTF-8"'}
_BEARER: Final = "Pillarbox "  # begins the Authorization field of a client that has one
_TOKEN_SECONDS_MAX: Final = 43_200
_ACCOUNTS_MAX: Final = 1_000
_CACHED_CHARS_MAX: Final = 200  # more than any name of a queue has, with region and account
_ROLES: Final = {"send": _SENDS | _READS, "receive": _RECEIVES | _READS, "read": _READS}


class Principal:
    """The sender of a request. A role is `send`, `receive`, `read`, `*` or an action's name."""

    def __init__(self, key: Key | None, account: str) -> None:
        self.name = key.id if key is not None else ""
        self.notes = {SENDER_NOTE: self.name} if self.name else None  # of what it sends
        self.account = key.account or account if key is not None else account
        self._key = key
        self.has_own_account = self.account != account
        self.is_unlimited = key is None or ("*" in key.queues and "*" in key.actions)
        self.quota = quota_of(key)
        self._decided = lru_cache(4096)(self._decide)

    def may(self, action: str, queue: str) -> bool:
        """Whether this action is allowed on this queue."""
        if self.is_unlimited:
            return True
        # A name from a request may be of any length; cached ones must not fill the memory.
        decide = self._decided if len(queue) <= _CACHED_CHARS_MAX else self._decide
        return decide(action, queue)

    def check(self, action: str, queue: str) -> None:
        """Raise AccessDenied if this action is not allowed on this queue."""
        if not self.may(action, queue):
            raise self.denied(action, queue)

    def denied(self, action: str, queue: str) -> SqsError:
        return SqsError(
            "AccessDenied",
            f"User: {self.name} is not authorized to perform: sqs:{action} on resource: {queue}",
        )

    def _decide(self, action: str, queue: str) -> bool:
        assert self._key is not None
        name = queue.rpartition(":")[2]  # without its region and account
        if not any(fnmatchcase(name, each) for each in self._key.queues):
            return False
        return any(
            role in ("*", action) or action in _ROLES.get(role, ()) for role in self._key.actions
        )


class Access:
    """Identifies the sender of each request."""

    def __init__(self, config: Config) -> None:
        self._keys: dict[str, Key] = {}
        self._principals: dict[str, Principal] = {}
        self.token_secret = secrets.token_bytes(32)  # brokers that share a store share it
        self._account = config.account
        self._everyone = Principal(None, config.account)
        # Without keys: clients of other accounts.
        self._of_account = lru_cache(_ACCOUNTS_MAX)(partial(Principal, None))
        self.replace_keys(config.keys)
        self._skew_seconds = config.clock_skew_seconds

    def replace_keys(self, keys: Iterable[Key]) -> None:
        """Replace all keys. A key that did not change keeps its principal and its quota."""
        before, self._keys = self._keys, {key.id: key for key in keys}
        self._principals = {
            key.id: self._principals[key.id]
            if before.get(key.id) == key
            else Principal(key, self._account)
            for key in self._keys.values()
        }

    @property
    def open_to_all(self) -> bool:
        return not self._keys

    def holder(self, key_id: str) -> Principal:
        """Return the principal of a key; that of a revoked key is allowed nothing."""
        if not key_id or not self._keys:
            return self._everyone
        return self._principals.get(key_id) or Principal(Key(key_id, "", (), ()), self._account)

    def principal(self, request: Request, service: str = "sqs") -> Principal:
        """Return the principal that signed this request with SigV4; without keys, anyone."""
        if not self._keys:
            account = account_of(request)  # a client's key id names it
            return self._of_account(account) if account else self._everyone
        signature = signature_of(request)
        key = self._keys.get(signature.signer.key_id)
        if key is None:
            raise SqsError(
                "InvalidClientTokenId", "The security token included in the request is invalid."
            )
        verify(request, signature, key.secret, service, time.time(), self._skew_seconds)
        return self._principals[key.id]

    def shows_key(self, request: Request) -> bool:
        """Whether the head of a request identifies its sender, before its body is read."""
        shown = request.headers.get("authorization", "")
        if not self._keys or self._by_password(shown) is not None:
            return True
        if shown.startswith(_BEARER):
            return self._by_token(shown) is not None
        try:
            signature = signature_of(request)
            key = self._keys.get(signature.signer.key_id)
            if key is not None:
                verify_head(request, signature, key.secret, time.time(), self._skew_seconds)
        except SqsError:
            return False
        return key is not None

    def known(self, request: Request) -> Principal:
        """Return the principal that signed this request, or sent a token or a key's secret."""
        if not self._keys:
            return self._everyone
        shown = request.headers.get("authorization", "")
        if not shown.startswith(_BEARER):
            return self._by_password(shown) or self.principal(request)
        principal = self._by_token(shown)
        if principal is None:
            raise SqsError("InvalidClientTokenId", "This token is no longer valid.")
        return principal

    def new_token(self, principal: Principal) -> str:
        """Return a bearer token for a client of the private protocol that has signed once.

        It expires after half a day, or when the secret of its key changes.
        """
        until = int(time.time()) + _TOKEN_SECONDS_MAX
        claims = base64.urlsafe_b64encode(f"{until}.{principal.name}".encode()).decode()
        return f"{claims}.{self._seal(claims, self._keys.get(principal.name))}"

    def _seal(self, claims: str, key: Key | None) -> str:
        text = f"{claims}.{key.secret if key is not None else ''}".encode()
        secret = self.token_secret
        return hashlib.blake2b(text, key=secret, digest_size=32, person=b"token").hexdigest()

    def refuse(self, request: Request) -> Response | None:
        """Outside SQS: return None for a key with every right, else the refusal.

        Clients sign as for SQS, or send the key's id and secret as HTTP's Basic credentials.
        """
        if "authorization" not in request.headers:
            return Response(401, b"a key is needed: its id and secret, or a signature\n", LOG_IN)
        try:
            principal = self.known(request)
        except SqsError as error:
            if request.headers["authorization"].lower().startswith("basic "):
                return Response(401, b"no key has this id and secret\n", LOG_IN)  # ask once more
            return Response(error.kind.status, f"{error.message}\n".encode(), LOG_IN)
        if not principal.is_unlimited or principal.has_own_account:
            return Response(403, b"this key may only be used through SQS\n")
        return None

    def _by_token(self, shown: str) -> Principal | None:
        claims, _, seal = shown.removeprefix(_BEARER).rpartition(".")
        try:
            until, _, name = base64.urlsafe_b64decode(claims).decode().partition(".")
        except ValueError:
            return None
        key = self._keys.get(name)
        sealed = self._seal(claims, key).encode()
        if key is None or not hmac.compare_digest(seal.encode(), sealed):
            return None
        return self._principals[name] if int(until) >= time.time() else None

    def _by_password(self, shown: str) -> Principal | None:
        scheme, _, encoded = shown.partition(" ")
        if scheme.lower() != "basic":
            return None
        try:
            name, _, secret = base64.b64decode(encoded, validate=True).partition(b":")
            key = self._keys.get(name.decode())
        except ValueError:
            return None
        expected = key.secret.encode() if key is not None else b""
        if not hmac.compare_digest(secret, expected) or key is None:
            return None
        return self._principals[key.id]
