"""Limits of the HTTP server; those of SQS are in `core.sqs_limits`."""

from __future__ import annotations

from typing import Final

HEAD_BYTES_MAX: Final = 16_384  # header section of a request
FIELDS_MAX: Final = 100  # header fields
BODY_BYTES_MAX: Final = 8 << 20  # body of a request: 1 MiB of messages, escaped at its worst
CONNECTIONS_MAX: Final = 50_000  # open connections (connections_max)
IDLE_SECONDS: Final = 75.0  # time until an idle connection is closed (idle_seconds)
PIPELINED_MAX: Final = 64  # pipelined requests of one connection that are processed at once
FLUSH_BYTES: Final = 65_536  # a larger response does not wait for those that follow it
HEAD_SECONDS_MAX: Final = 5.0  # time for the header section to arrive
BODY_SECONDS_GRACE: Final = 5.0  # time before BODY_RATE_MIN applies
BODY_RATE_MIN: Final = 16_384  # bytes per second at which a body must arrive
BODY_STALL_SECONDS_MAX: Final = 15.0  # longest pause within a body
WRITE_SECONDS_MAX: Final = 30.0  # time to read a response, before WRITE_RATE_MIN applies
WRITE_RATE_MIN: Final = 16_384  # bytes per second at which a client must read, then
BUFFERS_BYTES_MAX: Final = 64 << 20  # of all incomplete requests (request_buffer_bytes_max)
SLOW_SECONDS: Final = 2.0  # requests that take longer are refused first if memory runs out
LINGER_SECONDS_MAX: Final = 5.0  # how long a refused client may go on sending
TLS_BUFFER_BYTES: Final = 262_144  # read buffer of a TLS connection


def decimal(text: str) -> int | None:
    """Return the whole number in a text; None if it is none.

    Python refuses to parse thousands of digits. Of a number with more than 12 only the first 13
    count: it exceeds every limit all the same.
    """
    if not (text.isascii() and text.isdecimal()):
        return None
    return int(text.lstrip("0")[:13] or "0")


class LimitError(Exception):
    """A limit was exceeded; args are status, code and message."""


def head_too_large() -> LimitError:
    return LimitError(
        431, "RequestHeaderSectionTooLarge", "The header section of the request is too large."
    )


def body_too_large() -> LimitError:
    return LimitError(413, "RequestEntityTooLarge", "The request body is too large.")
