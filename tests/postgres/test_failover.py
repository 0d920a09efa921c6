"""R140: with a synchronous standby no confirmed message is lost when the primary dies."""

from __future__ import annotations

import threading
from contextlib import ExitStack, suppress

import pytest

from pillarbox import MailboxError, PostgresMailbox
from pillarbox.testing.postgres import PostgresServer, directory
from pillarbox.testing.redis import until

ROUNDS = 20
SENDERS = 4
NAME = "pillarbox_standby"


class Pair:
    """A primary and its standby."""

    def __init__(self, path: str, *, synchronous: bool) -> None:
        names = f"FIRST 1 ({NAME})" if synchronous else ""
        self.primary = PostgresServer(path, {"wal_level": "replica"})
        self.primary.create()
        self.primary.start()
        self.standby = PostgresServer(path, {"hot_standby": "on"})
        self.standby.copy(self.primary, NAME)
        self.standby.start()
        until(self._replicates, "the standby follows")
        self.primary.ask(f"ALTER SYSTEM SET synchronous_standby_names = '{names}'")
        self.primary.ask("SELECT pg_reload_conf()")

    def _replicates(self) -> bool:
        return bool(self.primary.ask("SELECT 1 FROM pg_stat_replication WHERE state = 'streaming'"))

    @property
    def url(self) -> str:
        hosts = f"127.0.0.1:{self.primary.port},127.0.0.1:{self.standby.port}"
        return f"postgresql://postgres@{hosts}/postgres?target_session_attrs=read-write"

    def lag(self) -> None:
        """The standby falls behind."""
        self.standby.ask("ALTER SYSTEM SET primary_conninfo = ''")
        self.standby.ask("SELECT pg_reload_conf()")
        until(lambda: not self._replicates(), "the standby follows no more")

    def fail_over(self) -> None:
        self.primary.kill()
        self.standby.ask("SELECT pg_promote()")

    def kill(self) -> None:
        self.primary.kill()
        self.standby.kill()


def confirmed_and_found(pair: Pair, *, lag: bool) -> tuple[set[str], set[str]]:
    """What senders were told is sent, and what is there after the primary died under load."""
    confirmed: set[str] = set()
    stop = threading.Event()
    enough = threading.Semaphore(0)
    box = PostgresMailbox("orders", str, url=pair.url, retry_seconds=60)

    def send(number: int) -> None:
        count = 0
        while not stop.is_set():
            body = f"{number}-{count}"
            count += 1
            with suppress(MailboxError):  # of unknown outcome: it says so
                box.send(body)
                confirmed.add(body)
                enough.release()

    threads = [threading.Thread(target=send, args=(n,)) for n in range(SENDERS)]
    for thread in threads:
        thread.start()
    if lag:
        pair.lag()
    for _ in range(200):
        assert enough.acquire(timeout=60)
    pair.fail_over()
    for _ in range(50):  # clients go on by themselves
        assert enough.acquire(timeout=60)
    stop.set()
    for thread in threads:
        thread.join()
    found: set[str] = set()
    while messages := box.receive(max_messages=1_000):
        found |= {message.body for message in messages}
    box.close()
    return confirmed, found


@pytest.mark.soak
@pytest.mark.timeout(3_600)
def test_R140_no_confirmed_message_is_lost_when_the_primary_dies() -> None:
    for _ in range(ROUNDS):
        with directory() as path, ExitStack() as stack:
            pair = Pair(path, synchronous=True)
            stack.callback(pair.kill)
            confirmed, found = confirmed_and_found(pair, lag=False)
            assert confirmed - found == set()


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_R140_control_with_an_asynchronous_standby_messages_are_lost() -> None:
    with directory() as path, ExitStack() as stack:
        pair = Pair(path, synchronous=False)
        stack.callback(pair.kill)
        confirmed, found = confirmed_and_found(pair, lag=True)
        assert confirmed - found
