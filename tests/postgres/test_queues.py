"""R140: which queues there are in a database, and how much room they take."""

from __future__ import annotations

import json

import psycopg
import pytest

from pillarbox import PostgresMailbox
from pillarbox.cli import run
from pillarbox.mailbox.postgres import storage
from pillarbox.testing.redis import until

COUNT = 200


def test_R140_queue_info_shows_the_size_of_the_table_and_its_dead_rows(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with PostgresMailbox("orders", bytes, url=url) as box:
        box.send_many([b"x" * 500] * COUNT)
        for _ in range(COUNT // 100):
            box.acknowledge_many(box.receive(max_messages=100))
        with psycopg.connect(url, autocommit=True) as connection:
            until(
                lambda: (
                    connection.execute("SELECT pg_stat_clear_snapshot()") is not None
                    and storage(f"{url}/orders")["dead_rows"] > 0
                ),
                "the server has counted them",
            )
        assert run(["queue", "info", f"{url}/orders", "--json"]) == 0
        found = json.loads(capsys.readouterr().out)["storage"]
        assert found["table_bytes"] > COUNT * 500
        assert found["index_bytes"] > 0
        assert found["dead_rows"] > 0
        assert run(["queue", "info", f"{url}/orders"]) == 0
        assert "dead rows" in capsys.readouterr().out
