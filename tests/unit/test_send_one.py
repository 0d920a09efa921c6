"""The quick way to send one message to a store on disk does what the general way does (R50)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pillarbox.core.errors import MailboxClosedError, MailboxFullError
from pillarbox.core.limits import SECOND_NS
from pillarbox.core.queue import Extra, Settings
from pillarbox.log import Durability
from pillarbox.mailbox.durable_store import DurableStore
from pillarbox.mailbox.queue_session import QueueSession
from pillarbox.mailbox.store import Store
from pillarbox.mailbox.waiters import ThreadWaiter
from pillarbox.testing import FakeClock
from tests.model.sameness import view

Send = Callable[..., int]


class _Owner:
    closed = False


def _in_general(session: QueueSession, body: bytes, **options: Any) -> int:
    (key,) = QueueSession.send(session, (body,), **options)
    return key


def _quickly(session: QueueSession, body: bytes, **options: Any) -> int:
    (key,) = session.send((body,), **options)
    return key


def _story(session: QueueSession, clock: FakeClock, send: Send) -> list[object]:
    """Lines, timers that are due and receivers that wait: all that a send may meet."""
    keys = [send(session, b"first"), send(session, b"at the same time", attributes={"a": "red"})]
    keys.append(send(session, b"before the others", priority=9))
    group = partial(Extra, group="g", deduplication="once")
    keys += [send(session, b"in a group", extra=group), send(session, b"again", extra=group)]
    session.send((b"later",), delay=SECOND_NS)
    clock.advance(2)
    keys.append(send(session, b"after what was due"))
    taken = [session.receive(_Owner(), 10, 5 * SECOND_NS, 0)]
    waiter = ThreadWaiter(_Owner(), 1, 5 * SECOND_NS)
    session.enter(waiter)
    keys.append(send(session, b"for whoever waits"))
    taken.append(session.leave(waiter))
    bodies = [session.bodies([lease.record for lease in leases]) for leases in taken]
    noted = [[lease.record.attributes for lease in leases] for leases in taken]
    return [keys, bodies, noted, view(session.queue), session.queue.mask, session.queue.wake_at]


@pytest.mark.parametrize("durability", ["fsync", "os", "memory"])
def test_R50_one_message_is_sent_as_in_general(durability: Durability, tmp_path: Path) -> None:
    stories = []
    for send in (_in_general, _quickly):
        clock = FakeClock()
        store = DurableStore(tmp_path / send.__name__, durability=durability, clock=clock)
        stories.append(_story(store.session("jobs"), clock, send))
        store.close()
    assert stories[0] == stories[1]


@pytest.mark.parametrize("send", [_in_general, _quickly])
def test_R50_one_message_too_many_is_refused_as_in_general(send: Send, tmp_path: Path) -> None:
    store = DurableStore(tmp_path)
    session = store.session("jobs", Settings(capacity=1))
    send(session, b"fits")
    with pytest.raises(MailboxFullError, match="holds 1 of 1"):
        send(session, b"does not")
    assert session.queue.size == 1
    store.close()


@pytest.mark.parametrize("send", [_in_general, _quickly])
@pytest.mark.parametrize("kind", ["memory", "durable"])
def test_R50_a_queue_that_was_deleted_takes_nothing(send: Send, kind: str, tmp_path: Path) -> None:
    store = Store() if kind == "memory" else DurableStore(tmp_path)
    session = store.session("jobs")
    store.drop("jobs")
    with pytest.raises(MailboxClosedError, match="deleted"):
        send(session, b"too late")
    if isinstance(store, DurableStore):
        store.close()
