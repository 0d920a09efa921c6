"""R21: request clients that fail, are closed or are cancelled while they ask."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from pillarbox import (
    AsyncInMemoryMailbox,
    AsyncRequestClient,
    InMemoryMailbox,
    MailboxClosedError,
    MailboxConnectionError,
    Message,
    RequestClient,
)
from pillarbox.mailbox.request import _reply_mailbox
from pillarbox.mailbox.store import Store
from tests.unit.support import WatchedClock, start


class Unreturning(InMemoryMailbox[str]):
    """Loses its connection whenever a reply is returned."""

    broken = False

    def release_many(self, messages: Iterable[Message[str]]) -> list[bool]:
        if self.broken:
            raise MailboxConnectionError("gone")
        return super().release_many(messages)


class Office:
    def __init__(self) -> None:
        self.clock = WatchedClock()
        store = Store(self.clock)
        self.requests = InMemoryMailbox("requests", str, store=store)
        self.replies = Unreturning("replies", str, store=store)
        self.client = RequestClient(self.requests, self.replies, clock=self.clock, shared=True)

    def request_of_another(self) -> Message[str]:
        self.requests.send("of another", reply_to="replies")
        return self.requests.receive()[0]

    def until_parked(self) -> None:
        self.clock.wait_until(lambda: len(self.replies._session.waiters) > 0)


def test_R21_a_reply_is_not_lost_because_that_of_another_client_can_t_be_returned() -> None:
    office = Office()
    office.request_of_another().reply("for the other")
    call = start(lambda: office.client.ask("mine", timeout=60))
    (request,) = office.requests.receive(wait_time_seconds=20)
    office.until_parked()  # it holds the reply of the other
    office.replies.broken = True
    request.reply("yours")
    assert call.result() == "yours"


def test_R21_an_ask_that_can_t_return_a_reply_leaves_no_caller_behind() -> None:
    office = Office()
    other = office.request_of_another()
    first = start(lambda: office.client.ask("first", timeout=60))
    (request,) = office.requests.receive(wait_time_seconds=20)
    office.until_parked()
    real = office.requests._session.send

    def send(*arguments: Any, **options: Any) -> Any:
        office.requests._session.send = real  # type: ignore[method-assign]
        office.replies.broken = True
        other.reply("for the other")  # received while this send is on its way
        office.clock.wait_until(lambda: bool(office.client._matching._early))
        return real(*arguments, **options)

    office.requests._session.send = send  # type: ignore[method-assign]
    with pytest.raises(TimeoutError):
        office.client.ask("second", timeout=0)
    assert len(office.client._matching.asks) == 1
    request.reply("yours")
    assert first.result() == "yours"
    assert office.client._leader == 0


def test_R21_an_interrupted_send_passes_the_receiving_on(monkeypatch: pytest.MonkeyPatch) -> None:
    office = Office()
    settle = office.client._settle_unmatched

    def interrupted(unmatched: list[Any]) -> Any:
        monkeypatch.setattr(office.client, "_settle_unmatched", settle)
        raise KeyboardInterrupt

    monkeypatch.setattr(office.client, "_settle_unmatched", interrupted)
    with pytest.raises(KeyboardInterrupt):
        office.client.ask("first", timeout=60)
    assert office.client._leader == 0
    with pytest.raises(TimeoutError):
        office.client.ask("second", timeout=0)


async def until(condition: Callable[[], bool]) -> None:
    """Let other tasks run until this holds."""
    for _ in range(10_000):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("it never held")


@pytest.mark.parametrize("opened", [True, False])
def test_R21_closing_an_async_client_ends_its_asks_at_once(opened: bool) -> None:
    async def main() -> None:
        requests, replies = AsyncInMemoryMailbox[str]("requests"), AsyncInMemoryMailbox[str]("r")
        client: AsyncRequestClient[str, str] = (
            AsyncRequestClient.open("memory:closed-while-asking")
            if opened
            else AsyncRequestClient(requests, replies)
        )
        asks = [asyncio.create_task(client.ask("hello?", timeout=600)) for _ in range(2)]
        await until(lambda: len(client._matching.asks) == 2)
        await client.close()
        for ask in asks:
            with pytest.raises(MailboxClosedError, match="closed before the reply"):
                await ask
        assert client._matching.asks == {}

    asyncio.run(asyncio.wait_for(main(), 20))


class Holding(AsyncInMemoryMailbox[str]):
    """Never finishes returning a message."""

    async def release_many(self, messages: Iterable[Any]) -> list[bool]:
        await asyncio.Event().wait()
        return []


def test_R21_an_ask_cancelled_while_it_returns_a_reply_leaves_nothing_behind() -> None:
    async def main() -> None:
        store = Store()
        requests = AsyncInMemoryMailbox("requests", str, store=store)
        replies = Holding("replies", str, store=store)
        client = AsyncRequestClient(requests, replies, shared=True)
        await requests.send("of another", reply_to="replies")
        (other,) = await requests.receive()
        await other.reply("for the other")
        early = await replies.receive()
        asking = asyncio.create_task(client.ask("mine", timeout=600))
        client._matching.begin()  # a send is on its way
        client._matching.take(early)
        client._matching._sending.clear()
        await until(lambda: bool(client._matching.asks))
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        assert client._matching.asks == {}
        assert client._receiver is None

    asyncio.run(asyncio.wait_for(main(), 20))


class Defective(AsyncInMemoryMailbox[str]):
    async def receive(self, **options: Any) -> Any:
        raise RuntimeError("a fault of this class")


def test_R21_whatever_a_mailbox_raises_reaches_the_async_caller() -> None:
    async def main() -> None:
        requests = AsyncInMemoryMailbox("requests", str)
        client = AsyncRequestClient(requests, Defective("replies", str))
        for _ in range(2):
            with pytest.raises(RuntimeError, match="a fault"):
                await client.ask("mine", timeout=600)

    asyncio.run(asyncio.wait_for(main(), 20))


class Slow(AsyncInMemoryMailbox[str]):
    """Its server does not answer in time."""

    async def send(self, body: str, **options: Any) -> str:
        raise TimeoutError("the server took too long")


def test_R21_a_send_that_times_out_is_not_reported_as_a_missing_reply() -> None:
    async def main() -> None:
        client = AsyncRequestClient(Slow("requests", str), AsyncInMemoryMailbox("replies", str))
        with pytest.raises(TimeoutError, match="took too long"):
            await client.ask("mine", timeout=600)

    asyncio.run(asyncio.wait_for(main(), 20))


class Unacknowledging(InMemoryMailbox[str]):
    """Is closed just before a reply is acknowledged."""

    def acknowledge_many(self, messages: Iterable[Message[str]]) -> list[bool]:
        raise MailboxClosedError("closed meanwhile")


def test_R21_a_caller_gets_its_reply_at_once_though_it_can_t_be_acknowledged() -> None:
    clock = WatchedClock()
    store = Store(clock)
    requests = InMemoryMailbox("requests", str, store=store)
    replies = Unacknowledging("replies", str, store=store)
    client = RequestClient(requests, replies, clock=clock)
    receiving = start(lambda: client.ask("first", timeout=60))
    requests.receive(wait_time_seconds=20)
    clock.wait_until(lambda: len(replies._session.waiters) > 0)
    waiting = start(lambda: client.ask("second", timeout=60))
    (request,) = requests.receive(wait_time_seconds=20)
    clock.wait_until(lambda: len(client._matching.asks) == 2)
    request.reply("yours")
    assert waiting.result() == "yours"
    with pytest.raises(MailboxClosedError):
        receiving.result()


def test_R21_a_client_of_a_fifo_queue_has_a_reply_queue() -> None:
    with RequestClient.open("memory:sums.fifo", int, int) as client:
        requests: InMemoryMailbox[int] = client._requests
        call = start(lambda: client.ask(2, timeout=20, group="g"))
        (request,) = requests.receive(wait_time_seconds=20)
        request.reply(request.body + 1)
        assert call.result() == 3


@pytest.mark.parametrize(
    ("url", "name", "path", "query"),
    [
        ("sqs://us-east-1/us?endpoint=http://us", "us", "sqs://us-east-1/us-replies-", "http://us"),
        ("http://east:9324/a?a=a", "a", "http://east:9324/a-replies-", "?a=a"),
        ("file:./data/a", "a", "file:./data/a-replies-", ""),
    ],
)
def test_R21_the_reply_queue_is_named_in_the_path(
    url: str, name: str, path: str, query: str
) -> None:
    own_url, _ = _reply_mailbox(url, name, {})
    assert own_url.startswith(path)
    assert own_url.endswith(query)
