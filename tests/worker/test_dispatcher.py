"""R102: events reach all who want them, and one bad subscriber harms nobody."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass

import pytest

from pillarbox import InMemoryMailbox
from pillarbox.worker import Dispatcher


@dataclass(frozen=True)
class Boiled:
    litres: float


@dataclass(frozen=True)
class BoiledOver(Boiled):
    pass


def test_R102_every_subscriber_hears_an_event_in_order_of_subscription() -> None:
    dispatcher, heard = Dispatcher(), []
    for name in "abc":
        dispatcher.subscribe(Boiled, lambda event, name=name: heard.append((name, event)))  # type: ignore[misc]
    dispatcher.publish(Boiled(1))
    assert heard == [("a", Boiled(1)), ("b", Boiled(1)), ("c", Boiled(1))]


def test_R102_a_subscriber_hears_its_class_and_those_below_it_only() -> None:
    dispatcher = Dispatcher()
    wide: list[object] = []
    narrow: list[object] = []
    dispatcher.subscribe(Boiled, wide.append)
    dispatcher.subscribe(BoiledOver, narrow.append)
    dispatcher.publish(Boiled(1))
    dispatcher.publish(BoiledOver(2))
    dispatcher.publish("not for them")
    assert wide == [Boiled(1), BoiledOver(2)]
    assert narrow == [BoiledOver(2)]


def test_R102_a_bad_subscriber_is_logged_and_harms_nobody(
    caplog: pytest.LogCaptureFixture,
) -> None:
    dispatcher, heard = Dispatcher(), []

    def broken(event: Boiled) -> None:
        raise RuntimeError("no tea")

    dispatcher.subscribe(Boiled, broken)
    dispatcher.subscribe(Boiled, heard.append)
    with caplog.at_level(logging.ERROR, "pillarbox"):
        dispatcher.publish(Boiled(1))
    assert heard == [Boiled(1)]
    assert "subscriber failed" in caplog.text
    assert "broken" in caplog.text
    assert "no tea" in caplog.text


def test_R102_who_has_unsubscribed_hears_nothing_and_may_do_so_twice() -> None:
    dispatcher, heard = Dispatcher(), []
    stop = dispatcher.subscribe(Boiled, heard.append)
    again = dispatcher.subscribe(Boiled, heard.append)
    dispatcher.publish(Boiled(1))
    stop()
    stop()
    dispatcher.publish(Boiled(2))
    again()
    dispatcher.publish(Boiled(3))
    assert heard == [Boiled(1), Boiled(1), Boiled(2)]


def test_R102_wants_tells_whether_anyone_would_hear() -> None:
    dispatcher = Dispatcher()
    assert not dispatcher.wants(BoiledOver)
    stop = dispatcher.subscribe(Boiled, print)
    assert dispatcher.wants(BoiledOver)
    assert not dispatcher.wants(str)
    stop()
    assert not dispatcher.wants(BoiledOver)


def test_R102_a_subscriber_may_subscribe_and_publish_while_it_is_told() -> None:
    dispatcher, heard = Dispatcher(), []

    def grow(event: Boiled) -> None:
        dispatcher.subscribe(str, heard.append)
        dispatcher.publish("told")

    dispatcher.subscribe(Boiled, grow)
    dispatcher.publish(Boiled(1))
    assert heard == ["told"]


def test_R102_many_threads_publish_and_subscribe_at_once() -> None:
    dispatcher = Dispatcher()
    heard: list[int] = []
    dispatcher.subscribe(int, heard.append)

    def publish(start: int) -> None:
        for number in range(start, start + 500):
            dispatcher.subscribe(Boiled, print)()
            dispatcher.publish(number)

    threads = [threading.Thread(target=publish, args=(500 * n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(heard) == list(range(4000))


def test_R102_a_dispatcher_and_a_mailbox_coexist() -> None:
    """All hear an event; one gets the message."""
    dispatcher, heard = Dispatcher(), []
    for _ in range(2):
        dispatcher.subscribe(str, heard.append)
    box = InMemoryMailbox("teas", str)
    dispatcher.publish(box.send("assam"))
    assert len(heard) == 2
    assert [len(box.receive()) for _ in range(2)] == [1, 0]
