"""R32: commands are the same bytes whoever packs them, and hiredis is not needed."""

from __future__ import annotations

import subprocess
import sys

import hiredis
import pytest

from pillarbox.mailbox.redis import resp
from pillarbox.testing.redis import shared_server
from tests.redis.world import new_name

ITEMS = [
    (b"PING",),
    (b"SET", "größe", 7),
    (b"EVALSHA", b"", b"\r\n\0\xff", -12_345_678_901_234, 0, "a b"),
    (b"x" * 100_000,),
]
CYCLE = """
import sys
sys.modules["hiredis"] = None
from pillarbox import open_mailbox
from pillarbox.mailbox.redis import resp
assert resp.pack is resp.pack_in_python
with open_mailbox(sys.argv[1], str) as box:
    box.send_many(["größe"] * 3, group="g", priority=7)
    messages = box.receive(max_messages=9, wait_time_seconds=1)
    assert [message.body for message in messages] == ["größe"] * 3
    assert box.acknowledge_many(messages) == [True] * 3
"""


@pytest.mark.parametrize("items", ITEMS)
def test_R32_both_pack_the_same_bytes(items: tuple[object, ...]) -> None:
    assert resp.pack is hiredis.pack_command
    assert resp.pack_in_python(items) == hiredis.pack_command(items)


def test_R32_a_script_is_called_with_its_keys_packed_before() -> None:
    keys = resp.Keys([b"k1", b"k2"])
    head = resp.part((b"EVALSHA", b"sha"))
    for more, words in ((0, []), (0, [b"a", 1]), (2, [b"k3", b"k4", b"a"])):
        whole = (b"EVALSHA", b"sha", 2 + more, b"k1", b"k2", *words)
        assert keys.call(head, more, words) == resp.pack(whole)


def test_R32_it_works_without_hiredis() -> None:
    url = f"{shared_server().url}/{new_name()}"
    subprocess.run([sys.executable, "-c", CYCLE, url], check=True)
