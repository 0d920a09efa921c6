"""Lost answers, lost servers, full memory and foreign hands in our keys."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterator

import pytest

from pillarbox import (
    DeadLetterPolicy,
    MailboxConnectionError,
    MailboxFullError,
    UnknownOutcomeError,
)
from pillarbox.mailbox.redis import (
    AsyncRedisMailbox,
    RedisMailbox,
    RefusedError,
)
from pillarbox.mailbox.redis.keys import keys_of
from pillarbox.mailbox.redis.scripts import Scripts, script_of
from pillarbox.testing.redis import RedisServer, directory, free_ports, shared_server, until
from tests.interrupts import held_after_late_undo
from tests.redis.world import CuttingProxy, new_name, open_box, proxied


@pytest.fixture
def proxy() -> Iterator[CuttingProxy]:
    with proxied(shared_server().port) as each:
        yield each


@pytest.fixture
def box(proxy: CuttingProxy) -> Iterator[RedisMailbox[str]]:
    with open_box(url=f"redis://127.0.0.1:{proxy.port}/-") as each:
        each.send("warm up")
        each.purge()
        yield each


@pytest.mark.parametrize("times", [1, 3])
def test_R33_a_send_whose_answer_was_lost_is_sent_once(
    box: RedisMailbox[str], proxy: CuttingProxy, times: int
) -> None:
    proxy.cut_next_answer(times)
    message_id = box.send("a")
    assert proxy.cut == times
    assert [(m.id, m.body) for m in box.receive(max_messages=10)] == [(message_id, "a")]


def test_R33_a_batch_whose_answer_was_lost_is_sent_once(
    box: RedisMailbox[str], proxy: CuttingProxy
) -> None:
    proxy.cut_next_answer()
    ids = box.send_many(["a", "b", "c"])
    assert [m.id for m in box.receive(max_messages=10)] == ids


def test_R33_a_send_is_known_though_its_message_is_done_meanwhile(
    box: RedisMailbox[str], proxy: CuttingProxy
) -> None:
    with open_box(name=box.name) as other:
        done = threading.Event()

        def work() -> None:
            (message,) = other.receive(wait_time_seconds=10)
            message.acknowledge()
            done.set()

        worker = threading.Thread(target=work)
        worker.start()
        proxy.cut_next_answer(6)
        box.send("a")
        worker.join()
        assert done.is_set()
        assert box.stats().total == 0


def test_R33_without_the_session_it_would_be_sent_twice(
    box: RedisMailbox[str], proxy: CuttingProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: the script forgets who sent, and what."""
    forgetful = Scripts()
    said = b'call("SET", session, number .. answer'
    assert said in forgetful["send"].text
    text = forgetful["send"].text.replace(said, b'call("SET", session, "x"')
    forgetful["send"] = script_of("send", text)
    monkeypatch.setattr(box._verbs.queue, "_scripts", forgetful)
    box.send("so that the server knows the script")
    box.purge()
    proxy.cut_next_answer()
    box.send("a")
    assert len(box.receive(max_messages=10)) == 2


def test_R33_a_lost_answer_to_acknowledge_is_a_typed_error(
    box: RedisMailbox[str], proxy: CuttingProxy
) -> None:
    box.send("a")
    (message,) = box.receive()
    proxy.cut_next_answer()
    with pytest.raises(UnknownOutcomeError, match=box.name) as raised:
        message.acknowledge()
    assert not isinstance(raised.value, MailboxConnectionError)  # which promises: not done
    assert raised.value.retryable is False
    assert box.stats().total == 0


def test_R33_a_lost_answer_to_extend_does_no_harm(
    box: RedisMailbox[str], proxy: CuttingProxy
) -> None:
    box.send("a")
    (message,) = box.receive()
    proxy.cut_next_answer()
    assert message.extend_visibility(60) is True


def test_R33_asyncio_tries_again_alike(proxy: CuttingProxy) -> None:
    async def case() -> None:
        url = f"redis://127.0.0.1:{proxy.port}/-"
        async with AsyncRedisMailbox(new_name(), str, url=url) as box:
            await box.send("a")
            proxy.cut_next_answer(2)
            await box.send("b")
            messages = await box.receive(max_messages=10)
            assert [m.body for m in messages] == ["a", "b"]
            proxy.cut_next_answer()
            with pytest.raises(UnknownOutcomeError):
                await messages[0].acknowledge()

    asyncio.run(case())


def test_R22_a_server_that_is_not_there_is_a_connection_error() -> None:
    (port,) = free_ports(1)
    with pytest.raises(MailboxConnectionError, match=r"nowhere.*can't be reached"):
        open_box(name="nowhere", url=f"redis://127.0.0.1:{port}/-", retry_seconds=0.2)


def test_R33_a_server_that_comes_back_is_found_again() -> None:
    with directory() as path:
        server = RedisServer(
            path, free_ports(1)[0], "--appendonly", "yes", "--appendfsync", "always"
        )
        server.start()
        try:
            with open_box(url=f"{server.url}/-") as box:
                message_id = box.send("a")
                server.kill()
                late = threading.Timer(0.3, server.start)
                late.start()
                box.send("b")
                late.join()
                assert [m.id for m in box.receive()] == [message_id]
        finally:
            server.kill()


