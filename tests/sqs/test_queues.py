"""R36: which queues there are at a place, and the end of one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pillarbox import InvalidParameterError
from pillarbox.mailbox.sqs import SQSMailbox, delete_queue, list_queues, queues
from tests.sqs.broker_server import broker_on_a_fake_clock
from tests.sqs.moto_server import running_moto

NAMES = ["answers.fifo", "orders", "orders_dlq", "sales", "works"]


@pytest.fixture(scope="module", params=[broker_on_a_fake_clock, running_moto])
def place(request: pytest.FixtureRequest) -> Iterator[str]:
    """A server with these queues, as a URL that names none."""
    with request.param() as server:
        for name in NAMES:
            SQSMailbox(name, str, endpoint=server.endpoint, create=True).close()
        yield f"sqs+{server.endpoint}"


def names_of(urls: list[str]) -> list[str]:
    return sorted(url.rpartition("/")[2] for url in urls)


@pytest.mark.parametrize("page", [2, 1_000])
def test_R36_queues_are_listed_page_by_page(
    place: str, page: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queues, "_PAGE", page)
    assert names_of(list_queues(place)) == NAMES
    assert names_of(list_queues(f"{place}/")) == NAMES


def test_R36_their_urls_open_them(place: str) -> None:
    for url in list_queues(place):
        with SQSMailbox(url, str) as box:
            assert box.stats().total == 0
            assert list_queues(url) == [url]
    assert list_queues(f"{place}/nothing") == []


def test_R36_a_deleted_queue_is_gone(place: str) -> None:
    SQSMailbox(f"{place}/brief", str, create=True).close()
    assert names_of(list_queues(place)) == sorted([*NAMES, "brief"])
    delete_queue(f"{place}/brief")
    assert names_of(list_queues(place)) == NAMES
    with pytest.raises(InvalidParameterError, match="a queue that exists"):
        delete_queue(f"{place}/brief")
