"""The MD5 checksums of SQS, which clients verify."""

from __future__ import annotations

from collections.abc import Mapping

from pillarbox.broker.shapes import Attribute

try:  # CPython's own takes half the time of OpenSSL's for short bodies
    from _md5 import md5  # type: ignore[import-not-found]
except ImportError:
    from hashlib import md5


def md5_of(body: bytes) -> str:
    digest: str = md5(body, usedforsecurity=False).hexdigest()
    return digest


def md5_of_attributes(attributes: Mapping[str, Attribute]) -> str:
    """Hash attributes sorted by name: length-prefixed name, type, 1 (text) or 2 (bytes), value."""
    digest = md5(usedforsecurity=False)
    for name in sorted(attributes):
        attribute = attributes[name]
        binary = attribute.BinaryValue is not None
        value = attribute.BinaryValue if binary else (attribute.StringValue or "").encode()
        for part in (name.encode(), (attribute.DataType or "").encode()):
            digest.update(len(part).to_bytes(4, "big") + part)
        assert value is not None
        digest.update((b"\x02" if binary else b"\x01") + len(value).to_bytes(4, "big") + value)
    text: str = digest.hexdigest()
    return text
