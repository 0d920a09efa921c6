"""Who may come in: SigV4 with keys, what a key is good for, and TLS whose files change."""

from __future__ import annotations

import datetime
import ipaddress
import json
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock
from urllib.parse import urlsplit

import boto3
import botocore.exceptions
import pytest
from botocore.auth import SigV4Auth, SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.config import Config as BotoConfig
from botocore.credentials import Credentials
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from pillarbox.broker import Config, Key
from pillarbox.core.errors import InvalidParameterError
from pillarbox.testing.broker import RunningBroker, running_broker
from tests.broker.rights_world import exchange

KEYS = (
    Key("AKROOT", "root secret"),
    Key("AKORDERS", "orders secret", queues=("orders*",)),
    Key("AKSEND", "send secret", queues=("orders*",), actions=("send",)),
    Key("AKTAKE", "take secret", queues=("orders*",), actions=("receive",)),
    Key("AKPURGE", "purge secret", actions=("PurgeQueue", "read")),
)


@pytest.fixture(scope="module")
def url() -> Iterator[RunningBroker]:
    with running_broker(keys=KEYS) as url:
        _client(url, "AKROOT", "root secret").create_queue(QueueName="orders")
        _client(url, "AKROOT", "root secret").create_queue(QueueName="letters")
        yield url


def _client(url: str, key: str, secret: str, **more: Any) -> Any:
    return boto3.client(
        "sqs",
        endpoint_url=str(url),
        region_name="us-east-1",
        aws_access_key_id=key,
        aws_secret_access_key=secret,
        config=BotoConfig(retries={"max_attempts": 0}),
        **more,
    )


def _refused(call: Any, **parameters: Any) -> str:
    with pytest.raises(botocore.exceptions.ClientError) as refused:
        call(**parameters)
    code: str = refused.value.response["Error"]["Code"]
    return code


def test_R59_botos_own_signature_is_accepted(url: RunningBroker) -> None:
    sqs = _client(url, "AKROOT", "root secret")
    sqs.send_message(QueueUrl="orders", MessageBody="zwölf Kästen & mehr")
    (message,) = sqs.receive_message(QueueUrl="orders", AttributeNames=["SenderId"])["Messages"]
    assert message["Attributes"]["SenderId"] == "AKROOT"
    sqs.delete_message(QueueUrl="orders", ReceiptHandle=message["ReceiptHandle"])


def test_R59_another_secret_is_refused(url: RunningBroker) -> None:
    assert _refused(_client(url, "AKROOT", "wrong").list_queues) == "SignatureDoesNotMatch"


def test_R59_an_unknown_key_is_refused(url: RunningBroker) -> None:
    assert _refused(_client(url, "AKNONE", "root secret").list_queues) == "InvalidClientTokenId"


def test_R59_a_key_is_good_for_its_queues_only(url: RunningBroker) -> None:
    sqs = _client(url, "AKORDERS", "orders secret")
    sqs.get_queue_url(QueueName="orders")
    for call, parameters in (
        (sqs.send_message, {"QueueUrl": "letters", "MessageBody": "a"}),
        (sqs.get_queue_url, {"QueueName": "letters"}),
        (sqs.delete_queue, {"QueueUrl": "letters"}),
        (sqs.create_queue, {"QueueName": "new"}),
    ):
        assert _refused(call, **parameters) == "AccessDenied"
    names = [each.rpartition("/")[2] for each in sqs.list_queues()["QueueUrls"]]
    assert names == ["orders"]


def test_R59_a_key_is_good_for_its_actions_only(url: RunningBroker) -> None:
    sender = _client(url, "AKSEND", "send secret")
    taker = _client(url, "AKTAKE", "take secret")
    sender.send_message(QueueUrl="orders", MessageBody="a")
    assert _refused(sender.receive_message, QueueUrl="orders") == "AccessDenied"
    assert _refused(sender.purge_queue, QueueUrl="orders") == "AccessDenied"
    assert _refused(taker.send_message, QueueUrl="orders", MessageBody="a") == "AccessDenied"
    (message,) = taker.receive_message(QueueUrl="orders")["Messages"]
    taker.delete_message(QueueUrl="orders", ReceiptHandle=message["ReceiptHandle"])
    purger = _client(url, "AKPURGE", "purge secret")
    purger.purge_queue(QueueUrl="letters")
    assert _refused(purger.delete_queue, QueueUrl="letters") == "AccessDenied"


def _raw(
    url: str, method: str, path: str, body: bytes, headers: dict[str, str]
) -> tuple[int, bytes]:
    status, _, data = exchange(url, method, path, body, headers)
    return status, data


