"""R36: `rediss://` speaks TLS with a real server, and only with the one that it should."""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from pillarbox import MailboxConnectionError, open_async_mailbox, open_mailbox
from pillarbox.testing.redis import RedisServer, directory, free_ports
from tests.redis.world import new_name


class Secured(NamedTuple):
    """A server that speaks TLS on a port of its own."""

    url: str
    certificate: Path
    another: Path  # of somebody else


def certificate(path: Path, name: str) -> tuple[Path, Path]:
    """A new one for this machine, which vouches for itself, and its key."""
    made, key = path / f"{name}.crt", path / f"{name}.key"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2"
    command += " -subj /CN=localhost -addext subjectAltName=IP:127.0.0.1"
    command += f" -keyout {key} -out {made}"
    subprocess.run(command.split(), check=True, capture_output=True)
    return made, key


@pytest.fixture(scope="module")
def secured() -> Iterator[Secured]:
    with directory() as path:
        made, key = certificate(Path(path), "server")
        plain, tls = free_ports(2)
        server = RedisServer(
            path,
            plain,
            *("--tls-port", str(tls), "--tls-auth-clients", "no"),
            *("--tls-cert-file", str(made), "--tls-key-file", str(key)),
            *("--tls-ca-cert-file", str(made)),
        )
        server.start()
        yield Secured(f"rediss://127.0.0.1:{tls}", made, certificate(Path(path), "another")[0])
        server.kill()


def test_R36_a_mailbox_over_tls(secured: Secured) -> None:
    url = f"{secured.url}/{new_name()}?ssl_ca_certs={secured.certificate}"
    with open_mailbox(url, str) as box:
        box.send("a")
        assert [m.body for m in box.receive()] == ["a"]


def test_R36_a_mailbox_over_tls_for_asyncio(secured: Secured) -> None:
    async def case() -> None:
        url = f"{secured.url}/{new_name()}?ssl_ca_certs={secured.certificate}"
        async with open_async_mailbox(url, str) as box:
            await box.send("a")
            assert [m.body for m in await box.receive(wait_time_seconds=5)] == ["a"]

    asyncio.run(case())


def test_R36_a_server_with_the_wrong_certificate_is_refused_at_once(secured: Secured) -> None:
    """The control: the same server, and another's certificate to know it by."""
    url = f"{secured.url}/{new_name()}?ssl_ca_certs={secured.another}"
    started = time.monotonic()
    with pytest.raises(MailboxConnectionError, match="certificate is not trusted"):
        open_mailbox(url, str)

    async def case() -> None:
        async with open_async_mailbox(url, str):
            pass

    with pytest.raises(MailboxConnectionError, match="certificate is not trusted"):
        asyncio.run(case())
    assert time.monotonic() - started < 10  # of the 15 seconds that each would be tried again


def test_R36_a_server_that_nobody_vouches_for_is_refused(secured: Secured) -> None:
    with pytest.raises(MailboxConnectionError, match="certificate is not trusted"):
        open_mailbox(f"{secured.url}/{new_name()}", str)


def test_R36_a_server_that_speaks_tls_is_not_spoken_to_without(secured: Secured) -> None:
    """The control of the port: what goes over it is no plain Redis."""
    plain = secured.url.replace("rediss:", "redis:")
    with pytest.raises(MailboxConnectionError):
        open_mailbox(f"{plain}/{new_name()}?retry_seconds=0.1", str)
