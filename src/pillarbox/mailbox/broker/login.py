"""How a client with a key shows who it is: one request is signed, the rest carry its token.

The signature is AWS's version 4, so the secret never travels. The token is good for this
broker process, and for those that share its store; whoever can read the traffic can use it, so
give strangers TLS.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time

from pillarbox.mailbox.broker.address import Address
from pillarbox.mailbox.broker.answer import Answer, head_of
from pillarbox.mailbox.broker.retry import good, results_of
from pillarbox.mailbox.broker.wire import (
    PATH,
    SIGNED_FOR,
    Hello,
    Request,
    encode,
)

_ALGORITHM = "AWS4-HMAC-SHA256"
_SIGNED = "host;x-amz-date"


class _Heads(dict[str, bytes]):
    """The heads of requests with this proof, by the queue that they are about."""

    def __init__(self, address: Address, proof: str) -> None:
        self._address = address
        self._proof = proof

    def __missing__(self, queue: str) -> bytes:
        self[queue] = head_of(self._address, queue, self._proof)
        return self[queue]


class Login:
    """Whether a client needs a token, and which one it has."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self.heads = _Heads(address, "")
        self.due = bool(address.access_key)  # a token must be got first

    def request(self) -> tuple[bytes, bytes]:
        """The head and the body of the request for a token."""
        body = encode(Request(secrets.token_bytes(16), 1, "", [Hello()]))
        at = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        proof = _authorization(self._address, body, at)
        return head_of(self._address, "", f"{proof}\r\nX-Amz-Date: {at}"), body

    def take(self, answer: Answer) -> None:
        """The broker's answer to that; raises if it refuses."""
        (welcome,) = results_of(good(answer, self._address), self._address)
        self.heads = _Heads(self._address, f"Pillarbox {welcome.value}")
        self.due = False

    def refused(self, answer: Answer, fresh: bool) -> bool:
        """The broker knows the token no more: it was restarted, or that was long ago.

        `fresh`: it was got for this very request, so another one would fare no better.
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