def _signed(url: str, body: bytes = b'{"QueueUrl":"orders"}', **more: str) -> dict[str, str]:
    target = {"X-Amz-Target": "AmazonSQS.GetQueueAttributes", **more}
    request = AWSRequest("POST", f"{url}/", data=body, headers=target)
    credentials = Credentials("AKROOT", "root secret")  # type: ignore[no-untyped-call,unused-ignore]
    SigV4Auth(credentials, "sqs", "us-east-1").add_auth(request)  # type: ignore[no-untyped-call,unused-ignore]
    return dict(request.headers.items())


def test_R59_without_a_signature_nothing_is_answered_but_health(url: RunningBroker) -> None:
    target = {"X-Amz-Target": "AmazonSQS.ListQueues"}
    status, data = _raw(url, "POST", "/", b"{}", target)
    assert status == 403
    assert b"MissingAuthenticationToken" in data
    assert _raw(url, "POST", "/", b"Action=ListQueues", {})[0] == 403
    assert _raw(url, "GET", "/livez", b"", {}) == (200, b"ok\n")
    assert _raw(url, "GET", "/readyz", b"", {}) == (200, b"ok\n")


def test_R59_metrics_need_a_key_that_may_do_everything(url: RunningBroker) -> None:
    from base64 import b64encode

    def basic(pair: bytes) -> dict[str, str]:
        return {"Authorization": "Basic " + b64encode(pair).decode()}

    assert _raw(url, "GET", "/metrics", b"", {})[0] == 401
    assert _raw(url, "GET", "/metrics", b"", basic(b"AKROOT:wrong"))[0] in (400, 401)
    assert _raw(url, "GET", "/metrics", b"", basic(b"AKNONE:"))[0] in (400, 401)
    assert _raw(url, "GET", "/metrics", b"", basic(b"AKORDERS:orders secret"))[0] == 403
    assert _raw(url, "GET", "/metrics", b"", basic(b"AKROOT:root secret"))[0] not in (401, 403)


@pytest.mark.parametrize(
    ("minutes", "accepted"), [(-10, False), (-4, True), (0, True), (4, True), (10, False)]
)
def test_R59_a_signature_is_good_within_the_clock_skew(
    url: RunningBroker, minutes: int, accepted: bool
) -> None:
    body = b'{"QueueUrl":"orders"}'
    at = datetime.datetime.now(datetime.UTC) + datetime.timedelta(minutes=minutes)
    with mock.patch("botocore.auth.get_current_datetime", return_value=at.replace(tzinfo=None)):
        headers = _signed(url, body)
    status, data = _raw(url, "POST", "/", body, headers)
    assert (status == 200) is accepted
    assert accepted or b"Signature expired" in data


def test_R59_every_altered_byte_of_what_is_signed_is_noticed(url: RunningBroker) -> None:
    body = b'{"QueueUrl":"orders","AttributeNames":["QueueArn"]}'
    headers = _signed(url, body)
    assert _raw(url, "POST", "/", body, headers)[0] == 200
    for at in range(len(body)):
        altered = body[:at] + bytes([body[at] ^ 1]) + body[at + 1 :]
        assert _raw(url, "POST", "/", altered, headers)[0] == 403
    for name in ("Authorization", "X-Amz-Date", "X-Amz-Target"):
        value = headers[name]
        for at in range(0, len(value), 1 if name != "Authorization" else 3):
            letter = "1" if value[at] != "1" else "2"
            altered_headers = {**headers, name: value[:at] + letter + value[at + 1 :]}
            status, _ = _raw(url, "POST", "/", body, altered_headers)
            assert status in (400, 403, 404), (name, at)
    for method, path in (("PUT", "/"), ("POST", "/x"), ("POST", "/?a=b")):
        assert _raw(url, method, path, body, headers)[0] in (403, 404)
    assert _raw(url, "POST", "/", body, {**headers, "X-Amz-Security-Token": "t"})[0] == 403
    assert _raw(url, "POST", "/", body, {**headers, "Host": "other"})[0] == 403


