"""Whoever asked to be given the confirmations of its thread keeps being given them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from pillarbox.mailbox.durable_store import DurableStore


def test_R58_nested_holding_restores_the_outer_one(tmp_path: Path) -> None:
    store = DurableStore(tmp_path / "data")
    session = store.session("orders")
    with store.holding() as outer:
        session.send((b"a",))
        (of_a,) = outer
        with store.holding() as inner:
            session.send((b"b",))
        assert list(outer) == [of_a]
        session.send((b"c",))
        (of_c,) = outer
        with pytest.raises(ZeroDivisionError), store.holding():
            1 / 0  # noqa: B018
        session.send((b"d",))
    indices = [each.first_index for each in (of_a, *inner, of_c, *outer)]  # the last of each
    assert indices == list(range(indices[0], indices[0] + 4))
    with store.holding() as later:
        pass
    session.send((b"e",))  # nobody holds any more: it waits for the disk itself
    assert not later
    assert store.written.done()
    store.close()


def test_R58_a_verb_awaited_within_leaves_the_outer_one_in_place(tmp_path: Path) -> None:
    async def case() -> None:
        store = DurableStore(tmp_path / "data")
        session = store.session("orders")
        with store.holding() as outer:
            await store.confirmed(lambda: session.send((b"a",)))
            session.send((b"b",))
        assert len(outer) == 1
        store.close()

    asyncio.run(case())
