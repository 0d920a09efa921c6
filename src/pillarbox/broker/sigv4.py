"""AWS Signature Version 4: was this request made by someone who has the secret, just now?

Signatures are compared in constant time, in the header form and in the presigned-URL form.
What is signed covers method, path, query, the signed fields (host among them) and the body.
"""

from __future__ import annotations

import calendar
import hashlib
import hmac
import re
import time
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import quote, unquote

from pillarbox.broker.errors import SqsError
from pillarbox.broker.http import Request

_ALGORITHM = "AWS4-HMAC-SHA256"
_TIME = re.compile(r"\d{8}T\d{6}Z\Z", re.ASCII)
_SPACES = re.compile(r" +")
_PRESIGNED_SECONDS_MAX = 604_800


class Signature(NamedTuple):
    """What a request says about how it was signed."""

    key_id: str
    scope: str  # date/region/service/aws4_request
    signed_fields: tuple[str, ...]
    value: str
    time: str
    presigned_seconds: int | None = None  # for how long a presigned URL is good


def region_of(request: Request) -> str:
    """The region that a request says it was signed for; empty if it is not signed."""
    credential = request.headers.get("authorization")
    if credential is None:
        credential = unquote(request.query.partition("X-Amz-Credential=")[2].partition("&")[0])
    parts = credential.split("/", 3)
    return parts[2] if len(parts) == 4 else ""


def signature_of(request: Request) -> Signature:
    """Take the signature apart; raises if there is none, or it is incomplete."""
    header = request.headers.get("authorization")
    if header is None:
        if "X-Amz-Signature=" in request.query:
            return _from_query(request)
        raise SqsError("MissingAuthenticationToken", "Missing Authentication Token")
    algorithm, _, rest = header.partition(" ")
    parts = dict(_pair(part) for part in rest.split(","))
    if algorithm != _ALGORITHM:
        raise _incomplete(f"Unsupported AWS 'algorithm': '{algorithm}'.")
    for name in ("Credential", "SignedHeaders", "Signature"):
        if not parts.get(name):
            raise _incomplete(f"Authorization header requires '{name}' parameter.")
    at = request.headers.get("x-amz-date", "")
    return _signature(parts["Credential"], parts["SignedHeaders"], parts["Signature"], at, None)


def _from_query(request: Request) -> Signature:
    found = dict(_pair(part) for part in request.query.split("&"))
    values = {name: unquote(value) for name, value in found.items()}
    try:
        seconds = int(values.get("X-Amz-Expires", "")[:9])
    except ValueError:
        raise _incomplete("X-Amz-Expires must be a number.") from None
    if values.get("X-Amz-Algorithm") != _ALGORITHM or not 0 < seconds <= _PRESIGNED_SECONDS_MAX:
        raise _incomplete("X-Amz-Algorithm or X-Amz-Expires is not valid.")
    return _signature(
        values.get("X-Amz-Credential", ""),
        values.get("X-Amz-SignedHeaders", ""),
        values.get("X-Amz-Signature", ""),
        values.get("X-Amz-Date", ""),
        seconds,
    )


def _signature(
    credential: str, fields: str, value: str, at: str, presigned: int | None
) -> Signature:
    key_id, _, scope = credential.partition("/")
    parts = scope.split("/")
    if len(parts) != 4 or parts[3] != "aws4_request":
        raise _incomplete("Credential must have exactly 5 slash-delimited elements.")
    if not _TIME.match(at):
        raise _incomplete("Date must be in ISO-8601 'basic format'.")
    signed = tuple(fields.split(";"))
    if "host" not in signed:
        raise SqsError("SignatureDoesNotMatch", "'Host' must be a 'SignedHeader'.")
    return Signature(key_id, scope, signed, value, at, presigned)


def verify(
    request: Request,
    signature: Signature,
    secret: str,
    service: str,
    now_seconds: float,
    skew_seconds: int,
) -> None:
    """Raise unless the request was signed with this secret, for this service, and not long ago."""
    _check_time(signature, now_seconds, skew_seconds)
    _check_service(signature, service)
    # Always that of the body itself: an unsigned body is nobody's word.
    _compare(request, signature, secret, hashlib.sha256(request.body).hexdigest())