def test_R33_a_master_that_is_read_only_for_a_while_is_waited_for() -> None:
    with directory() as path:
        server = RedisServer(path, free_ports(1)[0])
        server.start()
        try:
            with open_box(url=f"{server.url}/-") as box:
                server.ask("REPLICAOF", "127.0.0.1", server.port)
                late = threading.Timer(0.3, lambda: server.ask("REPLICAOF", "NO", "ONE"))
                late.start()
                box.send("a")
                late.join()
                assert len(box.receive()) == 1
        finally:
            server.kill()


@pytest.fixture
def small() -> Iterator[RedisServer]:
    with directory() as path:
        limit = ("--maxmemory", "4mb", "--maxmemory-policy", "noeviction")
        server = RedisServer(path, free_ports(1)[0], *limit)
        server.start()
        yield server
        server.kill()


def fill(box: RedisMailbox[bytes]) -> int:
    """Send until there is no more room; how many were taken."""
    for count in range(1_000):
        try:
            box.send(b"x" * 20_000)
        except MailboxFullError:
            return count
    pytest.fail("there is always room")


def test_R22_a_server_out_of_memory_is_full_and_can_be_emptied(small: RedisServer) -> None:
    with open_box(bytes, url=f"{small.url}/-") as box:
        count = fill(box)
        assert count > 10
        small.ask("CONFIG", "SET", "maxmemory", "1mb")
        assert box.stats().ready == count
        (failed,) = box.receive()
        assert failed.nack() is True
        seen = 0
        while messages := box.receive(max_messages=10):
            assert all(box.acknowledge_many(messages))
            seen += len(messages)
        assert seen == count
        small.ask("CONFIG", "SET", "maxmemory", "4mb")
        box.send(b"room again")
        assert [m.body for m in box.receive()] == [b"room again"]


def test_R22_scripts_that_may_not_run_without_memory_would_lock_it_up(small: RedisServer) -> None:
    """The control: no script may exceed the limit, not even those that free memory."""
    strict = Scripts()
    for name in ("claim", "acknowledge"):
        text = strict[name].text.replace(b" flags=allow-oom", b"")
        strict[name] = script_of(name, text)
    with open_box(bytes, url=f"{small.url}/-", scripts=strict) as box:
        fill(box)
        small.ask("CONFIG", "SET", "maxmemory", "1mb")  # far past it, whatever was freed meanwhile
        with pytest.raises(MailboxFullError, match="maxmemory"):
            box.receive()


POISONS = {
    "not a packed message": b"rubbish",
    "empty": b"",
    "attributes cut short": b"\1\0\0\0\xff",
    "another type": b"\0" + b"no number",
}


@pytest.mark.parametrize("poison", POISONS.values(), ids=POISONS.keys())
@pytest.mark.parametrize("mortal", [False, True], ids=["no policy", "policy"])
def test_R23_a_poisoned_value_is_reported_and_the_rest_delivered(
    poison: bytes, mortal: bool, caplog: pytest.LogCaptureFixture
) -> None:
    policy = DeadLetterPolicy(5) if mortal else None
    with open_box(int, dead_letters=policy) as box:
        ids = box.send_many([1, 2, 3])
        place = keys_of(box.name)
        shared_server().ask("HSET", place.key("bodies"), ids[1], poison)
        messages = box.receive(max_messages=10)
        assert [m.body for m in messages] == [1, 3]
        (entry,) = [each for each in caplog.records if each.levelno == logging.ERROR]
        assert box.name in entry.getMessage()
        assert ids[1] in entry.getMessage()
        stats = box.stats()
        assert (stats.in_flight, stats.dead) == ((2, 1) if mortal else (3, 0))


def test_R23_a_body_that_is_gone_is_reported_and_the_rest_delivered(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with open_box(int) as box:
        ids = box.send_many([1, 2, 3])
        shared_server().ask("HDEL", keys_of(box.name).key("bodies"), ids[1])
        assert [m.body for m in box.receive(max_messages=10)] == [1, 3]
        assert ids[1] in caplog.text
        assert box.stats().total == 2


def test_R23_with_a_policy_a_message_whose_body_is_gone_is_forgotten() -> None:
    with open_box(int, dead_letters=DeadLetterPolicy(5)) as box:
        ids, place = box.send_many([1, 2]), keys_of(box.name)
        shared_server().ask("HDEL", place.key("bodies"), ids[0])
        assert [m.body for m in box.receive(max_messages=10)] == [2]
        assert shared_server().ask("ZSCORE", place.key("leases"), ids[0]) is None
        assert (box.stats().in_flight, box.stats().dead) == (1, 0)


def test_R23_a_poisoned_state_stops_nobody() -> None:
    with open_box(int) as box:
        ids = box.send_many([1, 2])
        place = keys_of(box.name)
        for poison in (b"", b"short", b"\xff" * 60):
            shared_server().ask("HSET", place.key("states"), ids[0], poison)
            assert sorted(m.body for m in box.receive(max_messages=10, visibility_timeout=0)) == [
                1,
                2,
            ]
        assert box.stats().total == 2


def test_R22_a_key_of_another_kind_is_an_error_that_says_so() -> None:
    with open_box() as box:
        shared_server().ask("SET", keys_of(box.name).key("line"), "mine")
        with pytest.raises(RefusedError) as raised:
            box.send("a")
        assert "WRONGTYPE" in str(raised.value)
        assert box.name in str(raised.value)
        until(shared_server().answers, "the server is well")


def test_R13_a_claim_that_is_undone_late_ends_no_lease_of_another() -> None:
    with open_box() as box, open_box(name=box.name) as other:
        assert held_after_late_undo(box, other).acknowledge()
