"""Builds the state of a store on disk anew: the last snapshot, and the log from there on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pillarbox.clock import WallClock
from pillarbox.core import journal
from pillarbox.core.errors import MailboxStorageError
from pillarbox.core.queue import NEVER
from pillarbox.logger import logger
from pillarbox.mailbox import snapshot
from pillarbox.mailbox.belonging import settings_misfit, snapshot_misfit
from pillarbox.mailbox.compactor import read_snapshot
from pillarbox.mailbox.durable_session import DurableQueueSession
from pillarbox.mailbox.location import index_of
from pillarbox.mailbox.replay import Replay, all_records
from pillarbox.mailbox.store_settings import SETTINGS_FILE, StoreSettings
from pillarbox.mailbox.store_time import Timekeeper

if TYPE_CHECKING:
    from pillarbox.mailbox.durable_store import DurableStore


def recover(store: DurableStore) -> int:
    """Build the state anew; the answer is the index of the snapshot it was built from."""
    state = read_snapshot(store.disk, store.path)
    if state is not None:
        _refuse_foreign_snapshot(store, state)
    elif store.log.first_index > 0:
        raise MailboxStorageError(
            f"the snapshot of the store {store.path} is missing or damaged, and its log no "
            "longer goes back to the beginning; restore the store from a backup"
        )
    replay = Replay(state, store.path)
    replay.frames(store.log.frames(replay.start))
    _take_over(store, replay)
    if state is not None and state.oldest < store.log.first_index:
        _refuse_missing_bodies(store, replay)
    if replay.misfits:
        logger.error(
            "entries were skipped because a repair could not save what came before them",
            store=store.path,
            skipped=len(replay.misfits),
        )
    if isinstance(store.clock, WallClock):
        store.time = Timekeeper(store.disk, store.path, store.clock)
        store.time.go_on(max(replay.latest, store.last_key << 1), store.log.last_time_ns)
    if store.log.next_index == 0:
        identity = (store.prefix, store._secret)
        store.log.append(journal.entry_bytes(journal.IDENTITY, 0, 0, details=identity))
    return replay.start


def refuse_foreign_settings(store: DurableStore, settings: StoreSettings) -> None:
    misfit = settings_misfit(settings, store.log.log_id.hex())
    if misfit is not None and store.log.next_index > 0:
        raise MailboxStorageError(
            f"{store.path}/{SETTINGS_FILE} {misfit}; put the right one back, or delete it and "
            "open the store with the segment_bytes and history that it should have"
        )


def _refuse_foreign_snapshot(store: DurableStore, state: snapshot.StoreState) -> None:
    log = store.log
    misfit = snapshot_misfit(state, log.log_id.hex(), log.first_index, log.next_index)
    if misfit is not None:
        raise MailboxStorageError(
            f"the snapshot of the store {store.path} {misfit}; put the right files back, or "
            f"run 'pillarbox log repair {store.path}' to see what can be saved"
        )


def _refuse_missing_bodies(store: DurableStore, replay: Replay) -> None:
    records = all_records(replay.queues.values())
    oldest = min((index_of(each.body) for each in records), default=NEVER)
    if oldest < store.log.first_index:
        raise MailboxStorageError(
            f"the log of the store {store.path} begins at entry {store.log.first_index}, and "
            f"messages lie in it from {oldest} on: its first segments are missing; put them "
            f"back, or run 'pillarbox log repair {store.path}'"
        )


def _take_over(store: DurableStore, replay: Replay) -> None:
    """Give the store the queues, in the order of their creation."""
    if replay.names.prefix is not None:
        store.prefix, store._secret = replay.names.prefix, replay.secret
    store.last_key, store.last_number = replay.last_key, replay.last_number
    for number, queue in sorted(replay.queues.items()):
        session = store.sessions[queue.name] = DurableQueueSession(store, queue, number)
        session.notes = replay.notes.get(number, {})
        session.plain = False
    for source in store.sessions.values():
        dead = source.queue.dead_letters
        source.dead = None if dead is None else store.sessions[dead.name]
