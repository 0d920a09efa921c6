"""Verifies AWS Signature Version 4, in the Authorization header and in presigned URLs.

A signature covers method, path, query, the signed header fields (including the host) and the
body. Signatures are compared in constant time.
"""

from __future__ import annotations

import calendar
import hmac
import re
import time
from collections.abc import Mapping
from functools import lru_cache
from hashlib import sha256
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote, unquote

from pillarbox.broker.errors import SqsError
from pillarbox.broker.http import Request
from pillarbox.broker.limits import decimal
from pillarbox.broker.queue_names import is_account

if TYPE_CHECKING:
    from _hashlib import HASH

_ALGORITHM = "AWS4-HMAC-SHA256"
_TIME = re.compile(r"\d{8}T\d{6}Z\Z", re.ASCII)
_SPACES = re.compile(r" +")
# sqs.eu-west-1.localhost, eu-west-1.queue.localhost, /queue/eu-west-1/000000000000/orders
_REGION = r"([a-z]+-[a-z-]+-\d)"
_REGION_OF_HOST = re.compile(rf"sqs\.{_REGION}\.|{_REGION}\.queue\.", re.ASCII)
_REGION_OF_PATH = re.compile(rf"/queue/{_REGION}/", re.ASCII)
_PRESIGNED_SECONDS_MAX = 604_800
_BLOCK_BYTES = 64  # of SHA-256
_CACHED_CHARS_MAX = 600  # of a header; strangers send longer ones


class Signer:
    """Key, scope and signed fields: the same for all requests of a client for a day."""

    def __init__(self, key_id: str, scope: str, fields: str) -> None:
        self.key_id = key_id
        self.scope = scope  # date/region/service/aws4_request
        names = fields.split(";")
        self._values = itemgetter(*names, names[0])  # one more, so that it gives a tuple
        self._amazons = sum(name.startswith("x-amz-") for name in set(names))
        lines = "".join(f"{name}:%s\n" for name in fields.replace("%", "%%").split(";"))
        self._form = f"{lines}\n%.0s{fields.replace('%', '%%')}"

    def fields(self, headers: Mapping[str, str]) -> str:
        """Return the signed header fields in canonical form, followed by their names."""
        try:
            text = self._form % self._values(headers)
        except KeyError as missing:
            raise _mismatch(f"Signed field {missing} is missing.") from None
        if "\n".join(("", *headers)).count("\nx-amz-") != self._amazons:  # in C: half a microsecond
            raise _mismatch("Every field 'x-amz-...' must be signed.")
        return _SPACES.sub(" ", text) if "  " in text else text


class Signature(NamedTuple):
    """The signature of a request."""

    signer: Signer
    value: str
    time: str
    presigned_seconds: int | None = None  # validity of a presigned URL


def region_of(request: Request) -> str:
    """Return the region in a request's credential scope.

    If it is not signed, return the region in its URL, or an empty string.
    """
    parts = _credential(request).split("/", 3)
    if len(parts) == 4:
        return parts[2]
    host = request.headers.get("host", "")
    found = _REGION_OF_HOST.match(host) or _REGION_OF_PATH.match(request.path)
    return found[found.lastindex or 0] if found is not None else ""


def account_of(request: Request) -> str:
    """Return the account that a request uses as its key id, or an empty string."""
    start = _credential(request).partition("/")[0]
    if not start[-12:].isdecimal():  # nearly all of them
        return ""
    key_id = start.rpartition("=")[2]
    return key_id if is_account(key_id) else ""


def _credential(request: Request) -> str:
    """Return text that ends with key id/date/region/service/..."""
    header = request.headers.get("authorization")
    if header is not None:
        return header
    return unquote(request.query.partition("X-Amz-Credential=")[2].partition("&")[0])


def is_presigned(request: Request) -> bool:
    """Whether the signature of a request, valid or not, is in its query."""
    return "X-Amz-Signature=" in request.query and "X-Amz-Credential=" in request.query


def signature_of(request: Request) -> Signature:
    """Parse the signature; raise if it is missing or incomplete."""
    header = request.headers.get("authorization")
    if header is None:
        if "X-Amz-Signature=" in request.query:
            return _from_query(request)
        raise SqsError("MissingAuthenticationToken", "Missing Authentication Token")
    start, _, rest = header.partition("Signature=")
    value, comma, end = rest.partition(",")  # SDKs send it last
    stated, value = start + end if comma else start, value.strip()
    signer = _known_signer(stated) if len(stated) <= _CACHED_CHARS_MAX else _signer_in(stated)
    if not value:
        raise _incomplete("Authorization header requires 'Signature' parameter.")
    return Signature(signer, value, request.headers.get("x-amz-date", ""))


def _signer_in(header: str) -> Signer:
    """Parse the header without the signature itself."""
    algorithm, _, rest = header.partition(" ")
    parts = dict(_pair(part) for part in rest.split(","))
    if algorithm != _ALGORITHM:
        raise _incomplete(f"Unsupported AWS 'algorithm': '{algorithm}'.")
    for name in ("Credential", "SignedHeaders"):
        if not parts.get(name):
            raise _incomplete(f"Authorization header requires '{name}' parameter.")
    return _signer(parts["Credential"], parts["SignedHeaders"])


_known_signer = lru_cache(1024)(_signer_in)


