"""`pillarbox log` on stores that are whole, closed and plain."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from pillarbox.log import Log
from pillarbox.log.layout import FORMAT
from pillarbox.mailbox.durable import DurableMailbox
from tests.cli.support import SENT, as_json, fill, on_a_terminal, pillarbox, pillarbox_process

LOGS = Path(__file__).parents[1] / "log" / "fixtures"
VERBS = ("ls", "info", "cat", "verify", "repair", "compact")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("made") / "data"
    fill(path)
    return path


@pytest.fixture
def store(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "data"))


def test_R70_ls_lists_every_segment_in_order(made: Path) -> None:
    listed = as_json(pillarbox("log", "ls", made, "--json"))["segments"]
    assert len(listed) > 1
    assert all(each["sealed"] and each["from"] <= each["to"] for each in listed)
    firsts = [each["first_index"] for each in listed]
    ends = [each["first_index"] + each["records"] for each in listed]
    assert firsts == [0, *ends[:-1]]
    shown = pillarbox("log", "ls", made).stdout
    assert all(each["name"] in shown for each in listed)


def test_R70_info_counts_messages_as_the_mailboxes_do(made: Path, store: Path) -> None:
    known = as_json(pillarbox("log", "info", made, "--json"))
    queues = {each["name"]: each for each in known["queues"]}
    assert (known["first_index"], known["format"], known["in_use_by_pid"]) == (0, FORMAT, None)
    assert known["snapshot"]["index"] == known["end_index"]
    assert queues["orders"]["dead_letters"] == "orders_dlq"
    for name in queues:
        box = DurableMailbox(name, path=store)
        stats = box.stats()
        box.close()
        counts = (stats.ready, stats.scheduled, stats.in_flight)
        assert counts == tuple(queues[name][key] for key in ("ready", "scheduled", "in_flight"))
    assert "orders_dlq after 2 deliveries" in pillarbox("log", "info", made).stdout


@pytest.mark.parametrize("version", range(1, FORMAT + 1))
def test_R70_info_names_the_format_of_the_newest_segment(tmp_path: Path, version: int) -> None:
    shutil.copytree(LOGS / f"v{version}-closed", tmp_path / "log")
    assert as_json(pillarbox("log", "info", tmp_path / "log", "--json"))["format"] == version


def test_R72_names_that_look_like_markup_are_printed_as_is(made: Path, tmp_path: Path) -> None:
    store = Path(shutil.copytree(made, tmp_path / "data[red]:tea:"))
    assert f"{store} is intact" in pillarbox("log", "verify", store).stdout
    assert f"{store}: " in pillarbox("log", "compact", store).stdout


def test_R73_info_names_what_holds_records_back(store: Path) -> None:
    with Log.open(store / "log") as log:
        log.pin("audit", 3)
        log.tailer("billing").save()
    known = as_json(pillarbox("log", "info", store, "--json"))
    assert known["pins"] == {"pin:audit": 3, "tailer:billing": 0}
    assert "pin:audit at 3" in pillarbox("log", "info", store).stdout


def cat(*words: str | Path) -> list[dict[str, object]]:
    done = pillarbox("log", "cat", *words, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_R74_cat_decodes_every_entry_of_the_history(made: Path) -> None:
    entries = cat(made)
    assert [each["index"] for each in entries] == list(range(len(entries)))
    sent = [each for each in entries if each["kind"] == "sent" and each["queue"] == "orders"]
    assert [each["body"]["n"] for each in sent] == list(range(SENT))  # type: ignore[index]
    assert sent[0]["attributes"] == {"shop": "ada"}
    assert {"raw": "hex", "notes": "hex", "orders": "json"}.items() <= {
        each["queue"]: each["body_format"] for each in entries if each["kind"] == "sent"
    }.items()
    died = [each for each in entries if each["kind"] == "died"]
    assert [each["reason"] for each in died] == ["bad", "bad"]
    assert {each["id"] for each in died} <= {each["id"] for each in sent}


def test_R74_cat_keeps_to_the_queue_the_kinds_the_range_and_the_limit(made: Path) -> None:
    assert [e["kind"] for e in cat(made, "--queue", "notes")] == ["declared", "sent", "scheduled"]
    assert cat(f"file:{made}/notes") == cat(made, "--queue", "notes")
    assert {e["kind"] for e in cat(made, "--kind", "leased,died")} == {"leased", "died"}
    assert [e["index"] for e in cat(made, "--from", "10", "--to", "13")] == [10, 11, 12]
    assert [e["index"] for e in cat(made, "--from", "10", "--limit", "2")] == [10, 11]
    middle = cat(made)[60]
    assert cat(made, "--from", str(middle["time"]))[0]["index"] <= 60  # type: ignore[operator]
    assert cat(made, "--from", "2000-01-01") == cat(made, "--from", "10d") == cat(made)
    assert cat(made, "--to", "2000-01-01") == []


def test_R74_cat_never_shows_the_secret_and_never_speaks_to_the_terminal(made: Path) -> None:
    identity = cat(made, "--kind", "identity")[0]
    assert set(identity) == {"index", "time", "kind", "prefix"}
    shown = pillarbox("log", "cat", made).stdout
    assert "\x1b" not in shown
    assert len(shown.splitlines()) == len(cat(made))


def test_R70_cat_shows_the_raw_records_of_a_plain_log(tmp_path: Path) -> None:
    with Log.open(tmp_path / "plain") as log:
        log.append_many([b"one", b'{"two": 2}', b"\xff"])
    assert [each["body"] for each in cat(tmp_path / "plain")] == ["one", {"two": 2}, "ff"]
    assert as_json(pillarbox("log", "info", tmp_path / "plain", "--json"))["store"] is None
    refused = pillarbox("log", "cat", tmp_path / "plain", "--queue", "x")
    assert (refused.returncode, refused.stdout) == (2, "")


def test_R70_the_logs_own_directory_means_its_store(made: Path) -> None:
    assert cat(made / "log") == cat(made)
    (made / "snapshot").rename(made / "hidden")
    try:
        assert cat(made / "log") == cat(made)
    finally:
        (made / "hidden").rename(made / "snapshot")


def test_R72_verify_of_a_whole_store_is_quiet_about_damage(made: Path) -> None:
    done = pillarbox("log", "verify", made)
    assert (done.returncode, done.stderr) == (0, "")
    assert "is intact" in done.stdout
    assert as_json(pillarbox("log", "verify", made, "--json"))["healthy"]


def test_R70_every_verb_runs_as_a_process_and_its_json_is_alone_on_stdout(store: Path) -> None:
    for verb in VERBS:
        done = pillarbox_process("log", verb, store, "--json")
        assert (done.returncode, done.stderr) == (0, "")
        assert all(json.loads(line) for line in done.stdout.splitlines())


def test_R73_compact_makes_a_store_smaller_and_loses_no_message(store: Path) -> None:
    box = DurableMailbox("orders", dict, path=store, segment_bytes=16384)
    while messages := box.receive(max_messages=10):
        for message in messages:
            message.acknowledge()
    box.close()
    done = as_json(pillarbox("log", "compact", store, "--json"))
    assert done["bytes_after"] < done["bytes_before"]
    notes = DurableMailbox("notes", str, path=store)
    assert [message.body for message in notes.receive()] == ["hello\x1b[31m world"]
    notes.close()
    assert "before" in pillarbox("log", "compact", store).stdout


def test_R73_compact_keeps_the_history_that_is_asked_for(store: Path) -> None:
    before = cat(store)
    assert pillarbox("log", "compact", store, "--keep", "1h").returncode == 0
    assert cat(store)[: len(before)] == before


@pytest.mark.parametrize("verb", VERBS)
def test_R70_each_help_fits_a_screen_and_gives_an_example(verb: str) -> None:
    done = pillarbox_process("log", verb, "--help", COLUMNS="80")
    assert done.returncode == 0
    assert len(done.stdout.splitlines()) <= 24
    assert f"Example: pillarbox log {verb}" in done.stdout


def test_R70_the_help_lists_the_exit_codes() -> None:
    assert "Exit codes: 0" in pillarbox_process("--help").stdout
    shown = pillarbox_process("log", "--help").stdout
    assert all(f" {verb} " in shown for verb in VERBS)


@pytest.mark.parametrize("verb", VERBS)
def test_R70_a_wrong_path_is_told_in_one_line(verb: str, tmp_path: Path) -> None:
    for path in (tmp_path / "nowhere", tmp_path, f"file:{tmp_path}/a/b"):
        done = pillarbox("log", verb, path)
        assert (done.returncode, done.stdout) == (1, "")
        assert len(done.stderr.splitlines()) == 1
        assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize(
    "words",
    [
        ("cat",),
        ("cat", "{}", "--from", "tomorrow"),
        ("cat", "{}", "--kind", "eaten"),
        ("cat", "{}", "--queue", "nobody"),
        ("cat", "{}", "--limit", "0"),
        ("ls", "{}", "--color"),
        ("compact", "{}", "--keep", "ever"),
        ("eat", "{}"),
    ],
)
def test_R70_a_wrong_command_line_exits_with_2_and_one_line(
    words: tuple[str, ...], made: Path
) -> None:
    done = pillarbox("log", *(word.format(made) for word in words))
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1


def test_R70_colours_are_for_terminals_and_no_color_turns_them_off(made: Path) -> None:
    assert "\x1b[" in on_a_terminal("log", "verify", made)
    assert "\x1b[3" not in on_a_terminal("log", "verify", made, NO_COLOR="1")
    assert "\x1b" not in pillarbox_process("log", "verify", made).stdout


@pytest.mark.parametrize("columns", [80, 120])
def test_R70_nothing_is_wider_than_the_terminal(made: Path, columns: int) -> None:
    for words in (("ls",), ("info",), ("cat", "--from", "1")):
        shown = on_a_terminal("log", words[0], made, *words[1:], columns=columns, NO_COLOR="1")
        lines = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown).splitlines()
        assert max(map(len, lines)) <= columns
