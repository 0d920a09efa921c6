"""A signal handler that raises within a verb of a store on disk: nothing hangs, and a store that
was opened again is right. Until then it goes on, or says that it has to be opened again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from threading import Thread
from typing import Any

import pytest

from pillarbox import DurableMailbox, MailboxStorageError
from pillarbox.testing.disk import SimDisk
from tests.interrupts import interrupted

Box = DurableMailbox[str]
OURS = tuple(f"pillarbox.{each}" for each in ("core", "log", "mailbox", "mutex", "turn"))
VERBS: dict[str, Callable[[Box, list[Any]], object]] = {
    "send": lambda box, held: box.send("new"),
    "send with a priority": lambda box, held: box.send("new", priority=3),
    "send_many": lambda box, held: box.send_many(["new", "newer"]),
    "receive": lambda box, held: box.receive(),
    "acknowledge": lambda box, held: held[0].acknowledge(),
    "acknowledge_many": lambda box, held: box.acknowledge_many(held),
    "nack": lambda box, held: held[0].nack(),
}


def opened(disk: SimDisk, durability: Any) -> Box:
    return Box(
        "orders", str, path="/store", disk=disk, durability=durability, segment_bytes=1 << 20
    )


def contents(box: Box) -> Counter[str]:
    seen = [*box.peek(100), *box.peek(100, state="in_flight"), *box.peek(100, state="scheduled")]
    return Counter(str(message.body) for message in seen)


def other_thread(box: Box, told: list[str]) -> None:
    with suppress(MailboxStorageError):
        box.send("from another thread")
        told.append("from another thread")


@pytest.mark.parametrize("durability", ["memory", "os", "fsync"])
@pytest.mark.parametrize("verb", VERBS)
def test_R111_an_interrupt_anywhere_leaves_a_store_that_can_be_opened(
    verb: str, durability: str
) -> None:
    at, more, halted = 0, True, 0
    while more:
        disk = SimDisk()
        box = opened(disk, durability)
        box.send_many([f"old {number}" for number in range(5)])
        held = [*box.receive(max_messages=2, visibility_timeout=600)]
        more = interrupted(lambda: VERBS[verb](box, held), at, OURS)  # noqa: B023
        told: list[str] = []
        thread = Thread(target=other_thread, args=(box, told), daemon=True)
        thread.start()
        thread.join(20)
        assert not thread.is_alive(), f"locked at point {at}"
        halted += box._store.log.halted is not None
        box.close()
        with opened(disk, durability) as again:
            found = contents(again)
        assert max(found.values()) == 1, f"doubled at point {at}: {found}"
        kept = {f"old {number}" for number in range(5)} | set(told)
        gone = kept - found.keys()
        assert not gone or verb.startswith("acknowledge"), f"lost at point {at}: {gone}"
        assert found.keys() <= kept | {"new", "newer"}, f"at point {at}: {found}"
        at += 1
    assert halted < at, "most interrupts do no harm"
