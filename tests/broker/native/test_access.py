"""R59: who may use the broker through `BrokerMailbox`: keys, their limits, tokens, TLS."""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pillarbox import DeadLetterPolicy, MailboxConnectionError, open_async_mailbox, open_mailbox
from pillarbox.broker import Key
from pillarbox.mailbox.broker import AccessDeniedError, wire
from pillarbox.mailbox.broker.admin import list_queues
from pillarbox.testing.broker import RunningBroker, running_broker
from tests.broker.native.support import RawClient, Relay

KEYS = (
    Key("admin", "s3cret/+ü"),
    Key("shop", "sells", queues=("orders*",), actions=("send",)),
    Key("keeper", "keeps", queues=("orders*",)),
    Key("packer", "packs", queues=("orders*",), actions=("receive",)),
)


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with (
        running_broker(keys=KEYS) as url,
        open_mailbox(with_key(url, "admin", "s3cret%2F%2B%C3%BC"), str),
    ):
        yield url


def with_key(url: str, key: str, secret: str, queue: str = "orders") -> str:
    return f"{url.replace('://', f'://{key}:{secret}@')}/{queue}"


def test_R59_a_key_opens_the_door_and_keeps_it_open(broker: RunningBroker) -> None:
    with open_mailbox(with_key(broker, "admin", "s3cret%2F%2B%C3%BC"), str) as box:
        box.send("a")
        (message,) = box.receive()
        assert message.acknowledge() is True
        assert "s3cret" not in repr(box)


@pytest.mark.parametrize(
    "url", ["{0}/orders", "admin:wrong", "nobody:s3cret", "admin:"], ids=lambda text: text[:12]
)
def test_R59_without_a_good_key_there_is_no_way_in(broker: RunningBroker, url: str) -> None:
    where = url.format(broker) if "{0}" in url else with_key(broker, *url.split(":"))
    with pytest.raises(AccessDeniedError, match="key") as raised:
        open_mailbox(where, str)
    assert "wrong" not in str(raised.value)


def test_R59_an_unsigned_request_and_a_made_up_token_are_refused(broker: RunningBroker) -> None:
    body = wire.encode(wire.Request(b"c" * 16, 1, "", [wire.ListQueues()]))
    with RawClient(broker) as client:
        assert client.post(f"{wire.PATH}/", body)[0] == 401
        for proof in ("Pillarbox ", "Pillarbox xyz", "Bearer x", "AWS4-HMAC-SHA256 x"):
            assert client.post(f"{wire.PATH}/", body, Authorization=proof)[0] == 401


def test_R59_every_byte_of_a_signed_hello_counts(broker: RunningBroker) -> None:
    from pillarbox.mailbox.broker.address import address_of
    from pillarbox.mailbox.broker.login import Login

    address, _ = address_of(with_key(broker, "admin", "s3cret%2F%2B%C3%BC"))
    head, body = Login(address).request()
    fields = dict(line.split(": ", 1) for line in head.decode().split("\r\n")[1:-1])
    fields.pop("Content-Length", None)
    with RawClient(broker) as client:
        assert client.post(f"{wire.PATH}/", body, **fields)[0] == 200
        for place in range(len(body)):
            other = body[:place] + bytes([body[place] ^ 1]) + body[place + 1 :]
            assert client.post(f"{wire.PATH}/", other, **fields)[0] == 401


def test_R59_a_key_does_what_its_role_allows_and_no_more(broker: RunningBroker) -> None:
    with (
        open_mailbox(with_key(broker, "shop", "sells"), str) as shop,
        open_mailbox(with_key(broker, "packer", "packs"), str) as packer,
    ):
        shop.send("tea")
        with pytest.raises(AccessDeniedError, match="ReceiveMessage"):
            shop.receive()
        with pytest.raises(AccessDeniedError, match="SendMessage"):
            packer.send("not mine to send")
        with pytest.raises(AccessDeniedError, match="PurgeQueue"):
            packer.purge()
        (message,) = packer.receive()
        assert message.acknowledge() is True


