"""A store that is opened again is the store that was closed, killed or compacted."""

from __future__ import annotations

from pathlib import Path

import pytest

from pillarbox import DurableMailbox
from pillarbox.core import journal
from pillarbox.mailbox import durable_session
from tests.durable.world import World, open_boxes, open_store, state_of


@pytest.mark.parametrize("seed", range(40))
def test_R31_a_killed_store_comes_back_as_it_was(seed: int) -> None:
    world = World(seed)
    for _ in range(4):
        for _ in range(40):
            world.step()
        world.store.log.flush()
        expected = state_of(world.store)
        copy = open_store(world.disk.kill(), world.clock)
        assert state_of(copy) == expected
        copy.log.close()


@pytest.mark.parametrize("seed", range(40, 60))
def test_R31_a_store_with_a_snapshot_comes_back_as_it_was(seed: int) -> None:
    world = World(seed)
    for _ in range(4):
        for _ in range(40):
            world.step()
        if world.chance.random() < 0.5:
            world.store.compactor.compact()
        for _ in range(world.chance.choice((0, 25))):
            world.step()
        world.store.log.flush()
        expected = state_of(world.store)
        copy = open_store(world.disk.kill(), world.clock)
        assert state_of(copy) == expected
        copy.log.close()


def test_R31_a_closed_store_goes_on_where_it_was_with_its_handles() -> None:
    world = World(7)
    (plain, strict) = world.boxes
    plain.send(b"a")
    (message,) = plain.receive(visibility_timeout=30)
    handle, message_id = message.receipt_handle, message.id
    plain.close()
    strict.close()
    (plain, _) = open_boxes(world.disk, world.clock)
    lease = plain._store.lease_of(plain._session.queue, handle)
    assert lease is not None
    assert plain._verbs.message_id(lease) == message_id
    assert plain._acknowledge(lease) is True
    assert plain.approximate_count() == 0


def test_R15_a_handle_of_a_delivery_that_a_crash_forgot_is_stale() -> None:
    world = World(8)
    (plain, _) = world.boxes
    plain.send(b"a")
    killed = world.disk.kill()  # before the delivery is on record
    (message,) = plain.receive()
    world.clock.advance(1)
    (again, _) = open_boxes(killed, world.clock)
    (second,) = again.receive()
    assert second.delivery_count == 1
    assert again._store.lease_of(again._session.queue, message.receipt_handle) is None


def test_R31_the_comparison_can_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """Control: a store whose replay forgets acknowledgements is not taken for the same."""
    world = World(1)
    for _ in range(160):
        world.step()
    world.store.log.flush()
    monkeypatch.setitem(journal._REPLAY, journal.ACKNOWLEDGED, lambda *_: None)
    copy = open_store(world.disk.kill(), world.clock)
    assert state_of(copy) != state_of(world.store)


def test_R31_a_repetition_is_confirmed_only_when_what_it_repeats_is() -> None:
    world = World(2)
    (plain, _) = world.boxes
    with plain._store.holding() as first:
        plain.send(b"a", deduplication_id="x")
    with plain._store.holding() as second:
        plain.send(b"a", deduplication_id="x")
    (sent,), (repeated,) = first, second
    assert not repeated.done()
    sent.wait()
    assert repeated.done()


def test_R58_bodies_stay_on_disk_once_they_are_no_longer_new(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(durable_session, "RECENT_BYTES_MAX", 1000)
    world = World(3)
    (plain, _) = world.boxes
    for i in range(50):
        plain.send(b"%d" % i + b"." * 100)
    assert sum(map(len, world.store._recent.values())) <= 1000
    bodies = [message.body for message in plain.receive(max_messages=50)]
    assert bodies == [b"%d" % i + b"." * 100 for i in range(50)]


def test_R58_the_body_of_a_message_that_is_done_is_not_kept_at_hand() -> None:
    world = World(4)
    (plain, _) = world.boxes
    plain.send_many([b"a" * 100, b"b" * 100])
    (message,) = plain.receive()
    assert message.acknowledge()
    assert list(world.store._recent.values()) == [b"b" * 100]
    assert world.store._recent_bytes == 100


@pytest.mark.parametrize("snapshot", [False, True])
def test_R74_a_dropped_queue_leaves_its_number_to_no_other(snapshot: bool, tmp_path: Path) -> None:
    with DurableMailbox("kept", bytes, path=tmp_path) as kept:
        number = DurableMailbox("old", bytes, path=tmp_path)._session.number
        kept._store.drop("old")
        if snapshot:
            kept._store.compactor.take_snapshot()
        assert DurableMailbox("new", bytes, path=tmp_path)._session.number == number + 1
        kept._store.drop("new")
    with DurableMailbox("newest", bytes, path=tmp_path) as newest:
        assert newest._session.number == number + 2
