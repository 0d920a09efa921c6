"""TLS: certificates that can be renewed while the broker runs, and writes in slices.

The files are reloaded on SIGHUP, and when their modification times change. New connections use
the new certificate. A bad file is logged, and the old certificate stays.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from typing import Final, cast

from pillarbox.core.errors import InvalidParameterError
from pillarbox.logger import logger

_SLICE_BYTES: Final = 65_536
_PASSED_ON: Final = (  # methods of the transport that need no slicing
    "abort",
    "can_write_eof",
    "get_extra_info",
    "pause_reading",
    "resume_reading",
    "write_eof",
)


class SlicedWrites(asyncio.Protocol):
    """Stands between a connection and its TLS transport, and is the transport of the connection.

    A TLS transport takes all of a response at once and hides how much of it waits for the client.
    So this passes on a slice when there is room for one, and closes after the last one.
    """

    def __init__(self, connection: asyncio.Protocol) -> None:
        self._connection = connection
        self._rest = bytearray()
        self._full = False  # the transport takes no more
        self._paused = False  # the connection has stopped writing
        self._closing = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(_SLICE_BYTES)
        for name in _PASSED_ON:
            setattr(self, name, getattr(transport, name))
        self._connection.connection_made(cast("asyncio.Transport", self))

    def data_received(self, data: bytes) -> None:
        self._connection.data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._connection.connection_lost(exc)
        # No reference cycle: the buffers of the transport are freed now, not by the collector.
        del self._connection

    def pause_writing(self) -> None:
        self._full = True
        if not self._paused:
            self._paused = True
            self._connection.pause_writing()

    def resume_writing(self) -> None:
        self._full = False
        self._write_on()
        if not self._full:
            self._paused = False
            self._connection.resume_writing()
            if self._closing:
                self.close()

    def write(self, data: bytes) -> None:
        self._rest += data
        self._write_on()

    def _write_on(self) -> None:
        while self._rest and not self._full:
            some = bytes(self._rest[:_SLICE_BYTES])
            del self._rest[:_SLICE_BYTES]
            self._transport.write(some)

    def get_write_buffer_size(self) -> int:
        return self._transport.get_write_buffer_size() + len(self._rest)

    def is_closing(self) -> bool:
        return self._closing or self._transport.is_closing()

    def close(self) -> None:
        self._closing = True
        if not self._rest and not self._full:
            self._transport.close()


class Tls:
    """The server's side of TLS."""

    def __init__(self, certificate: str, key: str) -> None:
        self._certificate = certificate
        self._key = key
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            self._load()
        except (OSError, ssl.SSLError) as error:
            raise InvalidParameterError(
                "tls_certificate", certificate, f"a certificate that fits its key ({error})"
            ) from error
        self._times = self._seen()

    def _load(self) -> None:
        # Load into a separate context first: a bad pair must not damage the one in use.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(self._certificate, self._key)
        self.context.load_cert_chain(self._certificate, self._key)

    def _seen(self) -> tuple[int, ...]:
        try:
            return tuple(os.stat(path).st_mtime_ns for path in (self._certificate, self._key))
        except OSError:
            return ()

    def reload_if_changed(self) -> bool:
        """Reload the files if they changed; return whether the new ones are in use."""
        times = self._seen()
        if times == self._times:
            return False
        self._times = times
        return self.reload()

    def reload(self) -> bool:
        try:
            self._load()
        except (OSError, ssl.SSLError) as error:
            logger.error("the new certificate can't be used; the old one stays", error=str(error))
            return False
        logger.info("the certificate was renewed", certificate=self._certificate)
        return True
