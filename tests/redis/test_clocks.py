"""R32: time is the server's: what a client believes the time to be changes nothing."""

from __future__ import annotations

import subprocess
import sys

from pillarbox.mailbox.redis.scripts import Scripts
from pillarbox.testing.redis import shared_server
from tests.redis.world import new_name, open_box

# A program whose every clock is an hour ahead, or behind.
CLIENT = """
import sys, time
offset = int(sys.argv[1])
for name in ("time", "monotonic", "perf_counter"):
    real = getattr(time, name)
    setattr(time, name, lambda real=real: real() + offset)
    real_ns = getattr(time, name + "_ns")
    setattr(time, name + "_ns", lambda real=real_ns: real() + offset * 10**9)
from pillarbox.mailbox.redis import RedisMailbox
box = RedisMailbox(sys.argv[3], str, url=sys.argv[2])
for line in sys.stdin:
    verb = line.strip()
    if verb == "receive":
        held = box.receive(visibility_timeout=1, wait_time_seconds=5)
        print([m.delivery_count for m in held], flush=True)
    elif verb == "look":
        print(len(box.receive()), flush=True)
    elif verb == "acknowledge":
        print(held[0].acknowledge(), flush=True)
    elif verb == "age":
        print(round(box.stats().oldest_age_seconds), flush=True)
box.close()
"""


class Client:
    def __init__(self, offset: int, name: str) -> None:
        command = [sys.executable, "-c", CLIENT, str(offset), f"{shared_server().url}/-", name]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(self, verb: str) -> str:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(verb, file=self.process.stdin, flush=True)
        return self.process.stdout.readline().strip()

    def close(self) -> None:
        with self.process:
            assert self.process.stdin is not None
            self.process.stdin.close()


def test_R32_clients_with_clocks_an_hour_apart_agree_on_every_lease() -> None:
    name = new_name()
    early, late = Client(-1_800, name), Client(1_800, name)
    try:
        with open_box(name=name) as box:
            assert (early.ask("look"), late.ask("look")) == ("0", "0")  # both are there
            box.send("a")
            assert int(early.ask("age")) < 60
            assert int(late.ask("age")) < 60
            assert early.ask("receive") == "[1]"
            assert late.ask("look") == "0"
            assert late.ask("receive") == "[2]"  # it waited for the lease to end, and no longer
            assert early.ask("acknowledge") == "False"
            assert early.ask("receive") == "[3]"
            assert late.ask("acknowledge") == "False"
            assert early.ask("acknowledge") == "True"
            assert box.stats().total == 0
    finally:
        early.close()
        late.close()


AN_HOUR_AHEAD = """
local clock = call("TIME")
local now = (clock[1] + 3600) * 1000000 + clock[2]
"""


def test_R32_if_each_went_by_its_own_clock_they_would_not_agree() -> None:
    """The control: one client's scripts take its own time for that of the server."""
    with open_box() as box, open_box(name=box.name, scripts=Scripts(now=AN_HOUR_AHEAD)) as late:
        box.send("a")
        (held,) = box.receive(visibility_timeout=600)
        assert len(late.receive()) == 1
        assert held.acknowledge() is False
