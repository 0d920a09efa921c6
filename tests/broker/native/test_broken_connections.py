"""R35: a broken connection is made again; what was asked is done once, or said to be unknown."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from pillarbox import MailboxConnectionError, UnknownOutcomeError, open_async_mailbox, open_mailbox
from pillarbox.mailbox.broker import QueueNotFoundError
from pillarbox.mailbox.broker.address import Address
from pillarbox.mailbox.broker.admin import delete_queue
from pillarbox.mailbox.broker.answer import Answer
from pillarbox.mailbox.broker.channel import Channels
from pillarbox.mailbox.broker.pool import BaseChannel
from pillarbox.mailbox.broker.wire import Send, Welcome, encode
from pillarbox.testing.broker import RunningBroker, running_broker
from tests.broker.native.support import PATIENCE_SECONDS, Relay, until


@pytest.fixture
def broker() -> Iterator[RunningBroker]:
    with running_broker() as url:
        yield url


@pytest.fixture
def relay(broker: RunningBroker) -> Iterator[Relay]:
    with Relay(broker) as relay:
        yield relay


def bodies_in(url: str) -> list[Any]:
    with open_mailbox(f"{url}/orders", str) as box:
        return [message.body for message in box.peek(100)]


@pytest.mark.parametrize("lost", ["request", "answer"])
def test_R35_a_send_whose_connection_breaks_is_done_once(relay: Relay, lost: Any) -> None:
    with open_mailbox(f"{relay.url}/orders", str) as box:
        box.send("before")
        relay.break_next.append(lost)
        message_id = box.send("once")
        assert relay.break_next == []
        found = box.peek()
        assert [message.body for message in found] == ["before", "once"]
        assert found[1].id == message_id


def test_R35_control_without_the_channel_s_identity_a_send_is_done_twice(
    relay: Relay, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = BaseChannel.request

    def as_a_stranger(self: BaseChannel, commands: Any, instance: str = "") -> bytes:
        self.identity = os.urandom(16)
        return plain(self, commands, instance)

    monkeypatch.setattr(BaseChannel, "request", as_a_stranger)
    with open_mailbox(f"{relay.url}/orders", str) as box:
        relay.break_next.append("answer")
        box.send("once")
        assert len(box.peek()) == 2


def test_R35_a_large_batch_is_sent_once_though_its_connection_breaks_meanwhile(
    relay: Relay, broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    native = broker.broker.native
    sent, repeated, plain = threading.Event(), threading.Event(), native._send_many

    async def slow(command: Any, name: str) -> Any:
        result = await plain(command, name)
        sent.set()
        await asyncio.to_thread(repeated.wait, PATIENCE_SECONDS)
        return result

    def cut() -> None:
        assert sent.wait(PATIENCE_SECONDS)
        before = relay.requests
        relay.cut()
        until(lambda: relay.requests > before, "the client repeats its request")
        repeated.set()

    with open_mailbox(f"{relay.url}/orders", str) as box:
        monkeypatch.setattr(native, "_send_many", slow)
        cutting = threading.Thread(target=cut)
        cutting.start()
        ids = box.send_many(["once"] * 101)
        cutting.join()
        assert [message.id for message in box.peek(1_000)] == ids


@pytest.mark.parametrize("times", [1, 3])
def test_R35_every_verb_has_its_own_answer_though_its_connection_broke(
    relay: Relay, times: int
) -> None:
    def broken(call: Callable[[], Any]) -> Any:
        relay.break_next += ["answer"] * times
        try:
            return call()
        finally:
            assert relay.break_next == []

    with open_mailbox(f"{relay.url}/orders", str) as box:
        ids = broken(lambda: box.send_many(["a", "b", "c", "d", "e"]))
        assert len(set(ids)) == 5
        first, second, third, *_ = broken(lambda: box.receive(max_messages=5))
        assert broken(first.acknowledge) is True
        assert broken(second.nack) is True
        assert broken(lambda: third.extend_visibility(60)) is True
        assert broken(third.release) is True
        assert broken(lambda: box.delete([ids[1]])) == 1
        assert broken(box.stats).total == 3
        assert broken(box.purge) == 3


def test_R35_a_receive_whose_answer_was_lost_gets_the_same_messages(relay: Relay) -> None:
    with open_mailbox(f"{relay.url}/orders", str) as box:
        box.send_many(["a", "b"])
        relay.break_next.append("answer")
        (message,) = box.receive()
        assert (message.body, message.delivery_count) == ("a", 1)
        assert message.acknowledge() is True
        assert (box.stats().ready, box.stats().in_flight) == (1, 0)


def test_R35_idle_connections_that_ended_are_not_used(relay: Relay) -> None:
    with open_mailbox(f"{relay.url}/orders", str) as box:
        for number in range(3):
            box.send(str(number))
            relay.cut()
        assert [message.body for message in box.peek()] == ["0", "1", "2"]


def test_R35_a_broker_that_forgot_makes_the_outcome_unknown(relay: Relay) -> None:
    with open_mailbox(f"{relay.url}/orders", str) as box, running_broker() as other:
        relay.before_breaking = lambda: relay.point_to(other)
        relay.break_next.append("answer")
        with pytest.raises(UnknownOutcomeError, match="deduplication_id") as raised:
            box.send("perhaps")
        assert not isinstance(raised.value, MailboxConnectionError)  # which promises: not done
        assert raised.value.retryable is False


def test_R35_a_broker_that_forgot_takes_what_it_can_t_have_seen(relay: Relay) -> None:
    """The queue is made again, as it was wanted, and nothing is unknown."""
    with open_mailbox(f"{relay.url}/orders", str) as box, running_broker() as other:
        box.send("lost with the first broker's memory")
        relay.point_to(other)
        box.send("to the second")
        assert bodies_in(other) == ["to the second"]
        assert other.broker.store.sessions["orders"].dead is not None


def test_R35_with_a_deduplication_id_a_durable_broker_s_restart_makes_nothing_unknown(
    tmp_path: Path,
) -> None:
    data = str(tmp_path / "data")
    first = running_broker(data, "os")
    with Relay(first.__enter__()) as relay:
        box = open_mailbox(f"{relay.url}/orders", str)
        restarted = []

        def restart() -> None:
            first.__exit__(None, None, None)
            second = running_broker(data, "os")
            restarted.append(second)
            relay.point_to(second.__enter__())

        relay.before_breaking = restart
        relay.break_next.append("answer")
        message_id = box.send("once", deduplication_id="order-1")
        assert [message.id for message in box.peek()] == [message_id]
        box.close()
        restarted[0].__exit__(None, None, None)


def test_R35_a_deleted_queue_is_not_made_again_by_accident(broker: RunningBroker) -> None:
    with open_mailbox(f"{broker}/orders", str) as box:
        box.send("a")
        delete_queue(f"{broker}/orders")
        with pytest.raises(QueueNotFoundError, match="orders"):
            box.send("b")
        with pytest.raises(QueueNotFoundError):
            box.receive(wait_time_seconds=5)
        assert "orders" not in broker.broker.store.sessions


def nobody_s_url() -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"http://127.0.0.1:{server.getsockname()[1]}/orders"


def test_R35_where_nobody_listens_patience_ends_with_an_error_that_says_so() -> None:
    url = nobody_s_url()
    with pytest.raises(MailboxConnectionError, match="nothing was changed") as raised:
        open_mailbox(url, str, patience_seconds=0.2)
    assert not isinstance(raised.value, UnknownOutcomeError)
    assert url.removesuffix("/orders") in str(raised.value)


def test_R35_a_client_waits_for_a_broker_that_comes_back(tmp_path: Path) -> None:
    data = str(tmp_path / "data")
    with running_broker(data, "os") as url:
        port = url.broker.port
        box = open_mailbox(f"{url}/orders", str)
        box.send("before")
    with pytest.raises(MailboxConnectionError):
        open_mailbox(f"http://127.0.0.1:{port}/orders", str, patience_seconds=0.1).send("x")
    with running_broker(data, "os", port=port):
        box.send("after")
        assert [message.body for message in box.peek()] == ["before", "after"]
        box.close()


def test_R35_a_parked_receive_survives_a_broken_connection(
    broker: RunningBroker, relay: Relay
) -> None:
    async def case() -> None:
        box = await open_async_mailbox(f"{relay.url}/orders", str).open()
        waiters = broker.broker.store.sessions["orders"].waiters
        poll = asyncio.create_task(box.receive(wait_time_seconds=20))
        await asyncio.to_thread(until, lambda: len(waiters) == 1, "the receive is parked")
        before = relay.connections
        relay.cut()
        await asyncio.to_thread(until, lambda: relay.connections > before, "it came again")
        await asyncio.to_thread(until, lambda: len(waiters) == 1, "and parked")
        await box.send("a")
        assert [message.body for message in await poll] == ["a"]
        await box.close()

    asyncio.run(asyncio.wait_for(case(), 20))


@pytest.mark.parametrize("lost", ["request", "answer"])
def test_R35_gathered_sends_whose_connection_breaks_are_done_once(relay: Relay, lost: Any) -> None:
    async def case() -> None:
        box = await open_async_mailbox(f"{relay.url}/orders", str).open()
        relay.break_next += [lost, lost]
        ids = await asyncio.gather(*(box.send(str(n)) for n in range(50)))
        assert relay.break_next == []
        found = await box.peek(100)
        assert [message.id for message in found] == ids
        assert [message.body for message in found] == [str(n) for n in range(50)]
        await box.close()

    asyncio.run(asyncio.wait_for(case(), 20))


def _started(due: bool) -> tuple[Channels, BaseChannel, Generator[Any, Any, Answer]]:
    """A send with a key, before its first attempt; there is no patience for a third one."""
    pool = Channels(Address("127.0.0.1", 9, access_key="k", secret_key="s", patience_seconds=0))
    pool.login.due = due
    channel = pool.take()
    return pool, channel, pool.exchange(channel, "orders", [Send([b"once"])])


def test_R35_a_send_whose_login_was_lost_changed_nothing() -> None:
    _, channel, steps = _started(due=True)
    for step in (next(steps), steps.throw(_lost(channel)), next(steps)):
        assert step == 0.0 or b"AWS4-HMAC-SHA256" in step[0]
    with pytest.raises(MailboxConnectionError, match="nothing was changed"):
        steps.throw(_lost(channel))


def test_R35_a_send_that_was_lost_before_another_login_is_said_to_be_unknown() -> None:
    pool, channel, steps = _started(due=False)
    next(steps)
    assert steps.throw(_lost(channel)) == 0.0
    next(steps)
    steps.send(Answer(401, b"the token has expired", False))
    assert pool.login.due
    steps.send(Answer(200, encode([Welcome("token")]), False))
    with pytest.raises(UnknownOutcomeError):
        steps.throw(ConnectionRefusedError())


def _lost(channel: BaseChannel) -> Exception:
    """What a channel raises for a request that it sent, but that was not answered."""
    channel.began = True
    return ConnectionResetError("lost")