@pytest.mark.parametrize("expires", ["60", "0000000000060"])
def test_R59_a_presigned_URL_is_good_until_it_expires(url: RunningBroker, expires: str) -> None:
    request = AWSRequest("GET", f"{url}/?Action=GetQueueUrl&QueueName=orders")
    credentials = Credentials("AKROOT", "root secret")  # type: ignore[no-untyped-call,unused-ignore]
    SigV4QueryAuth(credentials, "sqs", "us-east-1", expires=expires).add_auth(request)  # type: ignore[no-untyped-call,unused-ignore]
    path = request.url.removeprefix(str(url))
    status, data = _raw(url, "GET", path, b"", {})
    assert status == 200
    assert b"/orders</QueueUrl>" in data
    assert _raw(url, "GET", path.replace("QueueName=orders", "QueueName=letter"), b"", {})[0] == 403


@pytest.mark.parametrize(
    "header",
    [
        "",
        "Bearer token",
        "AWS4-HMAC-SHA256",
        "AWS4-HMAC-SHA256 Credential=AKROOT, SignedHeaders=host, Signature=0",
        "AWS4-HMAC-SHA256 Credential=AKROOT/20261116/us-east-1/sqs/aws4_request, Signature=0",
        "AWS4-HMAC-SHA256 Credential=AKROOT/1/2/3/aws4_request, SignedHeaders=, Signature=é",
        "AWS4-HMAC-SHA256 " + "Credential=" * 500,
    ],
)
def test_R59_an_incomplete_signature_is_told_to_be_so(url: RunningBroker, header: str) -> None:
    headers = {"X-Amz-Target": "AmazonSQS.ListQueues", "X-Amz-Date": "20261116T000000Z"}
    if header:
        headers["Authorization"] = header.encode("utf-8").decode("latin-1")
    status, data = _raw(url, "POST", "/", b"{}", headers)
    assert status in (400, 403)
    assert b"__type" in data


# -- anonymous ---------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "queues.example"])
def test_R59_without_keys_only_this_machine_is_served(host: str) -> None:
    with pytest.raises(InvalidParameterError, match="keys"):
        Config(host=host)
    Config(host=host, anonymous=True)
    Config(host=host, keys=KEYS)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "127.1.2.3"])
def test_R59_this_machine_needs_no_keys(host: str) -> None:
    assert Config(host=host).keys == ()


# -- TLS ---------------------------------------------------------------------------------------


def _certificate(folder: Path, serial: int) -> tuple[str, str]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(serial)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]),
            critical=False,
        )
        .sign(key, hashes.SHA256())
    )
    chain, secret = folder / "chain.pem", folder / "key.pem"
    chain.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    secret.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return str(chain), str(secret)


def _serial(url: str) -> int:
    where = urlsplit(str(url))
    assert where.hostname
    assert where.port
    pem = ssl.get_server_certificate((where.hostname, where.port))
    return x509.load_pem_x509_certificate(pem.encode()).serial_number


def test_R59_boto_speaks_to_it_over_TLS(tmp_path: Path) -> None:
    chain, key = _certificate(tmp_path, 1)
    with running_broker(tls_certificate=chain, tls_key=key) as url:
        assert url.startswith("https://")
        sqs = _client(url, "x", "y", verify=chain)
        queue = sqs.create_queue(QueueName="orders")["QueueUrl"]
        assert queue.startswith("https://")
        sqs.send_message(QueueUrl=queue, MessageBody="x" * 300_000)
        (message,) = sqs.receive_message(QueueUrl=queue)["Messages"]
        assert len(message["Body"]) == 300_000


def test_R59_a_renewed_certificate_is_used_and_a_bad_one_is_not(tmp_path: Path) -> None:
    chain, key = _certificate(tmp_path, 1)
    with running_broker(tls_certificate=chain, tls_key=key) as url:
        tls = url.broker.tls
        assert tls is not None
        assert _serial(url) == 1
        _certificate(tmp_path, 2)
        assert tls.reload_if_changed()
        assert _serial(url) == 2
        Path(chain).write_text("nonsense")
        assert not tls.reload_if_changed()
        assert _serial(url) == 2
        assert not tls.reload_if_changed()


def test_R59_a_certificate_that_can_not_be_used_is_told_before_it_starts(tmp_path: Path) -> None:
    chain, key = _certificate(tmp_path, 1)
    Path(key).write_text("nonsense")
    with (
        pytest.raises(InvalidParameterError, match="certificate"),
        running_broker(tls_certificate=chain, tls_key=key),
    ):
        pass
    with pytest.raises(InvalidParameterError, match="given both"):
        Config(tls_certificate=chain)


def test_R59_JSON_of_a_refusal_names_no_secret(url: RunningBroker) -> None:
    _, data = _raw(url, "POST", "/", b"{}", {**_signed(url, b"{}"), "X-Amz-Target": "AmazonSQS.x"})
    assert "secret" not in json.dumps(json.loads(data)).lower()
