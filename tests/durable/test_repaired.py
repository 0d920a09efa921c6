"""A store whose log was damaged and repaired: it opens, and what can be saved is there."""

from __future__ import annotations

from pathlib import Path

import pytest

from pillarbox import DurableMailbox, MailboxStorageError
from pillarbox.log import repair
from pillarbox.mailbox.protocol import DeadLetterPolicy


def damage(store: Path, needle: bytes) -> None:
    """Flip a bit of the first place in the log that holds these bytes."""
    for segment in sorted((store / "log").glob("*.seg")):
        content = bytearray(segment.read_bytes())
        at = content.find(needle)
        if at >= 0:
            content[at] ^= 1
            segment.write_bytes(content)
            return
    raise AssertionError("it is nowhere")


def filled(path: Path) -> DurableMailbox[str]:
    box = DurableMailbox("box", str, path=path, dead_letters=DeadLetterPolicy(3))
    for number in range(20):
        box.send(f"body-{number:03}!")
    return box


def test_R72_damage_in_the_middle_refuses_to_open(tmp_path: Path) -> None:
    filled(tmp_path).close()
    damage(tmp_path, b"body-010!")
    with pytest.raises(MailboxStorageError, match="repair"):
        DurableMailbox("box", str, path=tmp_path)


def test_R72_a_lost_body_is_buried_and_the_rest_is_delivered(tmp_path: Path) -> None:
    filled(tmp_path).close()
    damage(tmp_path, b"body-010!")
    assert len(repair(tmp_path / "log").damage) == 1
    with DurableMailbox("box", str, path=tmp_path) as box:
        bodies = [message.body for message in box.receive(max_messages=20)]
        assert bodies == [f"body-{n:03}!" for n in range(20) if n != 10]
        (dead,) = box.dead_letters.peek()  # type: ignore[union-attr]
        assert dead.dead_letter is not None
        assert "lost to disk corruption" in dead.dead_letter.reason


def test_R72_without_a_snapshot_a_lost_message_is_gone_and_what_was_acknowledged_stays_gone(
    tmp_path: Path,
) -> None:
    box = filled(tmp_path)
    assert all(box.acknowledge_many(box.receive(max_messages=5)))
    box.close()
    (tmp_path / "snapshot").unlink()
    damage(tmp_path, b"body-003!")  # it was received and acknowledged later
    damage(tmp_path, b"body-012!")
    repair(tmp_path / "log")
    with DurableMailbox("box", str, path=tmp_path) as box:
        bodies = [message.body for message in box.receive(max_messages=20)]
    assert bodies == [f"body-{n:03}!" for n in range(5, 20) if n != 12]
