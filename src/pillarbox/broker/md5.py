"""The checksums of SQS: clients compare them with their own and fail if they differ."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from pillarbox.broker.shapes import Attribute


def md5_of(body: bytes) -> str:
    return hashlib.md5(body, usedforsecurity=False).hexdigest()


def md5_of_attributes(attributes: Mapping[str, Attribute]) -> str:
    """Sorted by name: length and name, length and type, 1 or 2 for text or bytes, then both."""
    digest = hashlib.md5(usedforsecurity=False)
    for name in sorted(attributes):
        attribute = attributes[name]
        binary = attribute.BinaryValue is not None
        value = attribute.BinaryValue if binary else (attribute.StringValue or "").encode()
        for part in (name.encode(), (attribute.DataType or "").encode()):
            digest.update(len(part).to_bytes(4, "big") + part)
        assert value is not None
        digest.update((b"\x02" if binary else b"\x01") + len(value).to_bytes(4, "big") + value)
    return digest.hexdigest()
