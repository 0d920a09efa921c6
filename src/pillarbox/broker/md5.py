"""The checksums of SQS: clients compare them with their own and fail if they differ."""

from __future__ import annotations

from collections.abc import Mapping

from pillarbox.broker.shapes import Attribute

try:  # the interpreter's own: for a short body it takes half the time that OpenSSL's takes
    from _md5 import md5  # type: ignore[import-not-found]
except ImportError:
    from hashlib import md5


def md5_of(body: bytes) -> str:
    digest: str = md5(body, usedforsecurity=False).hexdigest()
    return digest


def md5_of_attributes(attributes: Mapping[str, Attribute]) -> str:
    """Sorted by name: length and name, length and type, 1 or 2 for text or bytes, then both."""
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
