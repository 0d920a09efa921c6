"""R110: a look at a store changes no byte of it, whatever time has done in the meantime."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from pillarbox import (
    AsyncDurableMailbox,
    DurableMailbox,
    InMemoryMailbox,
    InvalidParameterError,
    open_mailbox,
)
from pillarbox.mailbox.durable_session import DurableQueueSession
from pillarbox.mailbox.durable_store import DurableStore
from pillarbox.mailbox.store import Store
from pillarbox.testing import FakeClock
from tests.looking.support import (
    POLICY,
    bytes_in,
    check_looks,
    in_every_state,
    state_of,
    wait_until,
)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def orders(tmp_path: Path, clock: FakeClock) -> Any:
    box = DurableMailbox("orders", str, path=tmp_path, clock=clock, dead_letters=POLICY)
    in_every_state(box, clock.advance)
    box._store.log.flush()
    yield box
    box.close()


def test_R110_stats_and_peek_write_nothing(orders: Any, tmp_path: Path) -> None:
    before = bytes_in(tmp_path)
    for _ in range(2):
        check_looks(orders)
    orders._store.log.flush()
    assert bytes_in(tmp_path) == before


def test_R110_control_a_look_that_settles_into_the_log_is_noticed(
    orders: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        DurableStore, "read_only_step", property(lambda s: False, lambda s, v: None)
    )
    before = bytes_in(tmp_path)
    check_looks(orders)
    orders._store.log.flush()
    assert bytes_in(tmp_path) != before


def test_R110_mailbox_objects_of_other_types_write_nothing(
    orders: Any, tmp_path: Path, clock: FakeClock
) -> None:
    before = bytes_in(tmp_path)
    for kind in (bytes, dict, Any):
        with DurableMailbox("orders", kind, path=tmp_path, create=False) as box:
            assert box.stats().total == 6

    async def main() -> None:
        async with AsyncDurableMailbox("orders", bytes, path=tmp_path) as box:
            assert (await box.stats()).total == 6
            assert len(await box.peek()) == 4

    asyncio.run(main())
    orders._store.log.flush()
    assert bytes_in(tmp_path) == before


def test_R110_a_store_that_is_opened_and_looked_at_is_as_it_was(tmp_path: Path) -> None:
    clock = FakeClock()
    with DurableMailbox("orders", str, path=tmp_path, clock=clock, dead_letters=POLICY) as box:
        in_every_state(box, lambda seconds: None)
    before = bytes_in(tmp_path)
    clock.advance(2)
    for _ in range(2):
        with DurableMailbox("orders", bytes, path=tmp_path, clock=clock) as box:
            check_looks(box)
    assert bytes_in(tmp_path) == before


def test_R110_what_a_look_has_noticed_is_in_the_log_before_what_follows(
    orders: Any, tmp_path: Path, clock: FakeClock
) -> None:
    check_looks(orders)
    (urgent,) = orders.receive()
    assert urgent.body == "urgent"
    assert urgent.acknowledge()
    (grouped, *rest) = orders.receive(max_messages=10)
    assert sorted([grouped.body, *(each.body for each in rest)]) == ["back", "due", "grouped"]
    assert orders.acknowledge_many([grouped, *rest]) == [True] * 3
    orders.close()
    with DurableMailbox("orders", str, path=tmp_path, clock=clock) as again:
        stats = again.stats()
        assert (stats.ready, stats.scheduled, stats.in_flight, stats.dead) == (0, 1, 1, 2)


@pytest.mark.parametrize("looks", [True, False])
def test_R110_a_store_recovers_to_the_same_whether_somebody_looked_or_not(
    tmp_path: Path, looks: bool
) -> None:
    clock = FakeClock()
    box = DurableMailbox("orders", str, path=tmp_path, clock=clock, dead_letters=POLICY)
    in_every_state(box, clock.advance)
    if looks:
        check_looks(box)
    box.send("next")
    box.receive(max_messages=3)
    if looks:
        box.stats()
    expected = state_of(box._store)
    box._store.log.flush()
    copied = tmp_path / "copy"
    (copied / "log").mkdir(parents=True)
    for file in (tmp_path / "log").iterdir():
        if file.name != "lock":
            (copied / "log" / file.name).write_bytes(file.read_bytes())
    with DurableMailbox("orders", bytes, path=copied, clock=clock) as again:
        assert again.stats() == box.stats()
        assert state_of(again._store) == expected
    box.close()


def test_R110_a_parked_receive_that_a_look_serves_is_on_record(
    tmp_path: Path, clock: FakeClock
) -> None:
    """The lease is the receiver's doing, not the look's: it must survive."""
    with DurableMailbox("orders", str, path=tmp_path, clock=clock) as box:
        box.send("due", delay_seconds=1)
        session = box._store.sessions["orders"]
        assert isinstance(session, DurableQueueSession)

        async def main() -> None:
            async with AsyncDurableMailbox("orders", str, path=tmp_path) as waiting:
                receive = asyncio.create_task(waiting.receive(wait_time_seconds=20))
                await asyncio.to_thread(wait_until, lambda: session.waiters, "it is parked")
                clock.advance(1)
                assert box.stats().in_flight == 1
                assert [each.body for each in await receive] == ["due"]

        asyncio.run(main())
    with DurableMailbox("orders", str, path=tmp_path, clock=clock) as box:
        assert box.stats().in_flight == 1


def test_R110_in_memory_a_look_changes_no_setting_and_makes_no_queue(clock: FakeClock) -> None:
    store = Store(clock)
    box = InMemoryMailbox("orders", str, store=store, dead_letters=POLICY)
    in_every_state(box, clock.advance)
    check_looks(box)
    before = state_of(store)
    check_looks(box)
    for kind in (bytes, dict, Any):
        InMemoryMailbox("orders", kind, store=store).stats()
    with pytest.raises(InvalidParameterError, match="create=False"):
        InMemoryMailbox("oders", str, store=store, create=False)
    assert state_of(store) == before


def test_R110_a_store_that_is_missing_is_not_made_for_a_look(tmp_path: Path) -> None:
    with pytest.raises(InvalidParameterError, match="create=False"):
        open_mailbox(f"file:{tmp_path}/store/orders", str, create=False)
    with DurableMailbox("orders", str, path=tmp_path / "other"):
        pass
    before = bytes_in(tmp_path)
    with pytest.raises(InvalidParameterError, match="create=False"):
        open_mailbox(f"file:{tmp_path}/other/oders", str, create=False)
    assert bytes_in(tmp_path) == before
