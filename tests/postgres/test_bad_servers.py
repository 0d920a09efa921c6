"""R140: a server whose disk is full, or that is in recovery: a clear error, nothing half done."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from pillarbox import MailboxConnectionError, MailboxStorageError, PostgresMailbox
from pillarbox.testing.postgres import UNSAFE, PostgresServer, _user, directory
from tests.durable.small_disk import small_disk

DISK_MB = 4
BATCH = 20
BODY = os.urandom(6_000)  # it can't be compressed


@pytest.fixture
def disk() -> Iterator[Path]:
    """A small file system that the server may write to."""
    with directory() as path, small_disk(Path(path) / "small", DISK_MB) as place:
        user = _user()
        if user is not None:
            os.chown(place, user.pw_uid, user.pw_gid)
        yield place


def test_R140_on_a_full_disk_a_batch_is_refused_as_a_whole_and_nothing_is_lost(
    url: str, disk: Path
) -> None:
    space = f"small_{os.getpid()}"
    with (
        PostgresMailbox("orders", bytes, url=url) as box,
        psycopg.connect(url, autocommit=True) as connection,
    ):
        connection.execute(f"CREATE TABLESPACE {space} LOCATION '{disk}'")
        connection.execute(f"ALTER TABLE pillarbox.messages SET TABLESPACE {space}")
        sent = fill(box)
        assert 0 < len(sent) < DISK_MB * 1_000
        assert box.stats().total == len(sent)  # none of the batch that failed
        subprocess.run(["mount", "-o", f"remount,size={8 * DISK_MB}m", disk], check=True)
        sent.append(box.send(BODY))  # it goes on by itself
        held = [message for _ in sent for message in box.receive()]
        assert [message.id for message in held] == sent
        assert all(box.acknowledge_many(held))
        connection.execute("ALTER TABLE pillarbox.messages SET TABLESPACE pg_default")
        connection.execute(f"DROP TABLESPACE {space}")


def fill(box: PostgresMailbox[bytes]) -> list[str]:
    """Send batches until one is refused; the ids of the others."""
    sent: list[str] = []
    while True:
        try:
            sent += box.send_many([BODY] * BATCH)
        except MailboxStorageError as error:
            assert "free some space" in str(error)  # noqa: PT017 - it ends the loop
            return sent


def test_R140_a_server_in_recovery_is_told() -> None:
    with directory() as path:
        primary = PostgresServer(path, {**UNSAFE, "wal_level": "replica"})
        standby = PostgresServer(path, UNSAFE)
        try:
            primary.create()
            primary.start()
            with PostgresMailbox("orders", str, url=primary.url) as box:
                box.send("a")
            standby.copy(primary, "standby")
            standby.start()
            for name in ("orders", "others"):
                with pytest.raises(MailboxConnectionError, match="target_session_attrs"):
                    PostgresMailbox(name, str, url=standby.url, retry_seconds=0.2)
            with PostgresMailbox("orders", str, url=primary.url) as box:
                assert box.stats().ready == 1
        finally:
            standby.kill()
            primary.kill()