def _from_query(request: Request) -> Signature:
    found = dict(_pair(part) for part in request.query.split("&"))
    values = {name: unquote(value) for name, value in found.items()}
    seconds = decimal(values.get("X-Amz-Expires", ""))
    if seconds is None:
        raise _incomplete("X-Amz-Expires must be a number.")
    if values.get("X-Amz-Algorithm") != _ALGORITHM or not 0 < seconds <= _PRESIGNED_SECONDS_MAX:
        raise _incomplete("X-Amz-Algorithm or X-Amz-Expires is not valid.")
    signer = _signer(values.get("X-Amz-Credential", ""), values.get("X-Amz-SignedHeaders", ""))
    value, at = values.get("X-Amz-Signature", ""), values.get("X-Amz-Date", "")
    return Signature(signer, value, at, seconds)


def _signer(credential: str, fields: str) -> Signer:
    key_id, _, scope = credential.partition("/")
    parts = scope.split("/")
    if len(parts) != 4 or parts[3] != "aws4_request":
        raise _incomplete("Credential must have exactly 5 slash-delimited elements.")
    if "host" not in fields.split(";"):
        raise _mismatch("'Host' must be a 'SignedHeader'.")
    return Signer(key_id, scope, fields)


def verify(
    request: Request,
    signature: Signature,
    secret: str,
    service: str,
    now_seconds: float,
    skew_seconds: int,
) -> None:
    """Raise unless the request was signed with this secret, for this service, recently."""
    _check_time(signature, now_seconds, skew_seconds)
    _check_service(signature, service)
    # Always hash the body itself: UNSIGNED-PAYLOAD is not accepted.
    _compare(request, signature, secret, sha256(request.body).hexdigest())


def verify_head(
    request: Request, signature: Signature, secret: str, now_seconds: float, skew_seconds: int
) -> None:
    """As `verify`, before the body has arrived: trust the digest in the head, if there is one."""
    _check_time(signature, now_seconds, skew_seconds)
    digest = request.headers.get("x-amz-content-sha256")
    if digest is not None:
        _compare(request, signature, secret, digest)


def _compare(request: Request, signature: Signature, secret: str, digest: str) -> None:
    scope = signature.signer.scope
    canonical = sha256(_canonical(request, signature.signer, digest)).hexdigest()
    to_sign = f"{_ALGORITHM}\n{signature.time}\n{scope}\n{canonical}"
    inner, outer = _hashes(secret, scope)
    inner, outer = inner.copy(), outer.copy()
    inner.update(to_sign.encode())
    outer.update(inner.digest())
    given = signature.value.encode("utf-8", "surrogateescape")
    if not hmac.compare_digest(outer.hexdigest().encode(), given):
        raise _mismatch(
            "The request signature we calculated does not match the signature you provided. "
            "Check your AWS Secret Access Key and signing method.",
        )


def _check_service(signature: Signature, expected: str) -> None:
    if signature.signer.scope.split("/")[2] != expected:
        raise _mismatch(f"Credential should be scoped to correct service: '{expected}'.")


def _check_time(signature: Signature, now_seconds: float, skew_seconds: int) -> None:
    at = _seconds(signature.time)
    if not signature.signer.scope.startswith(signature.time[:8]):
        raise _mismatch("Date in Credential scope does not match that of the request.")
    late = signature.presigned_seconds or skew_seconds
    if not at - skew_seconds <= now_seconds <= at + late:
        now = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now_seconds))
        raise _mismatch(
            f"Signature expired: {signature.time} is too far from {now} ({skew_seconds} s)."
        )


@lru_cache(256)
def _seconds(text: str) -> int:
    """Parse a timestamp; cached, because many requests have the same."""
    try:
        if _TIME.match(text):
            return calendar.timegm(time.strptime(text, "%Y%m%dT%H%M%SZ"))
    except ValueError:
        pass
    raise _incomplete("Date must be in ISO-8601 'basic format'.")


@lru_cache(256)
def _hashes(secret: str, scope: str) -> tuple[HASH, HASH]:
    """Return the two hashes of an HMAC for this scope, to copy; `hmac.HMAC` is 1.7 x slower."""
    key = f"AWS4{secret}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    block = key.ljust(_BLOCK_BYTES, b"\0")
    return sha256(block.translate(hmac.trans_36)), sha256(block.translate(hmac.trans_5C))


def _canonical(request: Request, signer: Signer, digest: str) -> bytes:
    """Return the canonical request; `digest` is that of the body."""
    fields, path = signer.fields(request.headers), request.path
    if path != "/":
        path = quote(unquote(path), safe="/-_.~") or "/"
    query = _canonical_query(request.query) if request.query else ""
    text = f"{request.method}\n{path}\n{query}\n{fields}\n{digest}"
    return text.encode("utf-8", "surrogateescape")


def _canonical_query(query: str) -> str:
    pairs = []
    for part in query.split("&"):
        name, _, value = part.partition("=")
        if name != "X-Amz-Signature":
            name, value = unquote(name.replace("+", " ")), unquote(value.replace("+", " "))
            pairs.append((quote(name, safe="-_.~"), quote(value, safe="-_.~")))
    return "&".join(f"{name}={value}" for name, value in sorted(pairs))


def _pair(text: str) -> tuple[str, str]:
    name, _, value = text.strip().partition("=")
    return name, value


def _mismatch(message: str) -> SqsError:
    return SqsError("SignatureDoesNotMatch", message)


def _incomplete(message: str) -> SqsError:
    return SqsError("IncompleteSignature", message)
