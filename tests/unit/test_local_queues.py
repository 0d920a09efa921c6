"""Queues of this process that others delete or rename: reply queues, dead letters, redrives."""

from __future__ import annotations

import asyncio
import shutil
import threading
from pathlib import Path

import pytest

from pillarbox import (
    AsyncRequestClient,
    DeadLetterPolicy,
    InMemoryMailbox,
    InvalidParameterError,
    MailboxClosedError,
    MailboxFullError,
    RequestClient,
    open_async_mailbox,
    open_mailbox,
)
from pillarbox.mailbox.durable_store import DurableStore
from pillarbox.mailbox.memory import AsyncInMemoryMailbox
from pillarbox.mailbox.store import Store
from tests.unit.support import start

ABANDONED = "orders-replies-0123456789abcdef"


def test_R39_redrive_by_id_goes_on_after_many_messages_that_are_gone() -> None:
    box = InMemoryMailbox("orders", int, dead_letters=DeadLetterPolicy(1))
    assert box.dead_letters is not None
    ids = box.send_many(range(50))
    box.nack_many(box.receive(max_messages=50))
    assert box.dead_letters.delete(ids[:45]) == 45

    assert box.dead_letters.redrive(ids) == 5
    assert [message.id for message in box.receive(max_messages=50)] == ids[45:]


def test_R39_the_dead_letter_queue_of_a_fifo_queue_has_a_fifo_name() -> None:
    box = InMemoryMailbox("orders.fifo", str, dead_letters=DeadLetterPolicy(1))
    box.send("a")
    for message in box.receive():
        message.nack()
    assert box.dead_letters is not None
    assert box.dead_letters.name == "orders_dlq.fifo"
    assert box.dead_letters.approximate_count() == 1


