"""Client authentication: one request is signed, the others carry the token it returns.

The signature is AWS Signature Version 4, so the secret is never sent. The token is valid for this
broker process and those that share its store. Anyone who can read the traffic can use it: use TLS
on untrusted networks.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time

from pillarbox.mailbox.broker.address import Address
from pillarbox.mailbox.broker.answer import Answer, good, head_of, results_of
from pillarbox.mailbox.broker.wire import PATH, SIGNED_FOR, Hello, Request, encode

_ALGORITHM = "AWS4-HMAC-SHA256"
_SIGNED = "host;x-amz-date"
_HEADS_MAX = 1_000


class _Heads(dict[str, bytes]):
    """Request heads with this token, by queue."""

    def __init__(self, address: Address, proof: str) -> None:
        self._address = address
        self._proof = proof

    def __missing__(self, queue: str) -> bytes:
        if len(self) >= _HEADS_MAX:  # each client of a worker may have a queue for its answers
            self.clear()
        head = self[queue] = head_of(self._address, queue, self._proof)
        return head


class Login:
    """The token of a client, and whether it needs one."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self.heads = _Heads(address, "")
        self.due = bool(address.access_key)  # a token must be requested first

    def request(self) -> tuple[bytes, bytes]:
        """Return the head and body of the request for a token."""
        body = encode(Request(secrets.token_bytes(16), 1, "", [Hello()]))
        at = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        proof = _authorization(self._address, body, at)
        return head_of(self._address, "", f"{proof}\r\nX-Amz-Date: {at}"), body

    def take(self, answer: Answer) -> None:
        """Store the token from the response; raise if the broker refused."""
        (welcome,) = results_of(good(answer, self._address), self._address)
        self.heads = _Heads(self._address, f"Pillarbox {welcome.value}")
        self.due = False

    def refused(self, answer: Answer, fresh: bool) -> bool:
        """Return whether to log in again, because the token expired or the broker was restarted.

        `fresh`: the token was requested for this very request, so a new one would not help.
        """
        if answer.status != 401 or not self._address.access_key or fresh:
            return False
        self.due = True
        return True


def _authorization(address: Address, body: bytes, at: str) -> str:
    canonical = "\n".join(
        (
            "POST",
            f"{address.base}{PATH}/",
            "",
            f"host:{address.authority}\nx-amz-date:{at}\n",
            _SIGNED,
            hashlib.sha256(body).hexdigest(),
        )
    )
    parts = (at[:8], *SIGNED_FOR, "aws4_request")
    scope = "/".join(parts)
    digest = hashlib.sha256(canonical.encode()).hexdigest()
    key = f"AWS4{address.secret_key}".encode()
    for part in parts:
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    to_sign = "\n".join((_ALGORITHM, at, scope, digest))
    signature = hmac.new(key, to_sign.encode(), hashlib.sha256).hexdigest()
    credential = f"Credential={address.access_key}/{scope}"
    return f"{_ALGORITHM} {credential}, SignedHeaders={_SIGNED}, Signature={signature}"
