"""`pillarbox queue` and `top`: on a broker, and on a store beside its writer."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pillarbox import open_mailbox
from pillarbox.testing import postgres, redis
from pillarbox.testing.broker import RunningBroker, running_broker
from tests.cli.support import Done, as_json, fill, on_a_terminal, pillarbox


@pytest.fixture
def broker() -> Iterator[RunningBroker]:
    with running_broker() as url:
        yield url


@pytest.fixture
def store(tmp_path: Path) -> str:
    fill(tmp_path / "data")
    return f"file:{tmp_path}/data"


def names(done: Done) -> list[str]:
    return [queue["name"] for queue in as_json(done)["queues"]]


def test_R35_create_makes_a_queue_and_ls_lists_it(broker: RunningBroker) -> None:
    made = pillarbox("queue", "create", f"{broker}/orders")
    assert made.returncode == 0
    assert "orders was created" in made.stdout
    assert "orders_dlq after 5 deliveries" in made.stdout
    assert names(pillarbox("queue", "ls", broker, "--json")) == ["orders", "orders_dlq"]
    listed = pillarbox("queue", "ls", broker).stdout
    assert listed.splitlines()[0].split()[:3] == ["queue", "ready", "scheduled"]
    assert "orders_dlq after 5 deliveries" in listed


def test_R39_create_takes_a_policy_or_none(broker: RunningBroker) -> None:
    pillarbox("queue", "create", f"{broker}/a", "--no-dead-letters")
    made = pillarbox(
        "queue",
        "create",
        f"{broker}/b",
        "--max-deliveries",
        "2",
        "--dead-letters",
        "graves",
        "--json",
    )
    assert as_json(pillarbox("queue", "info", f"{broker}/a", "--json"))["dead_letters"] is None
    assert (as_json(made)["dead_letters"], as_json(made)["max_deliveries"]) == ("graves", 2)
    both = pillarbox("queue", "create", f"{broker}/c", "--no-dead-letters", "--max-deliveries", "1")
    assert both.returncode == 2


def test_R22_create_takes_capacity_and_redelivery(broker: RunningBroker) -> None:
    url = f"{broker}/small"
    pillarbox("queue", "create", url, "--capacity", "1", "--redelivery", "original")
    assert pillarbox("send", url, "a").returncode == 0
    full = pillarbox("send", url, "b")
    assert full.returncode == 1
    assert "holds 1 of 1" in full.stderr
    settings = broker.broker.store.sessions["small"].queue.settings
    assert settings.redelivery == "original"


def test_R4_info_tells_what_a_queue_holds(broker: RunningBroker) -> None:
    url = f"{broker}/orders"
    with open_mailbox(url, str) as box:
        box.send_many(["a", "b", "c"])
        box.send("later", delay_seconds=600)
        box.receive()
    known = as_json(pillarbox("queue", "info", url, "--json"))
    assert (known["ready"], known["scheduled"], known["in_flight"]) == (2, 1, 1)
    told = pillarbox("queue", "info", url).stdout
    assert "in flight" in told
    assert "ago" in told


def test_R39_set_changes_the_policy(broker: RunningBroker) -> None:
    url = f"{broker}/orders"
    pillarbox("queue", "create", url)
    changed = pillarbox("queue", "set", url, "--max-deliveries", "9", "--json")
    assert (as_json(changed)["max_deliveries"], as_json(changed)["dead_letters"]) == (
        9,
        "orders_dlq",
    )
    nothing = pillarbox("queue", "set", url)
    assert nothing.returncode == 2
    assert "--max-deliveries" in nothing.stderr
    for option, value in (("--max-deliveries", "0"), ("--dead-letters", "")):
        refused = pillarbox("queue", "set", url, option, value)
        assert (refused.returncode, refused.stdout) == (2, "")
        assert f"{option} must be" in refused.stderr


@pytest.mark.parametrize("verb", ["rm", "purge"])
def test_R3_what_destroys_wants_a_yes(broker: RunningBroker, verb: str) -> None:
    url = f"{broker}/orders"
    with open_mailbox(url, str) as box:
        box.send_many(["a", "b"])
        for words in ((), ("--json",)):
            refused = pillarbox("queue", verb, url, *words)
            assert refused.returncode == 2
            assert "--yes" in refused.stderr
        assert box.stats().total == 2


def test_R3_purge_empties_and_rm_deletes(broker: RunningBroker) -> None:
    urls = [f"{broker}/a", f"{broker}/b"]
    for url in urls:
        with open_mailbox(url, str) as box:
            box.send_many(["x", "y"])
    purged = as_json(pillarbox("queue", "purge", *urls, "--yes", "--json"))
    assert purged == {"purged": [{"name": "a", "messages": 2}, {"name": "b", "messages": 2}]}
    removed = pillarbox("queue", "rm", *urls, "-y")
    assert removed.stdout == "a was deleted: 0 messages\nb was deleted: 0 messages\n"
    assert names(pillarbox("queue", "ls", broker, "--json")) == ["a_dlq", "b_dlq"]


@pytest.mark.parametrize("verb", ["info", "set", "rm", "purge"])
def test_R35_a_queue_that_is_not_there_is_not_made_by_a_slip(
    broker: RunningBroker, verb: str
) -> None:
    words = {"set": ("--max-deliveries", "1"), "rm": ("--yes",), "purge": ("--yes",)}
    done = pillarbox("queue", verb, f"{broker}/odrers", *words.get(verb, ()))
    assert done.returncode == 1
    assert "no queue 'odrers'" in done.stderr
    assert broker.broker.store.sessions == {}


def test_R75_a_store_is_listed_beside_its_writer(tmp_path: Path) -> None:
    boxes = fill(tmp_path / "data", leave_open=True)
    boxes[0].send({})  # once this is confirmed, so is all that came before
    try:
        listed = as_json(pillarbox("queue", "ls", f"file:{tmp_path}/data", "--json"))["queues"]
        found = {queue["name"]: queue for queue in listed}
        assert set(found) == {"orders", "orders_dlq", "notes", "raw"}
        assert found["orders"]["in_flight"] == 3
        assert found["orders"]["dead"] == 2
        assert found["notes"]["scheduled"] == 1
        one = pillarbox("queue", "ls", f"file:{tmp_path}/data/notes", "--json")
        assert names(one) == ["notes"]
    finally:
        for box in boxes:
            box.close()


def test_R31_queues_of_a_store_are_made_changed_and_deleted(store: str) -> None:
    assert pillarbox("queue", "create", f"{store}/new").returncode == 0
    changed = pillarbox("queue", "set", f"{store}/new", "--max-deliveries", "3", "--json")
    assert as_json(changed)["dead_letters"] == "new_dlq"
    assert pillarbox("queue", "rm", f"{store}/new", "--yes").returncode == 0
    assert "new" not in names(pillarbox("queue", "ls", store, "--json"))
    assert as_json(pillarbox("queue", "purge", f"{store}/raw", "--yes", "--json")) == {
        "purged": [{"name": "raw", "messages": 1}]
    }


@pytest.mark.parametrize("url", ["memory:orders", "nonsense", "ftp://host/orders"])
def test_R36_a_url_that_can_t_be_listed_is_refused(url: str) -> None:
    assert pillarbox("queue", "ls", url).returncode in (1, 2)


def test_R35_a_broker_that_is_not_there_is_told_in_one_line() -> None:
    done = pillarbox("queue", "ls", "http://127.0.0.1:1")
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "can't be reached" in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ["queue"],
        *(["queue", verb] for verb in ("ls", "create", "info", "set", "rm", "purge")),
        *([verb] for verb in ("send", "receive", "peek", "redrive", "tail", "top")),
    ],
    ids=" ".join,
)
def test_R35_help_fits_a_screen_and_has_an_example(
    words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    shown = pillarbox(*words, "--help").stdout
    assert len(shown.splitlines()) <= 24
    assert max(map(len, shown.splitlines())) <= 80
    assert "Example: pillarbox" in shown


def test_R88_top_shows_the_queues_the_fullest_first(broker: RunningBroker) -> None:
    for name, count in (("few", 1), ("many", 9)):
        with open_mailbox(f"{broker}/{name}", str, dead_letters=None) as box:
            box.send_many(["x"] * count)
    once = pillarbox("top", broker, "--once")
    assert once.returncode == 0
    assert [line.split()[0] for line in once.stdout.splitlines()[1:3]] == ["many", "few"]
    assert "2 queues, 10 messages" in once.stdout
    by_name = as_json(pillarbox("top", broker, "--once", "--json", "--sort", "name"))
    assert [queue["name"] for queue in by_name["queues"]] == ["few", "many"]
    assert pillarbox("top", broker, "--interval", "0").returncode == 2


def test_R88_top_goes_on_and_tells_the_rate(broker: RunningBroker) -> None:
    command = [sys.executable, "-m", "pillarbox.cli", "top", str(broker), "--json"]
    command += ["--interval", "0.05"]
    with (
        open_mailbox(f"{broker}/orders", str, dead_letters=None) as box,
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as top,
    ):
        assert top.stdout is not None
        first = json.loads(top.stdout.readline())
        assert first["queues"][0]["rate"] is None
        box.send_many(["x"] * 100)
        rates = [0.0]
        while not rates[-1]:
            rates.append(json.loads(top.stdout.readline())["queues"][0]["rate"])
        assert rates[-1] > 0
        top.terminate()


def test_R88_top_is_a_live_table_on_a_terminal(broker: RunningBroker) -> None:
    with open_mailbox(f"{broker}/orders", str, dead_letters=None) as box:
        box.send("a")
    shown = on_a_terminal("top", broker, "--once")
    assert "orders" in shown
    assert "1 queue, 1 message" in shown


@pytest.mark.parametrize("on", ["broker", "store", "redis", "postgresql"])
def test_R59_pause_and_resume(on: str, broker: RunningBroker, store: str) -> None:
    servers = {
        "broker": lambda: broker,
        "store": lambda: store,
        "redis": lambda: redis.shared_server().url,
        "postgresql": lambda: postgres.shared_server().database(),
    }
    url = f"{servers[on]()}/notes"
    pillarbox("send", url, "tea")
    paused = pillarbox("queue", "pause", url)
    assert (paused.returncode, paused.stdout) == (0, "notes was paused\n")
    assert pillarbox("send", url, "coffee").returncode == 0
    received = pillarbox("receive", url)
    assert (received.returncode, received.stdout) == (1, "")
    waiting = 3 if on == "store" else 2
    assert f"notes is paused and delivers nothing ({waiting} ready messages)" in received.stderr
    assert f"pillarbox queue resume {url}" in received.stderr
    assert as_json(pillarbox("queue", "info", url, "--json"))["paused"]
    assert "notes (paused)" in pillarbox("queue", "ls", url).stdout

    resumed = pillarbox("queue", "resume", url, "--json")

    assert as_json(resumed) == {"resumed": ["notes"]}
    assert "tea" in pillarbox("receive", url).stdout
    pillarbox("queue", "rm", url, "--yes")


def test_R59_a_queue_of_sqs_can_t_be_paused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pillarbox.mailbox.sqs.list_queues", lambda url: [])
    done = pillarbox("queue", "pause", "sqs://eu-west-1/orders")
    assert (done.returncode, "no queue 'orders'" in done.stderr) == (1, True)


def test_R39_set_keeps_the_maximum_of_a_queue_on_a_server() -> None:
    for server in (redis.shared_server().url, postgres.shared_server().database()):
        url = f"{server}/strict"
        pillarbox("queue", "create", url, "--max-deliveries", "2")
        changed = as_json(pillarbox("queue", "set", url, "--dead-letters", "graves", "--json"))
        assert (changed["dead_letters"], changed["max_deliveries"]) == ("graves", 2)
        pillarbox("queue", "rm", url, f"{server}/graves", "--yes")


def test_R59_an_error_does_not_show_the_secret_in_a_url(broker: RunningBroker) -> None:
    done = pillarbox("queue", "info", f"{broker.replace('://', '://boss:hidden@')}/tpyo")
    assert (done.returncode, "no queue 'tpyo'" in done.stderr) == (1, True)
    assert "hidden" not in done.stderr


def test_R36_a_declined_purge_is_no_wrong_usage(
    broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    pillarbox("send", f"{broker}/kept", "tea")
    monkeypatch.setattr("pillarbox.cli.queue.confirmed", lambda *_, **__: False)
    declined = pillarbox("queue", "purge", f"{broker}/kept")
    assert (declined.returncode, declined.stderr) == (1, "pillarbox: nothing was changed\n")
    assert as_json(pillarbox("queue", "info", f"{broker}/kept", "--json"))["ready"] == 1


def test_R59_only_a_queue_that_exists_can_be_paused(broker: RunningBroker) -> None:
    done = pillarbox("queue", "pause", f"{broker}/tpyo")
    assert done.returncode == 1
    assert "there is no queue 'tpyo'" in done.stderr
