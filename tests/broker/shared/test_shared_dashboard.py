"""R141: every broker of a shared store shows the same dashboard and the same figures."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Iterator
from itertools import cycle
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import Request, urlopen

import pytest

from pillarbox import __version__
from pillarbox.dashboard import Dashboard, mount
from pillarbox.dashboard.dashboard import REFRESH_SECONDS
from pillarbox.mailbox.runner import run_async
from pillarbox.testing.broker import RunningBroker, running_broker
from tests.broker.shared.stores import SharedClock, StoreKind
from tests.broker.support import Client, World, eventually


class Pages:
    """The dashboards of two brokers: each request goes to the other one."""

    def __init__(self, brokers: list[RunningBroker], dashboards: list[Dashboard]) -> None:
        self._turns = cycle(brokers)
        self.dashboards = dashboards

    def get(self, path: str = "/") -> str:
        for dashboard in self.dashboards:  # what another broker changed is read at once
            dashboard.mailboxes.refresh()
        return str(urlopen(f"{next(self._turns)}/dashboard{path}").read().decode())

    def post(self, path: str, **form: str) -> str:
        """The page that follows; its form came from the other broker."""
        token = re.search(r'name="token" value="([^"]+)"', self.get())
        assert token is not None
        url = next(self._turns)
        next(self._turns)  # the page that follows is this one's, as is the request after it
        headers = {"Origin": str(url), "Content-Type": "application/x-www-form-urlencoded"}
        data = urlencode({"token": token[1], **form}).encode()
        page = str(urlopen(Request(f"{url}/dashboard{path}", data, headers)).read().decode())
        done = re.search(r'role="status">([^<]+)<', page)
        return done[1] if done else ""


@pytest.fixture(scope="module")
def pages(brokers: list[RunningBroker]) -> Pages:
    return Pages(brokers, [mount(each.broker) for each in brokers])


@pytest.fixture
def sqs(world: World) -> Iterator[Client]:
    return world.sqs


def test_R141_a_queue_is_created_changed_and_deleted_in_any_dashboard(
    pages: Pages, sqs: Client
) -> None:
    assert pages.post("/queues", name="by-hand") == "Created queue by-hand."
    assert "by-hand_dlq" in sqs.attributes("by-hand")["RedrivePolicy"]
    assert pages.get().count(">by-hand</a>") == 1
    settings = {"max_deliveries": "2", "dead_letters": "graves", "visibility_timeout": "77"}
    assert pages.post("/queues/by-hand/change", **settings) == "Saved the settings."
    found = sqs.attributes("by-hand")
    assert found["VisibilityTimeout"] == "77"
    assert "graves" in found["RedrivePolicy"]
    assert '"77"' in pages.get("/queues/by-hand")
    with pytest.raises(HTTPError, match="409"):
        pages.post("/queues", name="by-hand")
    assert pages.post("/queues/by-hand/drop", name="by-hand") == "Deleted queue by-hand."
    with pytest.raises(HTTPError, match="404"):
        pages.get("/queues/by-hand")


def test_R141_a_paused_queue_delivers_nothing_at_any_broker(pages: Pages, sqs: Client) -> None:
    queue = sqs("CreateQueue", QueueName="paused")["QueueUrl"]
    assert pages.post("/queues/paused/pause").startswith("Paused")
    sqs.send(queue, "waits")
    for _ in range(2):
        assert sqs.bodies(queue) == []
        assert 'class="badge">paused<' in pages.get()
    assert sqs.attributes(queue)["ApproximateNumberOfMessages"] == "1"
    assert pages.post("/queues/paused/resume") == "Resumed."
    assert sqs.bodies(queue) == ["waits"]


def test_R141_messages_are_shown_with_their_sqs_ids_and_changed_by_them(
    pages: Pages, sqs: Client, clock: SharedClock
) -> None:
    queue = sqs("CreateQueue", QueueName="shown")["QueueUrl"]
    first, second = (sqs.send(queue, text)["MessageId"] for text in ("tea", "cake"))
    later = sqs.send(queue, "toast", DelaySeconds=600)["MessageId"]
    page = pages.get("/queues/shown")
    assert page.index(first) < page.index(second)
    assert later not in page
    assert "Due" in (scheduled := pages.get("/queues/shown?state=scheduled"))
    assert later in scheduled
    assert "cake" in pages.get(f"/queues/shown/message?id={second}")
    assert pages.post("/queues/shown/delete", id=first) == "Deleted 1 message."
    assert pages.post("/queues/shown/send", body="jam").startswith("Sent message ")
    assert sqs.bodies(queue) == ["cake", "jam"]
    assert second in pages.get("/queues/shown?state=in_flight")
    assert pages.post("/queues/shown/purge", name="shown") == "Purged 3 messages."


def test_R141_dead_letters_are_redriven_from_any_dashboard(pages: Pages, world: World) -> None:
    sqs = world.sqs
    queue = "shaky"
    pages.post("/queues", name=queue)
    pages.post("/queues/shaky/change", max_deliveries="1", dead_letters="shaky_dlq")
    sqs.send(queue, "poison")
    (held,) = sqs.receive(queue, VisibilityTimeout=0)
    assert sqs.bodies(queue) == []  # it dies by this
    page = pages.get("/queues/shaky")
    assert "1 dead letter" in page
    assert held["MessageId"] in pages.get("/queues/shaky_dlq")
    assert pages.post("/queues/shaky_dlq/redrive") == "Redrove 1 message."
    assert sqs.bodies(queue) == ["poison"]


def test_R141_the_brokers_of_a_store_are_listed_until_they_are_gone(
    pages: Pages, brokers: list[RunningBroker], kind: StoreKind, clock: SharedClock
) -> None:
    heartbeat = brokers[0].broker.shared.heartbeat  # type: ignore[union-attr]

    def urls() -> set[str]:
        return {each.url for each in heartbeat.brokers()}

    eventually(lambda: urls() >= set(brokers))
    assert {each.version for each in heartbeat.brokers()} == {__version__}
    with running_broker(clock=clock, shared_store=kind.open()) as third:
        eventually(lambda: str(third) in urls())
        for _ in range(2):
            eventually(lambda: str(third) in pages.get())
        assert pages.get().count("this one") == 1
    eventually(lambda: str(third) not in urls())  # it said that it stops
    assert urls() >= set(brokers)


def test_R141_a_broker_that_died_is_forgotten_after_ten_seconds(
    kind: StoreKind, clock: SharedClock, brokers: list[RunningBroker]
) -> None:
    store = kind.open()
    heartbeat = brokers[0].broker.shared.heartbeat  # type: ignore[union-attr]

    def seen() -> bool:
        return any(each.url == "http://gone:1" for each in heartbeat.brokers())

    said = '{"url": "http://gone:1", "version": "0", "since": 0, "queues": {}}'

    async def beat_once() -> None:
        await run_async(store.do, store.beat("dead", 10, said))
        await store.close()

    asyncio.run(beat_once())
    eventually(seen)
    clock.advance(11)
    eventually(lambda: not seen())


def test_R141_metrics_have_the_figures_of_each_queue(
    brokers: list[RunningBroker], sqs: Client
) -> None:
    queue = sqs("CreateQueue", QueueName="counted")["QueueUrl"]
    for text in "abcd":
        sqs.send(queue, text)
    for message in sqs.receive(queue)[:2]:
        sqs("DeleteMessage", QueueUrl=queue, ReceiptHandle=message["ReceiptHandle"])
    sent = deleted = 0
    for url in brokers:
        lines = urlopen(f"{url}/metrics").read().decode().splitlines()
        assert 'pillarbox_messages{queue="counted",state="in_flight"} 2' in lines
        assert 'pillarbox_messages{queue="counted",state="ready"} 0' in lines
        sent += _figure(lines, 'pillarbox_messages_sent_total{queue="counted"}')
        deleted += _figure(lines, 'pillarbox_messages_deleted_total{queue="counted"}')
    assert (sent, deleted) == (4, 2)  # of all brokers together


def _figure(lines: list[str], name: str) -> int:
    return sum(int(line.rpartition(" ")[2]) for line in lines if line.startswith(name))


def test_R141_a_broker_answers_while_a_sample_waits_for_the_store(
    pages: Pages, brokers: list[RunningBroker], sqs: Client
) -> None:
    """A sample needs the event loop, so nothing there may wait for the lock of a sample."""
    sqs.create()
    pages.get()
    pages.get()
    with (
        urlopen(f"{brokers[0]}/dashboard/stream", timeout=60),
        pages.dashboards[0].samples._lock,
    ):
        time.sleep(2 * REFRESH_SECONDS)
        assert urlopen(f"{brokers[0]}/livez", timeout=5).read() == b"ok\n"
