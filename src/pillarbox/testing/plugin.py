"""Fixtures for the tests of programs that use mailboxes; pytest finds them by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pillarbox.mailbox.memory import InMemoryMailbox
from pillarbox.mailbox.store import Store
from pillarbox.testing.clock import FakeClock


@pytest.fixture
def fake_clock() -> FakeClock:
    """A clock that stands still until the test moves it."""
    return FakeClock()


@pytest.fixture
def make_mailbox(fake_clock: FakeClock) -> Iterator[Callable[..., InMemoryMailbox[Any]]]:
    """make_mailbox(name, body_type, ...): mailboxes of one store, on the fake clock."""
    store = Store(fake_clock)
    made: list[InMemoryMailbox[Any]] = []

    def make(name: str = "mailbox", body_type: Any = Any, **options: Any) -> InMemoryMailbox[Any]:
        made.append(InMemoryMailbox(name, body_type, store=store, **options))
        return made[-1]

    yield make
    for mailbox in made:
        mailbox.close()
