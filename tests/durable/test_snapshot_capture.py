"""R51: a snapshot has the state of one moment, though the store goes on while it is taken."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from pillarbox import DurableMailbox
from pillarbox.mailbox import capture, compactor, snapshot
from pillarbox.mailbox.capture import Capture
from pillarbox.mailbox.protocol import DeadLetterPolicy
from pillarbox.mailbox.queue_steps import QueueSteps
from tests.durable.world import PATH, World, open_store, state_of


class BusyWorld(World):
    """Also makes, changes and drops queues."""

    def step(self) -> None:
        if self.chance.random() < 0.1:
            self.chance.choice((self.open, self.drop, self.note, self.bury_elsewhere))()
        else:
            super().step()

    def other(self) -> str:
        return self.chance.choice(("one", "two", "three"))

    def open(self) -> None:
        policy = self.chance.choice((None, DeadLetterPolicy(3, name="one_dlq")))
        box = DurableMailbox(
            self.other(), bytes, path=PATH, disk=self.disk, clock=self.clock, dead_letters=policy
        )
        box.send_many([b"a", b"b"])
        box.receive()[0].nack()

    def drop(self) -> None:
        name = self.other()
        if name in self.store.sessions:
            self.store.drop(name)

    def note(self) -> None:
        name = self.chance.choice(sorted(self.store.sessions))
        self.store.note(self.store.sessions[name], {"number": self.number})

    def bury_elsewhere(self) -> None:
        session = self.store.sessions.get(self.other())
        if session is not None:
            self.store.set_dead_letters(session, self.store.session("elsewhere"), 2)


def notes_of(world: World) -> dict[str, object]:
    return {name: session.notes for name, session in world.store.sessions.items()}


def compact_while_busy(seed: int, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether the store comes back as it was, after a snapshot with steps in every pause."""
    world = BusyWorld(seed)
    for _ in range(120):
        world.step()
    pauses = 0

    def pause() -> None:
        nonlocal pauses
        pauses += 1
        for _ in range(world.chance.choice((1, 5))):
            world.step()

    with monkeypatch.context() as patch:
        patch.setattr(capture, "_PIECE", 2)
        patch.setattr(capture, "_QUEUE_WORTH", 1)
        patch.setattr(compactor, "short_pause", pause)
        world.store.compactor.compact(keep_spares=True)
    assert pauses > 5
    world.store.log.flush()
    copy = open_store(world.disk.kill(), world.clock)
    same_notes = notes_of(world) == {name: each.notes for name, each in copy.sessions.items()}
    budget = world.store.compactor.budget
    budget.reserve(0)
    assert budget.messages == sum(each.queue.size for each in world.store.sessions.values())
    return same_notes and state_of(copy) == state_of(world.store)


@pytest.mark.parametrize("seed", range(60))
def test_R51_a_snapshot_taken_while_the_store_is_busy_has_one_moment(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert compact_while_busy(seed, monkeypatch)


def _nothing(self: Capture, *_: object) -> None:
    """What changes is not copied first."""


def _queues_only(self: Capture, sessions: Iterable[QueueSteps], events: object) -> None:
    """Queues are copied before they change, messages are not."""
    _before_changes(self, sessions, ())


_before_changes = Capture.before_changes


@pytest.mark.parametrize("protection", [_nothing, _queues_only])
def test_R51_control_without_copies_before_changes_the_store_comes_back_otherwise(
    protection: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Capture, "before_changes", protection)

    def comes_back(seed: int) -> bool:
        try:
            return compact_while_busy(seed, monkeypatch)
        except Exception:  # noqa: BLE001 - the log does not fit such a snapshot, or its file is broken
            return False

    assert not all(comes_back(seed) for seed in range(20))


def test_R51_what_was_encoded_is_what_is_decoded() -> None:
    world = World(3)
    for _ in range(200):
        world.step()
    with world.store.lock:
        taken = Capture(world.store, capture.no_pause)
    taken.complete()
    content = snapshot.encode(taken.state(oldest=7))
    state = snapshot.decode(content)
    assert (state.index, state.oldest) == (world.store.log.next_index, 7)
    assert [each.name for each in state.queues] == list(world.store.sessions)
