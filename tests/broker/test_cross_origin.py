"""R115: a web page of another site can do nothing at a broker; other clients notice nothing."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import boto3
import pytest

from pillarbox import open_mailbox
from pillarbox.broker import Config, Key
from pillarbox.broker.cross_origin import CrossOriginProtection
from pillarbox.broker.http import Request
from pillarbox.broker.limits import LimitError
from pillarbox.broker.sqs import ACTIONS
from pillarbox.core.errors import MailboxError
from pillarbox.dashboard import mount
from pillarbox.mailbox.broker import wire
from pillarbox.testing.broker import RunningBroker, running_broker
from tests.broker.support import Client
from tests.broker.test_security import _client as signed_client
from tests.broker.test_security import _signed as signed_fields

HERE = "127.0.0.1:9324"


def _status(protection: CrossOriginProtection, method: str, fields: dict[str, str]) -> int:
    try:
        protection.check(Request(method, "/", headers=fields))
    except LimitError as error:
        return int(error.args[0])
    return 200


# -- who asks ----------------------------------------------------------------------------------

PAGE = {"sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
FRAME = {"sec-fetch-mode": "navigate", "sec-fetch-dest": "iframe"}


@pytest.mark.parametrize(
    ("method", "fields", "status"),
    [
        # No browser: SDKs, the AWS CLI, curl, Prometheus.
        ("POST", {}, 200),
        ("GET", {}, 200),
        # The dashboard's own pages, and an address that was typed.
        ("POST", {"origin": f"http://{HERE}"}, 200),
        ("POST", {"origin": f"http://{HERE}", "sec-fetch-site": "same-origin"}, 200),
        ("GET", {"sec-fetch-site": "same-origin"}, 200),
        ("GET", {"sec-fetch-site": "none", **PAGE}, 200),
        ("POST", {"origin": f"https://{HERE}"}, 200),  # a proxy took TLS away
        ("POST", {"origin": "https://proxy.example", "sec-fetch-site": "same-origin"}, 200),
        # Pages of others.
        ("POST", {"origin": "http://evil.example"}, 403),
        ("POST", {"origin": "null"}, 403),
        ("POST", {"origin": ""}, 403),
        ("POST", {"origin": "file://"}, 403),
        ("POST", {"origin": "http://127.0.0.1:3000"}, 403),  # another program of this machine
        ("POST", {"origin": "http://localhost:9324"}, 403),  # another name is another origin
        ("POST", {"origin": f"http://{HERE}.evil.example"}, 403),
        ("POST", {"origin": f"http://evil.example/{HERE}"}, 403),
        ("POST", {"origin": f"http://{HERE},http://evil.example"}, 403),  # two fields
        ("GET", {"sec-fetch-site": "cross-site"}, 403),
        ("GET", {"sec-fetch-site": "same-site"}, 403),  # localhost:3000 to localhost:9324
        ("GET", {"sec-fetch-site": "same-origin,cross-site"}, 403),
        ("GET", {"sec-fetch-site": ""}, 403),
        ("POST", {"origin": f"http://{HERE}", "sec-fetch-site": "cross-site"}, 403),
        ("OPTIONS", {"origin": "http://evil.example", "sec-fetch-site": "cross-site"}, 403),
        # A link is followed, but nothing is posted, framed or fetched.
        ("GET", {"sec-fetch-site": "cross-site", **PAGE}, 200),
        ("POST", {"sec-fetch-site": "cross-site", **PAGE}, 403),
        ("GET", {"sec-fetch-site": "cross-site", **FRAME}, 403),
        ("GET", {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"}, 403),
    ],
)
def test_R115_the_fields_that_no_page_can_forge_decide(
    method: str, fields: dict[str, str], status: int
) -> None:
    for protection in (
        CrossOriginProtection("127.0.0.1"),
        CrossOriginProtection("0.0.0.0", any_host=True),  # keys or not
    ):
        assert _status(protection, method, {"host": HERE, **fields}) == status


def test_R115_a_page_behind_a_proxy_that_changes_the_host_can_be_allowed() -> None:
    fields = {"host": HERE, "origin": "https://queues.example"}
    assert _status(CrossOriginProtection("127.0.0.1"), "POST", fields) == 403
    allowed = CrossOriginProtection("127.0.0.1", ["queues.example"])
    assert _status(allowed, "POST", fields) == 200
    other_port = {**fields, "origin": "https://queues.example:8443"}
    assert _status(allowed, "POST", other_port) == 403
    assert _status(CrossOriginProtection("127.0.0.1", ["*"]), "POST", fields) == 403


# -- by which name -----------------------------------------------------------------------------

LOOPBACK, NETWORK = CrossOriginProtection("127.0.0.1"), CrossOriginProtection("0.0.0.0")


@pytest.mark.parametrize(
    ("host", "on_loopback", "on_network"),
    [
        ("127.0.0.1:9324", 200, 200),
        ("127.0.0.1", 200, 200),
        ("[::1]:9324", 200, 200),
        ("192.0.2.7:9324", 200, 200),  # an address is not looked up, so it can't be rebound
        ("localhost:9324", 200, 200),
        ("LOCALHOST.:9324", 200, 200),
        ("queues.localhost", 200, 200),
        (socket.gethostname(), 200, 200),
        ("", 200, 200),  # HTTP/1.0, and no browser
        ("broker:9324", 421, 200),  # as containers call each other
        ("broker_1", 421, 200),
        ("broker.default.svc.cluster.local", 421, 200),
        ("host.docker.internal:9324", 421, 200),
        ("evil.example:9324", 421, 421),
        ("localhost.evil.example", 421, 421),
        ("127.0.0.1.evil.example", 421, 421),
        ("evil-localhost.com", 421, 421),
        ("0x7f.1", 421, 421),
        ("evil.example/localhost", 400, 400),
        ("localhost@evil.example", 400, 400),
        ("localhost, evil.example", 400, 400),
        ("[::1].evil.example", 400, 400),
        ("löcalhost", 400, 400),
        ("<script>", 400, 400),
    ],
)
def test_R115_without_keys_a_host_must_be_one_that_we_are_known_by(
    host: str, on_loopback: int, on_network: int
) -> None:
    assert _status(LOOPBACK, "POST", {"host": host}) == on_loopback
    assert _status(NETWORK, "POST", {"host": host}) == on_network
    keys = CrossOriginProtection("0.0.0.0", any_host=True)
    assert _status(keys, "POST", {"host": host}) == (400 if on_network == 400 else 200)


@pytest.mark.parametrize(
    ("allowed", "host", "status"),
    [
        ("queues.example", "queues.example", 200),
        ("queues.example", "Queues.Example:1234", 200),
        ("queues.example:1234", "queues.example:1234", 200),
        ("queues.example:1234", "queues.example:99", 421),
        ("*.example", "queues.example", 200),
        ("*.example", "evil.com", 421),
        ("*", "evil.com", 200),
    ],
)
def test_R115_more_hosts_can_be_allowed(allowed: str, host: str, status: int) -> None:
    assert _status(CrossOriginProtection("127.0.0.1", [allowed]), "GET", {"host": host}) == status
    assert Config(allowed_hosts=(allowed,)).allowed_hosts == (allowed,)


# -- every route -------------------------------------------------------------------------------


class Ask(NamedTuple):
    method: str
    path: str
    body: bytes
    fields: dict[str, str]


def _commands(*commands: wire.Command) -> bytes:
    return wire.encode(wire.Request(b"c" * 16, 1, "", list(commands)))


FORM = {"Content-Type": "application/x-www-form-urlencoded"}
ROUTES = {
    "JSON": Ask(
        "POST",
        "/",
        b'{"QueueUrl": "orders", "MessageBody": "a"}',
        {"X-Amz-Target": "AmazonSQS.SendMessage"},
    ),
    "query": Ask("POST", "/", b"Action=SendMessage&QueueUrl=orders&MessageBody=a", FORM),
    "query in the URL": Ask("POST", "/?Action=SendMessage&QueueUrl=orders&MessageBody=a", b"", {}),
    "query as text": Ask(
        "POST",
        "/",
        b"Action=SendMessage&QueueUrl=orders&MessageBody=a",
        {"Content-Type": "text/plain"},
    ),
    "a look by GET": Ask("GET", "/?Action=ListQueues", b"", {}),
    "private protocol": Ask(
        "POST",
        "/pillarbox/v1/orders",
        _commands(wire.Purge()),
        {"Content-Type": "application/msgpack"},
    ),
    "window": Ask("GET", "/pillarbox/v1/orders/messages", b"", {}),
    "dashboard": Ask("GET", "/", b"", {}),
    "page of a queue": Ask("GET", "/dashboard/queues/orders", b"", {}),
    "file of the dashboard": Ask("GET", "/dashboard/static/app.js", b"", {}),
    "metrics": Ask("GET", "/metrics", b"", {}),
    "livez": Ask("GET", "/livez", b"", {}),
    "readyz": Ask("GET", "/readyz", b"", {}),
}
FOREIGN = {
    "origin": ({"Origin": "http://evil.example"}, 403),
    "no origin": ({"Origin": "null"}, 403),
    "another port": ({"Origin": "http://127.0.0.1:1", "Sec-Fetch-Site": "same-site"}, 403),
    "image": ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}, 403),
    "rebound name": ({"Host": "evil.example", "Sec-Fetch-Site": "same-origin"}, 421),
}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with running_broker(str(tmp_path_factory.mktemp("store") / "data"), "os") as url:
        mount(url.broker)
        with Client(url) as sqs:
            sqs("CreateQueue", QueueName="orders")
            sqs.send("orders", "here before")
        yield url


def _ask(url: RunningBroker, ask: Ask, more: dict[str, str]) -> tuple[int, bytes]:
    where = urlsplit(str(url))
    connection = http.client.HTTPConnection(where.hostname or "", where.port, timeout=30)
    try:
        connection.request(ask.method, ask.path, ask.body, {**ask.fields, **more})
        answer = connection.getresponse()
        assert not any(name.lower().startswith("access-control") for name, _ in answer.getheaders())
        return answer.status, answer.read()
    finally:
        connection.close()


@pytest.mark.parametrize("foreign", FOREIGN)
@pytest.mark.parametrize("route", ROUTES)
def test_R115_no_route_answers_a_page_of_another_site(
    url: RunningBroker, route: str, foreign: str
) -> None:
    more, status = FOREIGN[foreign]
    before = url.broker.store.log.next_index  # type: ignore[attr-defined]
    found, data = _ask(url, ROUTES[route], more)
    assert found == status
    assert b"allowed_hosts" in data  # what to change
    assert b"here before" not in data
    assert url.broker.store.log.next_index == before  # type: ignore[attr-defined]


@pytest.mark.parametrize("route", ROUTES)
def test_R115_control_every_route_answers_a_plain_client(route: str) -> None:
    with running_broker() as url:
        mount(url.broker)
        with Client(url) as sqs:
            sqs("CreateQueue", QueueName="orders")
        assert _ask(url, ROUTES[route], {})[0] == 200


@pytest.mark.parametrize("foreign", FOREIGN)
@pytest.mark.parametrize("route", ["query", "private protocol", "dashboard"])
def test_R115_control_without_the_check_a_page_is_obeyed(
    monkeypatch: pytest.MonkeyPatch, route: str, foreign: str
) -> None:
    monkeypatch.setattr(CrossOriginProtection, "check", lambda *_: None)
    with running_broker() as url:
        mount(url.broker)
        with Client(url) as sqs:
            sqs("CreateQueue", QueueName="orders")
        assert _ask(url, ROUTES[route], FOREIGN[foreign][0])[0] == 200


def test_R115_a_head_that_was_read_before_makes_no_way_around(url: RunningBroker) -> None:
    """Heads of good requests are remembered; those of refused ones must not be."""
    for _ in range(3):
        assert _ask(url, ROUTES["query"], {"Origin": "http://evil.example"})[0] == 403
    with Client(url) as sqs:
        for _ in range(3):
            assert sqs("ListQueues")["QueueUrls"]


# -- GET ---------------------------------------------------------------------------------------

LOOKS = {
    "ListQueues": "",
    "GetQueueUrl": "QueueName=orders",
    "GetQueueAttributes": "QueueUrl=orders&AttributeName.1=All",
    "ListQueueTags": "QueueUrl=orders",
    "ListDeadLetterSourceQueues": "QueueUrl=orders",
    "ListMessageMoveTasks": "SourceArn=arn:aws:sqs:us-east-1:000000000000:orders",
}
CHANGES = sorted(ACTIONS.keys() - LOOKS.keys())


@pytest.mark.parametrize("action", CHANGES)
@pytest.mark.parametrize("forged", ["", "&X-Amz-Signature=0&X-Amz-Algorithm=AWS4-HMAC-SHA256"])
def test_R115_a_GET_changes_nothing_unless_it_is_signed(
    url: RunningBroker, action: str, forged: str
) -> None:
    before = url.broker.store.log.next_index  # type: ignore[attr-defined]
    query = "QueueUrl=orders&QueueName=other&MessageBody=a&Tag.1.Key=a&Tag.1.Value=b"
    ask = Ask("GET", f"/?Action={action}&{query}{forged}", b"", {})
    status, data = _ask(url, ask, {})
    assert status == 403
    assert b"use POST" in data
    assert url.broker.store.log.next_index == before  # type: ignore[attr-defined]


PRESIGNED = "&X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=k%2F20260101&X-Amz-Signature=0"


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"user-agent": "python-requests/2.32.3", "accept": "*/*"}, 200),
        ({"user-agent": "curl/8.5.0"}, 200),
        ({"user-agent": "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36"}, 403),
        ({"user-agent": "player/1.0", "accept-language": "en"}, 403),
        ({}, 403),
    ],
)
def test_R115_a_presigned_GET_changes_something_unless_a_browser_sent_it(
    url: RunningBroker, fields: dict[str, str], status: int
) -> None:
    """A page can forge what is in a query, but not by what name its browser goes."""
    form = "Action=SendMessage&QueueUrl=orders&MessageBody=a"
    for query, expected in ((form, 403), (form + PRESIGNED, status)):
        assert _ask(url, Ask("GET", f"/?{query}", b"", {}), fields)[0] == expected


@pytest.mark.parametrize("action", LOOKS)
def test_R115_a_GET_may_look(url: RunningBroker, action: str) -> None:
    assert _ask(url, Ask("GET", f"/?Action={action}&{LOOKS[action]}", b"", {}), {})[0] == 200


# -- clients notice nothing --------------------------------------------------------------------


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost"])
def test_R115_clients_notice_nothing(name: str) -> None:
    with running_broker() as url:
        endpoint = url.replace("127.0.0.1", name)
        sqs = boto3.client(
            "sqs",
            endpoint_url=endpoint,
            region_name="us-east-1",
            aws_access_key_id="any",
            aws_secret_access_key="any",
        )
        queue = sqs.create_queue(QueueName="orders")["QueueUrl"]
        assert queue.startswith(endpoint)
        sqs.send_message(QueueUrl=queue, MessageBody="by SQS")
        with open_mailbox(f"{endpoint}/orders", str) as box:
            (message,) = box.receive()
            assert message.body == "by SQS"
            assert box.acknowledge_many([message]) == [True]


def test_R115_with_keys_a_client_may_know_the_broker_by_any_name() -> None:
    """It has signed the name; a page has no key, by whatever name it comes."""
    with running_broker(keys=(Key("AKROOT", "root secret"),)) as url:
        signed_client(url, "AKROOT", "root secret").create_queue(QueueName="orders")
        body = b'{"QueueUrl":"orders"}'
        host = f"queues.example:{urlsplit(str(url)).port}"
        fields = signed_fields(f"http://{host}", body)
        status, _ = _ask(url, Ask("POST", "/", body, fields), {"Host": host})
        assert status == 200
        assert _ask(url, ROUTES["query"], {"Host": host})[0] == 403


def test_R115_a_refused_host_tells_what_to_do(tmp_path: Path) -> None:
    with running_broker(allowed_hosts=("queues.example",)) as url, Client(url) as sqs:
        fields = {"X-Amz-Target": "AmazonSQS.ListQueues", "Host": "other.example"}
        status, told, data = sqs.raw("POST", "/", b"{}", fields)
        assert (status, told["x-amzn-query-error"]) == (421, "MisdirectedRequest;Sender")
        message = json.loads(data)["message"]
        assert "other.example" in message
        assert "--allowed-hosts" in message
        good = {**fields, "Host": "queues.example"}
        assert sqs.raw("POST", "/", b"{}", good)[0] == 200


def test_R115_a_mailbox_tells_why_its_host_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with running_broker() as url:
        port = urlsplit(str(url)).port
        real = socket.create_connection
        monkeypatch.setattr(
            socket, "create_connection", lambda _, *more, **options: real(("127.0.0.1", port))
        )  # as if the name were looked up
        with pytest.raises(MailboxError, match="allowed_hosts"):
            open_mailbox(f"http://queues.example:{port}/orders", str)


# -- the dashboard -----------------------------------------------------------------------------


@pytest.mark.parametrize("route", ["dashboard", "page of a queue", "file of the dashboard"])
def test_R115_nobody_may_frame_or_embed_the_dashboard(url: RunningBroker, route: str) -> None:
    with Client(url) as client:
        _, told, _ = client.raw("GET", ROUTES[route].path)
    assert "frame-ancestors 'none'" in told["content-security-policy"]
    assert told["x-frame-options"] == "DENY"
    assert told["referrer-policy"] == "same-origin"
    assert told["cross-origin-opener-policy"] == "same-origin"
    assert "set-cookie" not in told


@pytest.mark.parametrize(
    "route", ["dashboard", "a look by GET", "window", "metrics", "livez", "readyz"]
)
def test_R115_no_answer_to_a_GET_may_be_embedded(url: RunningBroker, route: str) -> None:
    with Client(url) as client:
        _, told, _ = client.raw("GET", ROUTES[route].path)
    assert told["cross-origin-resource-policy"] == "same-origin"
    assert told["x-content-type-options"] == "nosniff"