def test_R59_a_key_sees_its_own_queues_only(broker: RunningBroker) -> None:
    with open_mailbox(with_key(broker, "admin", "s3cret%2F%2B%C3%BC", "secrets"), str):
        pass
    names = [line.name for line in list_queues(with_key(broker, "shop", "sells"))]
    assert "secrets" not in names
    assert "orders" in names
    with pytest.raises(AccessDeniedError):
        open_mailbox(with_key(broker, "shop", "sells", "secrets"), str)
    with pytest.raises(AccessDeniedError, match="CreateQueue"):
        open_mailbox(with_key(broker, "shop", "sells", "orders-new"), str)


def test_R59_dead_letters_can_t_be_sent_where_a_key_may_not_go(broker: RunningBroker) -> None:
    url = with_key(broker, "keeper", "keeps")
    with open_mailbox(url, str, dead_letters=DeadLetterPolicy(2, "orders-graves")):
        pass
    with pytest.raises(AccessDeniedError, match="elsewhere"):
        open_mailbox(url, str, dead_letters=DeadLetterPolicy(2, "elsewhere"))
    assert "elsewhere" not in broker.broker.store.sessions


def test_R59_a_token_that_the_broker_forgot_is_got_anew() -> None:
    with (
        running_broker(keys=KEYS) as first,
        running_broker(keys=KEYS) as second,
        Relay(first) as relay,
        open_mailbox(with_key(relay.url, "admin", "s3cret%2F%2B%C3%BC"), str) as box,
    ):
        box.send("a")
        relay.point_to(second)
        box.send("b")
        assert [message.body for message in box.peek()] == ["b"]


def test_R59_asyncio_shows_its_key_too(broker: RunningBroker) -> None:
    async def case() -> None:
        url = with_key(broker, "admin", "s3cret%2F%2B%C3%BC")
        async with open_async_mailbox(url, str) as box:
            ids = await asyncio.gather(*(box.send(str(n)) for n in range(20)))
            assert len(set(ids)) == 20
            assert await box.purge() == 20

    asyncio.run(asyncio.wait_for(case(), 20))


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A certificate for 127.0.0.1 that vouches for itself."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.UTC)
    here = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(here, critical=False)
        .sign(key, hashes.SHA256())
    )
    folder: Path = tmp_path_factory.mktemp("tls")
    (folder / "cert.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    (folder / "key.pem").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return str(folder / "cert.pem"), str(folder / "key.pem")


def test_R59_mailboxes_speak_tls(certificate: tuple[str, str]) -> None:
    chain, key = certificate
    trusting = ssl.create_default_context(cafile=chain)

    async def case(url: str) -> None:
        async with open_async_mailbox(f"{url}/orders", str, tls=trusting) as box:
            parked = asyncio.create_task(box.receive(wait_time_seconds=20))
            await box.send("from asyncio")
            (message,) = await parked
            assert await message.acknowledge() is True
            idle = asyncio.create_task(box.receive(wait_time_seconds=20))
            await box.stats()
        assert await idle == []

    with running_broker(tls_certificate=chain, tls_key=key) as url:
        assert url.startswith("https://")
        with open_mailbox(f"{url}/orders", bytes, tls=trusting) as box:
            body = b"x" * 1_000_000
            box.send(body)
            (message,) = box.receive()
            assert (message.body, message.acknowledge()) == (body, True)
        asyncio.run(asyncio.wait_for(case(url), 20))


def test_R59_a_broker_that_nobody_vouches_for_is_not_talked_to(
    certificate: tuple[str, str],
) -> None:
    with running_broker(tls_certificate=certificate[0], tls_key=certificate[1]) as url:
        with pytest.raises(MailboxConnectionError, match="certificate") as raised:
            open_mailbox(f"{url}/orders", str, patience_seconds=0.1)
        cause: Any = raised.value.__cause__
        assert isinstance(cause, ssl.SSLError)
