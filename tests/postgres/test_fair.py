"""R151: a fair queue in PostgreSQL costs the same, whatever a noisy tenant has sent or holds."""

from __future__ import annotations

import psycopg
import pytest

from pillarbox import PostgresMailbox
from tests.postgres.test_flatness import pages

CLAIM = "SELECT pillarbox.claim(1, 10, 1000000, 'x', '{}', -1, 0, false, false)"
FLOOD, HELD, TENANTS = 10_000, 40, 5
PAGES_MAX = 400
WALK = "SELECT count(*) FROM pillarbox.messages WHERE queue = 1 AND tenant = 'flood' AND body <> ''"


def test_R151_a_claim_does_not_walk_what_a_noisy_tenant_has_sent(url: str) -> None:
    """By the pages it reads. Control: a look at each message of the tenant reads far more."""
    with PostgresMailbox("orders", bytes, url=url, fair=True) as box:
        for _ in range(FLOOD // 1_000):
            box.send_many([b"x" * 1_000] * 1_000, group="flood")
        box.receive(max_messages=HELD, visibility_timeout=3_600)
        for tenant in range(TENANTS):
            box.send_many([b"quiet"] * 8, group=f"tenant{tenant}")
        box.send_many([b"quiet"] * 10)
        with psycopg.connect(url, autocommit=True) as connection:
            pages(connection, CLAIM, {})  # what a first call reads is not of the queue
            assert pages(connection, CLAIM, {}) < PAGES_MAX
            assert pages(connection, WALK, {}) > 2 * PAGES_MAX
        assert [m.body for m in box.receive(max_messages=30)] == [b"quiet"] * 30


def test_R151_a_claim_does_not_look_at_every_tenant_unless_one_is_noisy(url: str) -> None:
    """Control: to look at the first message of each reads far more."""
    with PostgresMailbox("orders", bytes, url=url, fair=True) as box:
        for number in range(500):
            box.send(b"x", group=f"tenant{number}")
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("SET enable_seqscan = off")
            pages(connection, CLAIM, {})
            assert pages(connection, CLAIM, {}) < PAGES_MAX
            everyone = "SELECT count(*) FROM pillarbox.first_ready(1)"
            assert pages(connection, everyone, {}) > 2 * PAGES_MAX


def test_R151_what_very_many_hold_is_counted_once_a_second(url: str) -> None:
    with PostgresMailbox("orders", bytes, url=url, fair=True) as box:
        for _ in range(2):
            box.send_many([b"x"] * 1_200, group="flood")
        held = box.receive(max_messages=1_200, visibility_timeout=3_600)
        box.send_many([b"quiet"] * 3, group="other")
        with psycopg.connect(url, autocommit=True) as connection:

            def note_a_second_ago() -> None:
                connection.execute("UPDATE pillarbox.tenant_counts SET counted_at = 0")

            def counts() -> dict[str, int]:
                return dict(connection.execute("SELECT tenant, held FROM pillarbox.tenant_counts"))

            assert box.receive()[0].body == b"quiet"
            assert counts() == {"": 1_200, "flood": 1_200}
            assert all(box.acknowledge_many(held))
            note_a_second_ago()
            assert box.receive()[0].body == b"x", "it was counted anew"
            assert box.purge() > 0
            assert counts() == {}


def test_R151_a_sweep_that_finds_nothing_settles_and_locks_nothing(url: str) -> None:
    """A send at the same time would otherwise skip what the sweep has locked."""
    with PostgresMailbox("orders", bytes, url=url, fair=True) as box:
        box.send(b"x", group="tenant")
        box.send(b"y", delay_seconds=900)
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("UPDATE pillarbox.queues SET retention = 3600000000")
            connection.execute("UPDATE pillarbox.messages SET due = 1 WHERE state = 2")
            due = "SELECT count(*) FROM pillarbox.messages WHERE state = 2"
            assert connection.execute("SELECT pillarbox.sweep(1, 100)").fetchone() == (0,)
            assert connection.execute(due).fetchone() == (1,)
            connection.execute("UPDATE pillarbox.queues SET retention = 0")
            assert connection.execute("SELECT pillarbox.sweep(1, 100)").fetchone() == (2,)


@pytest.mark.parametrize("to_fair", [True, False])
def test_R151_a_message_that_moves_is_in_a_group_or_of_a_tenant(url: str, to_fair: bool) -> None:
    """As the queue has it that it moves to; its sender's group stays what it was."""
    with (
        PostgresMailbox("from", str, url=url, fair=not to_fair) as source,
        PostgresMailbox("to", str, url=url, fair=to_fair) as target,
    ):
        source.send_many(["a1", "a2"], group="a")
        assert source.redrive(to="to") == 2
        assert source.stats().total == 0
        (first,) = target.receive()
        assert first.group == "a"
        assert len(target.receive(max_messages=2)) == int(to_fair), (
            "a group waits, a tenant does not"
        )
