"""R58: kill -9 of a durable broker under its clients: nothing confirmed is lost or revived.

The clients reconnect by themselves. What they were told is unknown may have happened or not.
"""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pillarbox import MailboxConnectionError, UnknownOutcomeError, open_mailbox
from tests.broker.native.support import until

ROOT = Path(__file__).parents[3]


class Killable:
    """A broker that can be killed and started again at the same place."""

    def __init__(self, data: str, durability: str = "os") -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            self.port = server.getsockname()[1]
        self._place = data, durability
        self.start()

    def start(self) -> None:
        module = "tests.broker.native.server_process"
        command = [sys.executable, "-m", module, *self._place, str(self.port)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
        )
        assert self._process.stdout is not None
        self.url = self._process.stdout.readline().strip()
        assert self.url, "the broker did not start"

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.communicate()

    def stop(self) -> None:
        self._process.communicate("")


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Killable]:
    broker = Killable(str(tmp_path / "data"))
    yield broker
    broker.stop()


class Crowd:
    """Threads that send, and threads that receive and acknowledge; they note what they learn."""

    def __init__(self, url: str, senders: int, receivers: int) -> None:
        self.box = open_mailbox(url, str, dead_letters=None, patience_seconds=300)
        self.confirmed: set[str] = set()
        self.unknown: set[str] = set()
        self.done: set[str] = set()
        self.revived: list[str] = []
        self.errors: list[BaseException] = []
        self.over = threading.Event()
        self.answers: Counter[str] = Counter()  # how many each client had
        work: list[tuple[Callable[[int], None], int]] = [(self._send, n) for n in range(senders)]
        work += [(self._receive, n) for n in range(receivers)]
        self._threads = [threading.Thread(target=self._run, args=each) for each in work]
        for thread in self._threads:
            thread.start()

    def _run(self, work: Callable[[int], None], number: int) -> None:
        try:
            work(number)
        except BaseException as error:  # noqa: BLE001 - the test sees it
            self.errors.append(error)

    def _send(self, number: int) -> None:
        count = 0
        while not self.over.is_set():
            count += 1
            body = f"{number}-{count}"
            try:
                self.box.send(body)
            except UnknownOutcomeError:
                self.unknown.add(body)
            else:
                self.confirmed.add(body)
                self.answers[f"sender {number}"] += 1

    def _receive(self, number: int) -> None:
        while not self.over.is_set():
            self.answers[f"receiver {number}"] += 1
            for message in self.box.receive(max_messages=5, visibility_timeout=3_600):
                if message.body in self.done:
                    self.revived.append(message.body)
                try:
                    if message.acknowledge():
                        self.done.add(message.body)
                except UnknownOutcomeError:
                    self.unknown.add(message.body)

    def go_on(self) -> None:
        """Return once every client has been answered some times more."""
        before = self.answers.copy()

        def done() -> bool:
            assert self.errors == []
            going = [name for name in list(self.answers) if self.answers[name] > before[name] + 5]
            return len(going) == len(self._threads)

        until(done, "every client goes on")

    def end(self) -> None:
        self.over.set()
        for thread in self._threads:
            thread.join()


def rounds(broker: Killable, count: int, senders: int, receivers: int) -> None:
    crowd = Crowd(f"{broker.url}/orders", senders, receivers)
    try:
        for _ in range(count):
            crowd.go_on()
            broker.kill()
            broker.start()
    finally:
        crowd.end()
    assert crowd.errors == []
    left = rest(crowd.box)
    assert crowd.revived == []
    assert crowd.confirmed - crowd.done - crowd.unknown - set(left) == set()  # nothing is lost
    assert [body for body, times in left.items() if times > 1] == []
    assert set(left) & crowd.done == set()
    assert set(left) <= crowd.confirmed | crowd.unknown


def rest(box: Any) -> Counter[str]:
    """What is still in the queue, held or not."""
    left = Counter(message.body for message in box.peek(10_000, state="in_flight"))
    while messages := box.receive(max_messages=1_000):
        left.update(message.body for message in messages)
        box.acknowledge_many(messages)
    box.close()
    return left


def test_R58_nothing_confirmed_is_lost_or_revived_by_kill_9(broker: Killable) -> None:
    rounds(broker, 2, senders=4, receivers=2)


@pytest.mark.soak
@pytest.mark.timeout(1_800)
def test_R58_nothing_is_lost_or_revived_in_50_kills_under_16_clients(broker: Killable) -> None:
    rounds(broker, 50, senders=12, receivers=4)


def test_R58_control_a_broker_that_keeps_nothing_loses_what_it_confirmed(tmp_path: Path) -> None:
    broker = Killable(str(tmp_path / "data"), "memory")
    try:
        with pytest.raises(AssertionError):
            rounds(broker, 1, senders=2, receivers=0)
    finally:
        broker.stop()


def test_R58_a_client_that_can_t_wait_is_told(broker: Killable) -> None:
    with open_mailbox(f"{broker.url}/orders", str, patience_seconds=0.2) as box:
        box.send("a")
        broker.kill()
        with pytest.raises(MailboxConnectionError):
            box.send("b")
        broker.start()
        assert [message.body for message in box.peek()] == ["a"]
