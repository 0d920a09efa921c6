"""TLS with certificates that can be renewed while the broker runs.

The files are reloaded on SIGHUP, and when their modification times change. New connections use
the new certificate. A bad file is logged, and the old certificate stays.
"""

from __future__ import annotations

import os
import ssl

from pillarbox.core.errors import InvalidParameterError
from pillarbox.logger import logger


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
