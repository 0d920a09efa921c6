"""R24, R57: closing ends a long poll by hanging up, and what it would have got is not lost."""

from __future__ import annotations

import ipaddress
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from pillarbox.mailbox.sqs import connection
from pillarbox.mailbox.sqs.mailbox import SQSMailbox
from pillarbox.testing.broker import RunningBroker, running_broker

PROMPT_SECONDS = 5  # a poll lasts 20


@pytest.fixture(scope="module")
def broker() -> Any:
    with running_broker() as url:
        yield url


def wait_until(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + 15
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.005)


def parked_receive(
    box: SQSMailbox[str], broker: RunningBroker
) -> tuple[threading.Thread, list[Any]]:
    got: list[Any] = []
    thread = threading.Thread(
        target=lambda: got.append(box.receive(wait_time_seconds=20)), daemon=True
    )
    thread.start()
    waiters = broker.broker.store.sessions[box.name].waiters
    wait_until(lambda: len(waiters) == 1)
    return thread, got


def test_R24_close_ends_a_long_poll_promptly(broker: RunningBroker) -> None:
    box = SQSMailbox("prompt", str, endpoint=str(broker), create=True)
    thread, got = parked_receive(box, broker)
    box.close()
    thread.join(PROMPT_SECONDS)
    assert got == [[]]
    waiters = broker.broker.store.sessions["prompt"].waiters
    wait_until(lambda: len(waiters) == 0)  # the broker has noticed


def test_R24_control_without_watched_connections_it_lasts(
    broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "_watch", lambda client: None)
    connection.client_of.cache_clear()
    box = SQSMailbox("lasting", str, endpoint=str(broker), create=True)
    other = SQSMailbox("lasting", str, endpoint=str(broker))
    thread, got = parked_receive(box, broker)
    box.close()
    thread.join(0.5)
    assert got == []
    other.send("ends the wait")
    thread.join(PROMPT_SECONDS)
    connection.client_of.cache_clear()
    assert len(got[0]) == 1


def test_R24_the_other_mailboxes_of_a_shared_client_go_on(broker: RunningBroker) -> None:
    box = SQSMailbox("shared", str, endpoint=str(broker), create=True)
    other = SQSMailbox("other", str, endpoint=str(broker), create=True)
    assert connection.shared_client(*box._connection.target) is connection.shared_client(
        *other._connection.target
    )
    closing, _ = parked_receive(box, broker)
    going_on, got = parked_receive(other, broker)
    box.close()
    closing.join(PROMPT_SECONDS)
    assert got == []
    other.send("a")
    going_on.join(PROMPT_SECONDS)
    assert [message.body for message in got[0]] == ["a"]
    assert got[0][0].acknowledge() is True


def test_R24_close_ends_a_long_poll_over_tls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate, key = self_signed(tmp_path)
    monkeypatch.setenv("AWS_CA_BUNDLE", certificate)
    with running_broker(tls_certificate=certificate, tls_key=key) as broker:
        box = SQSMailbox("tls", str, endpoint=str(broker), create=True)
        assert str(broker).startswith("https:")
        box.send("a")
        assert [message.body for message in box.receive(wait_time_seconds=20)] == ["a"]
        thread, got = parked_receive(box, broker)
        box.close()
        thread.join(PROMPT_SECONDS)
        assert got == [[]]


def self_signed(place: Path) -> tuple[str, str]:
    """A certificate for this machine, and its key."""
    secret = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(secret.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(secret, hashes.SHA256())
    )
    certificate, key = place / "certificate.pem", place / "key.pem"
    certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    key.write_bytes(
        secret.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return str(certificate), str(key)
