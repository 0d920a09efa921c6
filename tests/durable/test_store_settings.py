"""A store remembers how it is to be kept: the size of its segments, and its history."""

from __future__ import annotations

from pathlib import Path

import pytest

from pillarbox import DurableMailbox, MailboxStorageError, Retention
from pillarbox.mailbox.durable_store import DurableStore
from pillarbox.mailbox.store_files import SETTINGS_FILE


def test_R73_a_store_is_kept_as_it_was_last_opened_with(tmp_path: Path) -> None:
    history = Retention(age_seconds=3600)
    DurableMailbox("a", str, path=tmp_path, segment_bytes=16384, history=history).close()
    store = DurableStore(tmp_path)
    assert (store.segment_bytes, store.compactor.history) == (16384, history)
    store.close()
    DurableMailbox("a", str, path=tmp_path, segment_bytes=32768).close()
    store = DurableStore(tmp_path)
    assert (store.segment_bytes, store.compactor.history) == (32768, history)
    store.close()


def test_R73_control_a_store_that_was_told_nothing_keeps_no_history(tmp_path: Path) -> None:
    DurableMailbox("a", str, path=tmp_path).close()
    assert not (tmp_path / SETTINGS_FILE).exists()
    store = DurableStore(tmp_path)
    assert store.compactor.history == Retention(bytes=0)
    store.close()


def test_R73_a_damaged_note_is_told_and_nothing_is_dropped(tmp_path: Path) -> None:
    DurableMailbox("a", str, path=tmp_path, history=Retention()).close()
    (tmp_path / SETTINGS_FILE).write_text("{")
    with pytest.raises(MailboxStorageError, match="delete it"):
        DurableStore(tmp_path)
