"""pytest fixtures for programs that use mailboxes. pytest loads this plugin automatically."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pillarbox.mailbox.memory import InMemoryMailbox
from pillarbox.mailbox.store import Store
from pillarbox.testing.clock import FakeClock


@pytest.fixture
def fake_clock() -> FakeClock:
    """Return a clock that stands still until the test advances it."""
    return FakeClock()


@pytest.fixture
def make_mailbox(fake_clock: FakeClock) -> Iterator[Callable[..., InMemoryMailbox[Any]]]:
    """Return make_mailbox(name, body_type, ...), for mailboxes of one store on the fake clock."""
    store = Store(fake_clock)
    mailboxes: list[InMemoryMailbox[Any]] = []

    def make(name: str = "mailbox", body_type: Any = Any, **options: Any) -> InMemoryMailbox[Any]:
        mailboxes.append(InMemoryMailbox(name, body_type, store=store, **options))
        return mailboxes[-1]

    yield make
    for mailbox in mailboxes:
        mailbox.close()
