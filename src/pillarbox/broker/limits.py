"""Every limit of the wire, by name; what SQS itself limits is with its actions."""

from __future__ import annotations

from typing import Final

HEAD_BYTES_MAX: Final = 16_384
FIELDS_MAX: Final = 100
BODY_BYTES_MAX: Final = 8 << 20  # 1 MiB of messages, escaped at its worst
PIPELINED_MAX: Final = 64  # requests of one connection that are answered at once
FLUSH_BYTES: Final = 65_536  # an answer of more does not wait for those after it
HEAD_SECONDS_MAX: Final = 5.0
BODY_SECONDS_GRACE: Final = 5.0
BODY_RATE_MIN: Final = 16_384  # bytes a second, after the grace
BODY_STALL_SECONDS_MAX: Final = 15.0  # between two parts of a body
WRITE_SECONDS_MAX: Final = 30.0  # for a client that does not read its answer
SLOW_SECONDS: Final = 2.0  # a request that takes longer is the first to go when memory is short
LINGER_SECONDS_MAX: Final = 5.0  # for a client that sends on after it was refused
TLS_BUFFER_BYTES: Final = 262_144  # what a TLS connection keeps of what it read last


class LimitError(Exception):
    """A limit was broken; status, code and message."""


def head_too_large() -> LimitError:
    return LimitError(
        431, "RequestHeaderSectionTooLarge", "The header section of the request is too large."
    )


def body_too_large() -> LimitError:
    return LimitError(413, "RequestEntityTooLarge", "The request body is too large.")
