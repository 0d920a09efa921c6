"""R32: the scripts are files, known by their SHA, and touch nothing but their queue's keys."""

from __future__ import annotations

from importlib.resources import files

import pytest

from pillarbox import DeadLetterPolicy
from pillarbox.mailbox.redis import RedisMailbox
from pillarbox.mailbox.redis.keys import PARTS, keys_of
from pillarbox.mailbox.redis.scripts import SCRIPTS, Scripts
from pillarbox.testing.redis import shared_cluster, shared_server
from tests.redis.world import new_name, open_box

FILES = [file.name for file in files("pillarbox.mailbox.redis.scripts").iterdir()]
ALL = sorted(name.removesuffix(".lua") for name in FILES if name.endswith(".lua"))
LOOKS = ("peek", "stats")
PIECES = {"queue", "now", "state", "line", "journal", "fate", "lease", "elapsed", "noisy", "fair"}


def use_every_verb(box: RedisMailbox[str]) -> None:
    dead = box.dead_letters
    assert dead is not None
    box.send_many(["a", "b"], group="g")
    box.send("c", priority=3, deduplication_id="c", attributes={"colour": "red"})
    box.send("d", delay_seconds=60)
    first, second, third = box.receive(max_messages=10)
    assert first.extend_visibility(60)
    assert first.acknowledge()
    assert second.release()
    assert third.nack()
    assert box.receive()[0].reject("no good")
    assert len(box.peek()) == 1
    assert dead.redrive() == 1
    assert box.delete([box.peek()[0].id]) == 1
    assert box.stats().total == 2
    assert box.purge() == 2


def test_R32_every_verb_works_after_the_server_forgot_the_scripts() -> None:
    server = shared_server()
    with open_box(dead_letters=DeadLetterPolicy(3)) as box:
        use_every_verb(box)
        for _ in range(2):
            server.ask("SCRIPT", "FLUSH")
            box.send("a")
            server.ask("SCRIPT", "FLUSH")
            assert server.ask("SCRIPT", "EXISTS", SCRIPTS["claim"].sha) == [0]
            (message,) = box.receive()
            server.ask("SCRIPT", "FLUSH")
            assert message.acknowledge()
        assert box.stats().total == 0


def test_R32_scripts_are_sent_once_and_then_named_by_their_sha() -> None:
    server = shared_server()
    with open_box() as box:
        for _ in range(2):
            box.send("a")
        before = server.info("commandstats").get("cmdstat_eval", "calls=0,").split(",")[0]
        for _ in range(10):
            box.send("a")
        assert server.info("commandstats")["cmdstat_eval"].split(",")[0] == before


def test_R32_every_key_is_under_the_queue_s_hash_tag() -> None:
    server = shared_server()
    server.ask("FLUSHALL")
    name = new_name()
    with open_box(name=name, dead_letters=DeadLetterPolicy(3), journal=True) as box:
        use_every_verb(box)
        box.send("a", deduplication_id="once")
        keys = [key.decode() for key in server.ask("KEYS", "*")]
        assert len(keys) > 5
        assert [key for key in keys if not key.startswith(f"{{queue:{name}}}")] == []


def test_R33_dead_letters_are_in_the_slot_of_their_queue() -> None:
    name = new_name()
    slot = keys_of(name).slot
    assert keys_of(f"{name}_dlq").slot == slot
    node = shared_cluster().nodes[0]
    assert node.ask("CLUSTER", "KEYSLOT", keys_of(name).keys[0]) == slot
    assert node.ask("CLUSTER", "KEYSLOT", keys_of(f"{name}_dlq").keys[0]) == slot
    assert keys_of("_dlq").prefix == "{queue:_dlq}"


@pytest.mark.parametrize("name", ALL)
def test_R32_every_file_says_what_it_does_and_what_it_is_given(name: str) -> None:
    text = files("pillarbox.mailbox.redis.scripts").joinpath(f"{name}.lua").read_text()
    lines = text.splitlines()
    if name in PIECES:
        assert lines[0].startswith("-- Include: ")
        return
    assert lines[0] in ("#!lua", "#!lua flags=allow-oom", "#!lua flags=no-writes")
    assert lines[1].startswith("-- ")
    head = "\n".join(line for line in lines[1:] if line.startswith("--"))
    assert "ARGV: names" in head
    assert "Returns " in head
    assert "--@include queue" in text


def test_R32_the_header_of_the_queue_documents_every_key() -> None:
    text = files("pillarbox.mailbox.redis.scripts").joinpath("queue.lua").read_text()
    for number, part in enumerate(PARTS, 1):
        assert f"--   {number:2} {part} " in text


def test_R32_no_script_names_a_key_by_itself() -> None:
    for name in set(ALL) - PIECES:
        text = SCRIPTS[name].text.decode()
        assert "{queue" not in text
        assert "redis.call" not in text.replace("local call = redis.call", "")


def test_R32_another_piece_makes_another_script() -> None:
    scripts = Scripts()
    before = scripts["send"]
    scripts.replace(now="local now = 1\n")
    assert scripts["send"].sha != before.sha
    assert b"TIME" not in scripts["send"].text


@pytest.mark.parametrize("name", LOOKS)
def test_R110_the_server_keeps_a_script_that_looks_from_writing(name: str) -> None:
    server = shared_server()
    text = SCRIPTS[name].text.decode()
    assert text.startswith("#!lua flags=no-writes\n")
    writes = text.replace(
        "\nlocal call = redis.call\n", '\nlocal call = redis.call\ncall("SET", KEYS[1], "")\n'
    )
    assert writes != text
    keys = keys_of(new_name()).keys
    with pytest.raises(Exception, match=r"read-only|not allowed"):
        server.ask("EVAL", writes, len(keys), *keys, "name", "", "0", "1")
