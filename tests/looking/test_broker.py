"""R110: no GET, no page and no action that looks changes a byte of what a broker keeps."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import pytest

from pillarbox import InvalidParameterError, open_async_mailbox, open_mailbox
from pillarbox.dashboard import mount
from pillarbox.mailbox.broker import admin
from pillarbox.testing import FakeClock
from pillarbox.testing.broker import RunningBroker, running_broker
from tests.broker.support import Client
from tests.cli.support import pillarbox
from tests.looking.support import POLICY, STATES, bytes_in, check_looks, crawl, in_every_state

LOOKS: dict[str, dict[str, Any]] = {
    "ListQueues": {},
    "GetQueueUrl": {"QueueName": "orders"},
    "GetQueueAttributes": {"QueueUrl": "orders", "AttributeNames": ["All"]},
    "ListDeadLetterSourceQueues": {"QueueUrl": "orders_dlq"},
    "ListQueueTags": {"QueueUrl": "orders"},
    "ListMessageMoveTasks": {"SourceArn": "arn:aws:sqs:us-east-1:000000000000:orders_dlq"},
}


class Scene(NamedTuple):
    """A broker in whose queue time has done something that nobody has noticed."""

    url: RunningBroker
    box: Any
    ids: list[str]
    data: Path

    def kept(self) -> dict[str, bytes]:
        self.url.broker.store.log.flush()  # type: ignore[attr-defined]
        return bytes_in(self.data)


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    clock = FakeClock()
    with running_broker(str(tmp_path), "os", clock=clock) as url:
        mount(url.broker)
        with open_mailbox(f"{url}/orders", str, dead_letters=POLICY) as box:
            ids = in_every_state(box, clock.advance)
            yield Scene(url, box, ids, tmp_path)


def by_mailboxes(scene: Scene) -> None:
    check_looks(scene.box)
    for kind in (bytes, dict, Any):
        for options in ({}, {"create": False}):
            with open_mailbox(f"{scene.url}/orders", kind, **options) as other:
                assert other.stats().total == 6
                assert len(other.peek()) == 4

    async def main() -> None:
        async with open_async_mailbox(f"{scene.url}/orders", bytes) as other:
            assert (await other.stats()).total == 6
            assert len(await other.peek(state="in_flight")) == 1

    asyncio.run(main())
    assert {line.name for line in admin.list_queues(f"{scene.url}/")} == {"orders", "orders_dlq"}


def by_actions_of_sqs(scene: Scene) -> None:
    with Client(scene.url) as sqs:
        for action, parameters in LOOKS.items():
            sqs(action, **parameters)
        told = sqs("GetQueueAttributes", QueueUrl="orders", AttributeNames=["All"])
    assert told["Attributes"]["ApproximateNumberOfMessages"] == "4"


def by_pages(scene: Scene) -> None:
    with Client(scene.url) as sqs:
        seen = crawl(sqs)
        for state in STATES:
            seen |= crawl(sqs, f"/dashboard/queues/orders?state={state}")
        seen |= crawl(sqs, "/dashboard/queues/orders?search=urgent")
        seen |= crawl(sqs, "/dashboard/queues/orders/series")
        for each in scene.ids:
            seen |= crawl(sqs, f"/dashboard/queues/orders/message?id={quote(each)}")
    assert len(seen) > 10


def by_other_gets(scene: Scene) -> None:
    with Client(scene.url) as sqs:
        for path in ("/livez", "/readyz", "/metrics", "/", "/favicon.ico", "/pillarbox/v1/orders"):
            sqs.raw("GET", path)
        for state in STATES:
            _, _, data = sqs.raw("GET", f"/pillarbox/v1/orders/messages?state={state}&max=100")
            assert json.loads(data)["Messages"]
        _, _, data = sqs.raw("GET", "/metrics")
        assert b'queue="orders"' in data


def by_commands(scene: Scene) -> None:
    url = f"{scene.url}/orders"
    for words in (
        ["queue", "ls", str(scene.url)],
        ["queue", "info", url],
        ["peek", url],
        ["peek", f"{url}_dlq", "--json"],
        ["tail", url, "--limit", "1"],
        ["top", str(scene.url), "--once"],
    ):
        assert pillarbox(*words).returncode == 0, words
    for words in (["peek"], ["queue", "info"], ["tail", "--limit", "1"], ["receive"]):
        assert pillarbox(*words, f"{scene.url}/oders").returncode == 1, words


@pytest.mark.parametrize(
    "look",
    [by_mailboxes, by_actions_of_sqs, by_pages, by_other_gets, by_commands],
    ids=lambda look: look.__name__,
)
def test_R110_a_look_changes_no_byte_of_what_a_broker_keeps(
    scene: Scene, look: Callable[[Scene], None]
) -> None:
    before = scene.kept()
    look(scene)
    assert scene.kept() == before


def test_R110_control_an_action_that_is_no_look_is_noticed(scene: Scene) -> None:
    before = scene.kept()
    with Client(scene.url) as sqs:
        sqs("TagQueue", QueueUrl="orders", Tags={"a": "b"})
    assert scene.kept() != before


def test_R110_the_dashboard_and_other_mailboxes_change_no_answer(scene: Scene) -> None:
    answers: Any = open_mailbox(f"{scene.url}/totals", int)
    by_pages(scene)
    with open_mailbox(f"{scene.url}/totals", bytes):
        scene.box.send("how many?", priority=200, reply_to="totals")
        (request,) = scene.box.receive()
        request.reply(5)
        assert [each.body for each in answers.receive()] == [5]
    answers.close()


def test_R110_a_queue_that_is_missing_is_not_made_by_a_look(scene: Scene) -> None:
    before = scene.kept()
    with pytest.raises(InvalidParameterError, match="oders"):
        open_mailbox(f"{scene.url}/oders", str, create=False)
    assert scene.kept() == before
