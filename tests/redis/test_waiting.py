"""R14 and R32 on the server's own clock: who is parked sleeps, and is woken in time, alone."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from pillarbox import DeadLetterPolicy
from pillarbox.mailbox.redis import RedisMailbox
from pillarbox.testing.redis import shared_server, until
from tests.redis.world import InThread, open_box, scripts_run

LATE_SECONDS_MAX = 1.0  # a loaded machine; an idle server wakes at its next tick, a tenth later


def park(box: RedisMailbox[str], count: int = 1) -> list[InThread]:
    calls = []
    for number in range(1, count + 1):
        calls.append(InThread(lambda: [m.body for m in box.receive(wait_time_seconds=20)]))
        until(lambda n=number: len(shared_server().blocked()) >= n, "a receive is parked")
    return calls


def test_R14_nobody_polls_while_parked() -> None:
    with open_box() as box:
        calls = park(box, 5)
        before = scripts_run(shared_server())
        time.sleep(1.5)  # what must not happen takes time
        assert scripts_run(shared_server()) == before
        box.close()
        assert [call.result() for call in calls] == [[]] * 5


def test_R14_one_message_wakes_one_of_many() -> None:
    with open_box() as box:
        box.send("before")  # the server knows the scripts, or each would be counted twice
        assert box.receive()[0].acknowledge()
        calls = park(box, 20)
        before = scripts_run(shared_server())
        box.send("a")
        until(lambda: any(call.done for call in calls), "one of them has the message")
        assert scripts_run(shared_server()) - before == 2  # the send and one claim
        assert len(shared_server().blocked()) == 19
        box.close()
        assert sorted(len(call.result()) for call in calls) == [0] * 19 + [1]


def due_by_delay(box: RedisMailbox[str]) -> None:
    box.send("a", delay_seconds=1)


def due_by_expiry(box: RedisMailbox[str]) -> None:
    box.send("a")
    assert len(box.receive(visibility_timeout=1)) == 1


def due_by_nack(box: RedisMailbox[str]) -> None:
    box.send("a")
    assert box.receive()[0].nack(visibility_timeout=1)


@pytest.mark.parametrize(
    ("begin", "parked_first"),
    [(due_by_delay, True), (due_by_delay, False), (due_by_expiry, False), (due_by_nack, False)],
)
def test_R32_a_parked_receive_is_woken_when_something_comes_due(
    begin: Callable[[RedisMailbox[str]], None], parked_first: bool
) -> None:
    with open_box() as box, open_box(name=box.name) as other:
        if not parked_first:
            begin(other)
        started = time.monotonic()
        calls = park(box, 3)
        if parked_first:
            started = time.monotonic()
            begin(other)
        until(lambda: any(call.done for call in calls), "one of them has the message")
        assert 0.5 < time.monotonic() - started < 1 + LATE_SECONDS_MAX
        box.close()
        assert sorted(len(call.result()) for call in calls) == [0, 0, 1]


def test_R32_a_time_that_comes_wakes_no_herd() -> None:
    with open_box() as box:
        box.send("a", delay_seconds=2)  # all are parked by then, on a loaded machine too
        calls = park(box, 5)
        before = scripts_run(shared_server())
        until(lambda: any(call.done for call in calls), "one of them has the message")
        assert scripts_run(shared_server()) - before == 1  # the claim of the one that watched
        box.close()
        assert sum(len(call.result()) for call in calls) == 1


def test_R39_who_is_parked_on_dead_letters_is_woken_by_a_last_lease() -> None:
    with open_box(dead_letters=DeadLetterPolicy(1)) as box:
        dead = box.dead_letters
        assert dead is not None
        box.send("a")
        assert len(box.receive(visibility_timeout=1)) == 1
        (call,) = park(dead)
        assert call.result() == ["a"]


def test_R14_a_receiver_whose_line_was_unblocked_with_an_error_waits_on() -> None:
    with open_box() as box:
        (call,) = park(box)
        (client,) = shared_server().blocked()
        shared_server().ask("CLIENT", "UNBLOCK", client, "ERROR")
        until(lambda: shared_server().blocked() != [], "it is parked again")
        box.send("a")
        assert call.result() == ["a"]


def test_R14_a_receiver_whose_line_was_cut_waits_on() -> None:
    with open_box() as box:
        (call,) = park(box)
        (client,) = shared_server().blocked()
        shared_server().ask("CLIENT", "KILL", "ID", client)
        until(lambda: shared_server().blocked() != [], "it is parked again")
        box.send("a")
        assert call.result() == ["a"]


def test_R14_a_wait_ends_when_its_time_is_up() -> None:
    with open_box() as box:
        started = time.monotonic()
        assert list(box.receive(wait_time_seconds=1)) == []
        assert 0.95 < time.monotonic() - started < 1 + LATE_SECONDS_MAX


def test_R15_a_lease_ends_by_the_server_s_clock() -> None:
    with open_box() as box:
        box.send("a")
        (held,) = box.receive(visibility_timeout=0.3)
        assert list(box.receive()) == []
        (again,) = box.receive(wait_time_seconds=10)
        assert again.delivery_count == 2
        assert held.acknowledge() is False
        assert again.acknowledge() is True
