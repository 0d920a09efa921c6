"""R100: leases are extended while work goes on, never shortened, and a lost one is told of."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from pillarbox import InMemoryMailbox, MailboxConnectionError, Message
from pillarbox.testing import FakeMailbox
from pillarbox.worker import LeaseKeeper
from pillarbox.worker.lease_keeper import HeldMessage, LeaseTerms
from tests.unit.support import PATIENCE_SECONDS, WatchedClock, notices

TIMEOUT = 30


class Scene:
    """A mailbox and a keeper on one clock that only the test moves."""

    def __init__(self) -> None:
        self.clock = WatchedClock()
        self.box = FakeMailbox("box", str, clock=self.clock)
        self.lost: list[HeldMessage[Any]] = []
        self.keeper = LeaseKeeper(self.clock, self.lost.append)
        self.extended: list[int] = []
        plain = self.box.extend_visibility_many

        def counted(messages: Any, timeout: float) -> list[bool]:
            messages = list(messages)
            self.extended.append(len(messages))
            return plain(messages, timeout)

        self.box.extend_visibility_many = counted  # type: ignore[method-assign]

    def take(self, count: int = 1) -> list[Message[str]]:
        self.box.send_many(["a"] * count)
        return list(self.box.receive(max_messages=count, visibility_timeout=TIMEOUT))

    def hold(
        self, messages: list[Message[str]], limit: float | None = None
    ) -> list[HeldMessage[str]]:
        terms = LeaseTerms(self.box, TIMEOUT, limit)
        helds = [HeldMessage(message, terms, self.clock.now()) for message in messages]
        self.keeper.hold(helds)
        return helds

    def advance(self, seconds: float, step: float = 1) -> None:
        """Time passes in steps; the keeper does at each what is due then."""
        for _ in range(round(seconds / step)):
            self.settled()
            self.clock.advance(step)
        self.settled()

    def settled(self) -> None:
        until = time.monotonic() + PATIENCE_SECONDS
        while self.keeper._wake_at <= self.clock.now():  # it is at work, not waiting for time
            assert time.monotonic() < until
            threading.Event().wait(0.0005)


@pytest.fixture
def scene() -> Iterator[Scene]:
    scene = Scene()
    yield scene
    scene.keeper.close()


def test_R100_a_held_message_is_not_redelivered_for_many_times_its_timeout(scene: Scene) -> None:
    (message,) = scene.take()
    (held,) = scene.hold([message])
    scene.advance(10 * TIMEOUT)
    assert scene.box.receive() == []
    assert held.lost is None
    scene.keeper.drop([held])
    assert message.acknowledge() is True


def test_R100_without_the_keeper_it_is_redelivered(scene: Scene) -> None:
    """Control."""
    (message,) = scene.take()
    scene.advance(TIMEOUT)
    assert len(scene.box.receive()) == 1
    assert message.acknowledge() is False


def test_R100_a_hundred_leases_are_one_call_a_third_of_the_timeout(scene: Scene) -> None:
    scene.hold(scene.take(100))
    scene.advance(TIMEOUT)
    assert scene.extended == [100, 100, 100]


def test_R100_what_is_dropped_is_not_extended_any_more(scene: Scene) -> None:
    first, second = scene.hold(scene.take(2))
    scene.keeper.drop([first])
    scene.advance(TIMEOUT)
    assert [m.delivery_count for m in scene.box.receive(max_messages=9)] == [2]
    assert second.lost is None


def test_R100_a_longer_lease_of_the_handler_is_never_shortened(scene: Scene) -> None:
    (held,) = scene.hold(scene.take())
    assert scene.keeper.extend(held, 600) is True
    until = held.until
    scene.advance(400)
    assert held.until == until
    assert scene.extended == []
    scene.advance(400)  # past what the handler asked for
    assert held.lost is None
    assert scene.box.receive() == []


def test_R100_asking_for_less_than_is_left_changes_nothing(scene: Scene) -> None:
    (held,) = scene.hold(scene.take())
    until = held.until
    assert scene.keeper.extend(held, 1) is True
    assert held.until == until
    scene.clock.advance(2)
    assert scene.box.receive() == []


def test_R100_a_lost_lease_is_told_to_its_holder_and_to_others(scene: Scene) -> None:
    kept, gone = scene.hold(scene.take(2))
    told: list[str] = []
    gone.on_lost = lambda: told.append("gone")
    scene.box.expire(gone.message)
    with notices() as said:
        scene.advance(TIMEOUT / 3)
    assert "expired" in str(gone.lost)
    assert told == ["gone"]
    assert scene.lost == [gone]
    assert kept.lost is None
    assert any("lease lost" in line for line in said)
    assert scene.keeper.extend(gone, 100) is False


def test_R100_what_was_settled_meanwhile_is_not_called_lost(scene: Scene) -> None:
    (held,) = scene.hold(scene.take())
    held.message.acknowledge()
    held.settled = True
    scene.advance(TIMEOUT)
    assert held.lost is None
    assert scene.lost == []


def test_R100_an_unreachable_server_is_tried_again_within_the_lease(scene: Scene) -> None:
    (held,) = scene.hold(scene.take())
    real = scene.box.extend_visibility_many
    failures = iter([MailboxConnectionError("no server")] * 4)

    def flaky(messages: Any, timeout: float) -> list[bool]:
        for failure in failures:
            raise failure
        return real(messages, timeout)

    scene.box.extend_visibility_many = flaky  # type: ignore[method-assign]
    scene.advance(3 * TIMEOUT)
    assert held.lost is None
    assert scene.box.receive() == []


def test_R100_a_server_that_stays_away_costs_the_lease(scene: Scene) -> None:
    (held,) = scene.hold(scene.take())

    def broken(messages: Any, timeout: float) -> list[bool]:
        raise MailboxConnectionError("no server")

    scene.box.extend_visibility_many = broken  # type: ignore[method-assign]
    scene.advance(TIMEOUT - 1)
    assert held.lost is None
    scene.advance(4)
    assert "no server" in str(held.lost)


def test_R100_one_mailbox_that_breaks_does_not_harm_the_leases_of_another(scene: Scene) -> None:
    other = InMemoryMailbox("other", str, clock=scene.clock)
    other.send("b")
    (message,) = other.receive(visibility_timeout=TIMEOUT)
    kept = HeldMessage(message, LeaseTerms(other, TIMEOUT), scene.clock.now())

    def broken(messages: Any, timeout: float) -> list[bool]:
        raise RuntimeError("a bug")

    scene.box.extend_visibility_many = broken  # type: ignore[method-assign]
    scene.hold(scene.take())
    scene.keeper.hold([kept])
    scene.advance(5 * TIMEOUT)
    assert kept.lost is None
    assert other.receive() == []


def test_R100_a_time_limit_ends_the_extending(scene: Scene) -> None:
    (held,) = scene.hold(scene.take(), limit=100)
    scene.advance(99)
    assert held.lost is None
    scene.advance(1)
    assert "time limit" in str(held.lost)
    scene.advance(TIMEOUT)
    assert len(scene.box.receive()) == 1


def test_R100_a_time_limit_shorter_than_a_renewal_is_kept(scene: Scene) -> None:
    (held,) = scene.hold(scene.take(), limit=2)
    scene.advance(1)
    assert held.lost is None
    scene.advance(1)
    assert "time limit" in str(held.lost)


def test_R100_an_idle_keeper_has_no_thread_and_a_closed_one_ends_it() -> None:
    before = threading.active_count()
    keeper = LeaseKeeper()
    assert threading.active_count() == before
    box = InMemoryMailbox("box", str)
    box.send("a")
    (message,) = box.receive()
    with keeper.holding(box, message, 30):
        assert threading.active_count() == before + 1
    keeper.close()
    assert threading.active_count() == before
