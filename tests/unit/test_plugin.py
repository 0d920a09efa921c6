"""R25: the fixtures that pytest finds by itself once Pillarbox is installed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pillarbox import DeadLetterPolicy, InMemoryMailbox, MailboxClosedError
from pillarbox.testing import FakeClock

pytest_plugins = ["pytester"]


def test_R25_mailboxes_of_the_fixture_are_on_its_clock(
    make_mailbox: Callable[..., InMemoryMailbox[Any]], fake_clock: FakeClock
) -> None:
    box = make_mailbox("orders", str)
    box.send("tea", delay_seconds=3_600)
    assert box.receive() == []
    fake_clock.advance(3_600)
    assert [m.body for m in box.receive()] == ["tea"]


def test_R25_mailboxes_of_the_fixture_share_a_store(
    make_mailbox: Callable[..., InMemoryMailbox[Any]],
) -> None:
    requests, replies = make_mailbox("requests", str), make_mailbox("replies", str)
    requests.send("a", reply_to="replies")
    requests.receive()[0].reply("b")
    assert [m.body for m in replies.receive()] == ["b"]


def test_R25_the_fixture_passes_options_on(
    make_mailbox: Callable[..., InMemoryMailbox[Any]],
) -> None:
    box = make_mailbox("orders", dead_letters=DeadLetterPolicy(1))
    assert box.dead_letters is not None
    assert make_mailbox().name == "mailbox"


def test_R25_pytest_finds_the_fixtures_and_closes_the_mailboxes(
    pytester: pytest.Pytester,
) -> None:
    pytester.makepyfile(
        """
        made = []

        def test_one(make_mailbox, fake_clock):
            made.append(make_mailbox("orders", str))
            made[0].send("tea")

        def test_two(make_mailbox):
            assert made[0].closed
            assert make_mailbox("orders", str).approximate_count() == 0
        """
    )
    pytester.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(passed=2)


def test_R24_a_mailbox_of_a_finished_test_is_closed() -> None:
    box: InMemoryMailbox[Any] = InMemoryMailbox("orders")
    box.close()
    with pytest.raises(MailboxClosedError):
        box.send("tea")