def test_R39_a_policy_that_could_not_be_stored_has_no_effect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A message that died by it would contradict the log, and the store could not be opened."""

    def disk_full(*_: object) -> None:
        raise MailboxFullError("no space left")

    url = f"file:{tmp_path}/orders"
    with open_mailbox(url, str) as box, open_mailbox(f"{url}_dlq", str) as dead:
        monkeypatch.setattr(DurableStore, "declare", disk_full)
        with pytest.raises(MailboxFullError):
            open_mailbox(url, str, dead_letters=DeadLetterPolicy(1))
        box.send("a")
        for message in box.receive():
            message.nack()

        assert (box.approximate_count(), dead.approximate_count()) == (1, 0)


def test_R39_settings_that_could_not_be_stored_are_stored_by_the_next_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def disk_full(*_: object) -> None:
        raise MailboxFullError("no space left")

    store = DurableStore(tmp_path)
    orders, letters = store.session("orders"), store.session("letters")
    store.set_dead_letters(orders, letters, 5)
    steps = (
        lambda: store.set_dead_letters(orders, letters, 3),
        lambda: store.pause(letters, paused=True),
        lambda: store.keep_dead_letters(orders),
    )
    for step in steps:
        with monkeypatch.context() as patch:
            patch.setattr(DurableStore, "declare", disk_full)
            with pytest.raises(MailboxFullError):
                step()
        assert orders.dead is letters
        assert orders.queue.dead_letters is letters.queue
        assert not letters.queue.settings.paused
    for step in steps[:2]:
        step()
    store.log.close()  # without a snapshot, which would store them

    store = DurableStore(tmp_path)
    assert store.sessions["orders"].queue.settings.max_deliveries == 3
    assert store.sessions["letters"].queue.settings.paused
    store.close()


def test_R24_a_receive_that_would_wait_on_a_deleted_queue_fails() -> None:
    store = Store()
    box = InMemoryMailbox("orders", str, store=store)
    twin = AsyncInMemoryMailbox("orders", str, store=store)
    store.drop("orders")

    with pytest.raises(MailboxClosedError, match="'orders' was deleted"):
        box.receive(wait_time_seconds=20)
    with pytest.raises(MailboxClosedError, match="'orders' was deleted"):
        asyncio.run(twin.receive(wait_time_seconds=20))
    assert list(box.receive()) == []
    assert list(box.messages()) == []


def test_R24_a_deleted_queue_takes_no_message() -> None:
    store = Store()
    box = InMemoryMailbox("orders", str, store=store)
    twin = AsyncInMemoryMailbox("orders", str, store=store)
    store.drop("orders")

    for send in (
        lambda: box.send("a"),
        lambda: box.send_many(["a", "b"]),
        lambda: asyncio.run(twin.send("a")),
        lambda: asyncio.run(twin.send_many(["a", "b"])),
    ):
        with pytest.raises(MailboxClosedError, match="'orders' was deleted"):
            send()
    assert box.approximate_count() == 0


def test_R24_the_settings_of_a_deleted_queue_are_not_stored(tmp_path: Path) -> None:
    """Not even as the dead-letter queue of another: the store could not be opened again."""
    store = DurableStore(tmp_path / "store")
    orders, letters = store.session("orders"), store.session("letters")
    store.drop("letters")
    for change in (
        lambda: store.set_dead_letters(orders, letters, 3),
        lambda: store.set_dead_letters(letters, orders, 3),
        lambda: store.pause(letters, paused=True),
    ):
        with pytest.raises(MailboxClosedError):
            change()
    shutil.copytree(tmp_path / "store", tmp_path / "killed")  # without a snapshot
    store.close()

    store = DurableStore(tmp_path / "killed")
    assert list(store.sessions) == ["orders"]
    store.close()


def test_R21_a_reply_to_a_mailbox_elsewhere_is_refused() -> None:
    store = Store()
    box = InMemoryMailbox("orders", str, store=store)
    box.send("a", reply_to="file:answers")

    for message in box.receive():
        with pytest.raises(InvalidParameterError, match=r"reply_to must be .* 'file:answers'"):
            message.reply("b")
    assert list(store.sessions) == ["orders"]


@pytest.mark.parametrize("place", ["memory", "file"])
def test_R21_clients_that_open_at_the_same_time_keep_their_reply_queues(
    place: str, tmp_path: Path
) -> None:
    url = "memory:opened-together" if place == "memory" else f"file:{tmp_path}/sums"

    async def answer() -> None:
        async with open_async_mailbox(url, int) as requests:
            async for request in requests.messages():
                await request.reply(request.body * 2)
                await request.acknowledge()

    async def main() -> list[int]:
        worker = asyncio.create_task(answer())
        clients = [AsyncRequestClient.open(url, int, int) for _ in range(5)]
        replies = await asyncio.gather(
            *(client.ask(number, timeout=20) for number, client in enumerate(clients))
        )
        await asyncio.gather(*(client.close() for client in clients))
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)
        return replies

    assert asyncio.run(main()) == [0, 2, 4, 6, 8]


def test_R21_a_client_that_could_not_be_opened_leaves_nothing_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def disk_full(*_: object) -> None:
        raise MailboxFullError("no space left")

    monkeypatch.setattr(Store, "keep_reply_queue", disk_full)
    with pytest.raises(MailboxFullError):
        RequestClient.open(f"file:{tmp_path}/orders", str, str)

    DurableStore(tmp_path).close()  # it is not open any more


def test_R21_an_abandoned_reply_queue_is_deleted_once(tmp_path: Path) -> None:
    url = f"file:{tmp_path}"
    with open_mailbox(f"{url}/orders", str), open_mailbox(f"{url}/{ABANDONED}", str) as left:
        left.send("too late")
    with open_mailbox(f"{url}/orders", str) as orders:
        sessions = orders._store.sessions  # type: ignore[attr-defined]
        assert ABANDONED in sessions
        together = threading.Barrier(4)

        def open_client() -> None:
            together.wait()
            RequestClient.open(f"{url}/orders", str, str).close()

        for call in [start(open_client) for _ in range(4)]:
            call.result()
        assert list(sessions) == ["orders"]
