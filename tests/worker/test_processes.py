"""R12, R19, R103: workers in several processes that share a server, killed and stopped."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from pillarbox import Mailbox
from tests.worker.command import Command, command
from tests.worker.conftest import Place, eventually

SHOP = "tests.worker.shop"


def kill_in_a_batch(place: Place, told: Path, handler: str) -> tuple[dict[str, int], set[str]]:
    """Kill two processes of 4 handlers each, all of them at work, out of 20 messages.

    The delivery counts of all when they are next received, and which of them were started.
    """
    box = place.open("orders")
    box.send_many(f"n{number} 600" for number in range(20))
    words = ("--mailbox", place.url_of("orders"), "--concurrency", "4", "--processes", "2")
    with command(told, handler, *words, "--visibility-timeout", "2") as running:
        pids = {line.pid for line in running.started(8)}
        assert len(pids) == 2
        # Stopped, it starts no others; killed, its children would notice and release messages.
        running.process.send_signal(signal.SIGSTOP)
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        running.process.kill()
        started = {line.body for line in running.told("S")}
    counts: dict[str, int] = {}
    while len(counts) < 20:
        for message in eventually(lambda: receive(box)):
            counts[message.body] = message.delivery_count
    return counts, started


def receive(box: Mailbox[str]) -> list:  # type: ignore[type-arg]
    return list(box.receive(max_messages=10, visibility_timeout=600, wait_time_seconds=5))


def test_R12_killed_in_a_batch_nothing_is_lost_and_only_what_started_counts(
    shared_place: Place, tmp_path: Path
) -> None:
    counts, started = kill_in_a_batch(shared_place, tmp_path / "told", f"{SHOP}:pack")
    assert len(started) == 8
    assert {body for body, count in counts.items() if count == 2} == started
    assert {counts[body] for body in counts.keys() - started} == {1}


@pytest.mark.parametrize("shared_place", ["redis"], indirect=True)
def test_R12_a_worker_that_claims_more_than_it_can_start_counts_the_rest(
    shared_place: Place, tmp_path: Path
) -> None:
    """Control."""
    counts, started = kill_in_a_batch(shared_place, tmp_path / "told", "tests.worker.greedy:pack")
    assert {body for body, count in counts.items() if count == 2} > started


@pytest.fixture
def holding(shared_place: Place, tmp_path: Path) -> Iterator[Command]:
    """A worker with one message in hand, on a lease of a second."""
    words = ("--mailbox", shared_place.url_of("orders"), "--visibility-timeout", "1")
    with command(tmp_path / "told", f"{SHOP}:hold", *words, "--concurrency", "1") as running:
        yield running


def test_R100_a_process_that_stands_still_loses_its_message(
    shared_place: Place, holding: Command
) -> None:
    box = shared_place.open("orders")
    box.send("a 600")
    (started,) = holding.started(1)
    os.kill(started.pid, signal.SIGSTOP)
    (message,) = eventually(lambda: box.receive(visibility_timeout=600, wait_time_seconds=5))
    assert message.delivery_count == 2
    os.kill(started.pid, signal.SIGCONT)
    eventually(lambda: holding.told("TF"))
    assert [line.letter for line in holding.told("TF")] == ["F"], "its late acknowledge counted"
    assert message.acknowledge() is True


def test_R100_a_process_that_goes_on_keeps_its_message(
    shared_place: Place, holding: Command
) -> None:
    """Control: three times its lease, and its acknowledge counts."""
    box = shared_place.open("orders")
    box.send("a 3")
    holding.started(1)
    eventually(lambda: holding.told("TF"))
    assert [line.letter for line in holding.told("STF")] == ["S", "T"]
    assert box.approximate_count() == 0


def test_R19_two_processes_share_the_work(shared_place: Place, tmp_path: Path) -> None:
    box = shared_place.open("orders")
    sent = [f"n{number} 0.05" for number in range(100)]
    box.send_many(sent)
    words = ("--mailbox", shared_place.url_of("orders"), "--concurrency", "4", "--processes", "2")

    def share() -> bool:
        """Whether both have ended something; one may start long after the other."""
        if box.approximate_count() == 0:
            sent.append(f"n{len(sent)} 0.05")
            box.send(sent[-1])
        return len({line.pid for line in running.told("E")}) == 2

    with command(tmp_path / "told", f"{SHOP}:pack_async", *words) as running:
        eventually(share)
        eventually(lambda: box.approximate_count() == 0)
        assert running.stop() == 0
        ended = running.told("E")
    assert sorted(line.body for line in ended) == sorted(sent)