def verify_head(
    request: Request, signature: Signature, secret: str, now_seconds: float, skew_seconds: int
) -> None:
    """As `verify`, before the body is here: by the digest that the head gives, if it does."""
    _check_time(signature, now_seconds, skew_seconds)
    digest = request.headers.get("x-amz-content-sha256")
    if digest is not None:
        _compare(request, signature, secret, digest)


def _compare(request: Request, signature: Signature, secret: str, digest: str) -> None:
    date, region, service, _ = signature.scope.split("/")
    canonical = _canonical(request, signature, digest)
    to_sign = "\n".join(
        (_ALGORITHM, signature.time, signature.scope, hashlib.sha256(canonical).hexdigest())
    )
    key = _signing_key(secret, date, region, service)
    expected = hmac.digest(key, to_sign.encode(), "sha256").hex()
    given = signature.value.encode("utf-8", "surrogateescape")
    if not hmac.compare_digest(expected.encode(), given):
        raise SqsError(
            "SignatureDoesNotMatch",
            "The request signature we calculated does not match the signature you provided. "
            "Check your AWS Secret Access Key and signing method.",
        )


def _check_service(signature: Signature, expected: str) -> None:
    if signature.scope.split("/")[2] != expected:
        raise SqsError(
            "SignatureDoesNotMatch",
            f"Credential should be scoped to correct service: '{expected}'.",
        )


def _check_time(signature: Signature, now_seconds: float, skew_seconds: int) -> None:
    if not signature.scope.startswith(signature.time[:8] + "/"):
        raise SqsError(
            "SignatureDoesNotMatch", "Date in Credential scope does not match that of the request."
        )
    try:
        at = _seconds(signature.time)
    except ValueError:
        raise _incomplete("Date must be in ISO-8601 'basic format'.") from None
    late = signature.presigned_seconds or skew_seconds
    if not at - skew_seconds <= now_seconds <= at + late:
        now = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now_seconds))
        raise SqsError(
            "SignatureDoesNotMatch",
            f"Signature expired: {signature.time} is too far from {now} ({skew_seconds} s).",
        )


@lru_cache(256)
def _seconds(text: str) -> int:
    """Many requests of one second say the same time."""
    return calendar.timegm(time.strptime(text, "%Y%m%dT%H%M%SZ"))


@lru_cache(256)
def _signing_key(secret: str, date: str, region: str, service: str) -> bytes:
    key = f"AWS4{secret}".encode()
    for part in (date, region, service, "aws4_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    return key


def _canonical(request: Request, signature: Signature, digest: str) -> bytes:
    """The request in the form in which it was signed."""
    fields = []
    for name in signature.signed_fields:
        value = request.headers.get(name)
        if value is None:
            raise SqsError("SignatureDoesNotMatch", f"Signed field '{name}' is missing.")
        value = value.strip()
        fields.append(f"{name}:{_SPACES.sub(' ', value) if '  ' in value else value}\n")
    for name in request.headers:
        if name.startswith("x-amz-") and name not in signature.signed_fields:
            raise SqsError("SignatureDoesNotMatch", f"Field '{name}' must be signed.")
    path = request.path
    if path != "/":
        path = quote(unquote(path), safe="/-_.~") or "/"
    lines = (
        request.method,
        path,
        _canonical_query(request.query),
        "".join(fields),
        ";".join(signature.signed_fields),
        digest,  # of the body
    )
    return "\n".join(lines).encode("utf-8", "surrogateescape")


def _canonical_query(query: str) -> str:
    pairs = []
    for part in query.split("&") if query else ():
        name, _, value = part.partition("=")
        if name != "X-Amz-Signature":
            name, value = unquote(name.replace("+", " ")), unquote(value.replace("+", " "))
            pairs.append((quote(name, safe="-_.~"), quote(value, safe="-_.~")))
    return "&".join(f"{name}={value}" for name, value in sorted(pairs))


def _pair(text: str) -> tuple[str, str]:
    name, _, value = text.strip().partition("=")
    return name, value


def _incomplete(message: str) -> SqsError:
    return SqsError("IncompleteSignature", message)
