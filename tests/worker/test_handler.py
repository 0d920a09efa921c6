"""R103: a handler is any callable of a body, and of a job if it wants one."""

from __future__ import annotations

import functools
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pillarbox import AsyncInMemoryMailbox, DeadLetterPolicy, InMemoryMailbox, InvalidParameterError
from pillarbox.worker import Job, Worker, worker
from pillarbox.worker.decorators import find_handlers
from pillarbox.worker.handler import Handler
from pillarbox.worker.signals import on_signals
from tests.worker.conftest import eventually


@dataclass
class Order:
    tea: str


class Shop:
    def pack(self, order: Order) -> None: ...

    async def pack_async(self, order: Order, job: Job[Order]) -> None: ...

    def __call__(self, order: Order) -> None: ...


class AsyncShop:
    async def __call__(self, order: Order, job: Job[Order]) -> None: ...


def plain(order: Order) -> None: ...


def untyped(order): ...  # type: ignore[no-untyped-def]


def with_default(order: Order, colour: str = "red") -> None: ...


async def coroutine(order: Order, job: Job[Order]) -> None: ...


def spread(*orders: Any) -> None: ...


@pytest.mark.parametrize(
    ("function", "is_async", "wants_job", "body_type"),
    [
        (plain, False, False, Order),
        (untyped, False, False, Any),
        (with_default, False, False, Order),
        (coroutine, True, True, Order),
        (Shop().pack, False, False, Order),
        (Shop().pack_async, True, True, Order),
        (Shop(), False, False, Order),
        (AsyncShop(), True, True, Order),
        (functools.partial(with_default, colour="blue"), False, False, Any),
        (functools.partial(coroutine), True, True, Any),
        (lambda order: None, False, False, Any),
        (print, False, False, Any),
        (spread, False, False, Any),
        (len, False, False, Any),
    ],
    ids=lambda value: getattr(value, "__qualname__", str(value))[:30],
)
def test_R103_what_a_handler_is(
    function: Any, is_async: bool, wants_job: bool, body_type: Any
) -> None:
    handler = Handler(function)
    found = (handler.is_async, handler.wants_job, handler.body_type)
    assert found == (is_async, wants_job, body_type)


@pytest.mark.parametrize(
    "function",
    [lambda: None, lambda a, b, c: None, lambda a, *, b: None, "not a function", None],
    ids=["none", "three", "keyword", "str", "None"],
)
def test_R103_what_a_handler_is_not(function: Any) -> None:
    with pytest.raises(InvalidParameterError, match="with the parameters"):
        Handler(function)


def generator(order: Order) -> Any:
    yield order


def takes_a_number(order: Order, number: int) -> None: ...


def takes_the_job_first(job: Job[Order], order: Order) -> None: ...


def takes_a_thread(thread: threading.Thread) -> None: ...


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        (generator, "not a generator function"),
        (takes_a_number, "a second parameter without a default is a Job; 'number' is not"),
        (takes_the_job_first, "the body comes first"),
        (takes_a_thread, "body_type must be"),
        (lambda: None, "with the parameters"),
    ],
    ids=["generator", "number", "job", "thread", "none"],
)
def test_R103_a_handler_that_can_not_work_is_refused_when_it_is_decorated(
    function: Any, problem: str
) -> None:
    with pytest.raises(InvalidParameterError, match=problem):
        worker("memory:orders")(function)


def test_R103_a_refused_handler_is_shown_with_its_signature() -> None:
    with pytest.raises(InvalidParameterError, match=r"takes_a_number\(order: .*Order.*, number: "):
        Handler(takes_a_number)


def test_R103_work_that_was_never_awaited_is_not_acknowledged() -> None:
    box = InMemoryMailbox("box", str, dead_letters=DeadLetterPolicy(1))
    box.send("a")
    Worker(box, lambda body: coroutine(body, None)).run(max_receives=1)  # type: ignore[arg-type]
    assert box.dead_letters is not None
    (letter,) = box.dead_letters.peek()
    assert letter.body == "a"


def test_R103_a_mailbox_for_asyncio_is_refused() -> None:
    with pytest.raises(InvalidParameterError, match="for coroutine handlers, too"):
        Worker(AsyncInMemoryMailbox("box", str), print)  # type: ignore[arg-type]


def test_R103_a_handler_is_found_by_its_path() -> None:
    found = find_handlers(["tests.worker.test_handler:plain", "tests.worker.shop:pack"])
    assert [each.__name__ for each in found.values()] == ["plain", "pack"]
    with pytest.raises(InvalidParameterError, match="has no 'nobody'"):
        find_handlers(["tests.worker.shop:nobody"])


def test_R103_a_module_stands_for_all_its_workers() -> None:
    found = find_handlers(["tests.worker.tasks"])
    assert list(found) == ["tests.worker.tasks:pack", "tests.worker.tasks:post"]
    with pytest.raises(InvalidParameterError, match="with @worker functions"):
        find_handlers(["tests.worker.shop"])


def test_R103_an_import_that_fails_inside_a_module_is_not_taken_for_a_missing_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "absent_shop.py").write_text("import absent")
    with pytest.raises(ModuleNotFoundError, match="'absent'"):
        find_handlers(["absent_shop"])
    with pytest.raises(InvalidParameterError, match="can be imported"):
        find_handlers(["absent"])


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), 10**9])
def test_R103_a_lease_has_some_length(seconds: float) -> None:
    with pytest.raises(InvalidParameterError, match="visibility_timeout"):
        Worker(InMemoryMailbox("box", str), print, visibility_timeout=seconds)


def test_R103_a_decorated_function_is_called_sent_and_run() -> None:
    box = InMemoryMailbox("parcels", str, dead_letters=DeadLetterPolicy(2))
    packed: list[str] = []

    @worker(box, retries=1, concurrency=2, backoff=0)
    def pack(parcel: str) -> str:
        """Pack it."""
        if parcel == "bad":
            raise ValueError
        packed.append(parcel)
        return parcel.upper()

    assert (pack.__name__, pack.__doc__) == ("pack", "Pack it.")
    assert pack("tea") == "TEA"
    assert pack.mailbox is box
    pack.send("rice", priority=9)
    pack.send_many(["salt", "bad"])
    running = pack.worker()
    thread = threading.Thread(target=running.run, daemon=True)
    thread.start()
    eventually(lambda: box.approximate_count() == 0)
    running.stop()
    thread.join(20)
    assert sorted(packed) == ["rice", "salt", "tea"]
    assert box.stats().dead == 1
    stats = running.stats()
    assert (stats.succeeded, stats.failed, stats.retried, stats.dead) == (2, 2, 1, 1)
    assert (stats.in_progress, stats.handled, sum(stats.buckets)) == (0, 4, 4)


def test_R103_the_environment_names_the_mailbox_of_a_worker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    @worker("memory:declared")
    def pack(parcel: str) -> None: ...

    @worker()
    def post(letter: str) -> None: ...

    with pytest.raises(InvalidParameterError, match="PILLARBOX_MAILBOX"):
        post.send("tea")
    monkeypatch.setenv("PILLARBOX_MAILBOX", "memory:from-the-environment")
    for function in (pack, post):
        assert function.mailbox.name == "from-the-environment"
        assert function.worker().mailbox.name == "from-the-environment"
        assert function.worker(mailbox="memory:other").mailbox.name == "other"
    box = InMemoryMailbox("own", str)
    assert worker(box)(plain).mailbox is box


def test_R103_one_variable_does_not_name_the_mailboxes_of_two_workers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PILLARBOX_MAILBOX", "redis://:secret@host/from-the-environment")
    pack = find_handlers(["tests.worker.tasks:pack"])["tests.worker.tasks:pack"]
    with pytest.raises(InvalidParameterError, match="whose workers have 2 mailboxes") as refused:
        pack.send("tea")
    assert "secret" not in str(refused.value)


def test_R103_one_that_was_stopped_before_it_ran_closes_what_it_opened() -> None:
    async def handle(body: str) -> None: ...

    for function in (plain, handle):
        running: Worker[Any] = Worker("memory:never-run", function)
        running.stop()
        running.run()
        assert running.mailbox.closed


PROGRAM = """
import threading, time
from pillarbox.worker import worker

@worker("memory:long")
def handle(seconds: float) -> None:
    print("started", flush=True)
    time.sleep(seconds)
    print("ended", flush=True)

handle.send({seconds})
handle.run()
print("returned", handle.mailbox.approximate_count(), flush=True)
"""


@pytest.mark.parametrize(
    ("seconds", "signals", "said", "codes"),
    [
        (0.3, [signal.SIGTERM], ["ended", "returned 0"], {0}),
        # Whichever of two comes second: the system may deliver them in any order.
        (600.0, [signal.SIGTERM, signal.SIGINT], [], {143, 130}),
    ],
    ids=["one", "two"],
)
def test_R103_a_function_that_runs_here_obeys_signals(
    seconds: float, signals: list[int], said: list[str], codes: set[int]
) -> None:
    program = [sys.executable, "-c", PROGRAM.format(seconds=seconds)]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "started\n"
        for number in signals:
            process.send_signal(number)
        assert process.stdout.read().splitlines() == said
        assert process.wait(30) in codes


def test_R103_a_signal_that_is_told_twice_at_once_is_heard_once() -> None:
    heard: list[int] = []
    with on_signals(heard.append):
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)  # to the group, as `timeout` and systemd do
        signal.raise_signal(signal.SIGINT)
        eventually(lambda: signal.SIGINT in heard)
    assert heard == [signal.SIGTERM, signal.SIGINT]


def test_R103_the_same_signal_a_moment_later_is_heard_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pillarbox.worker.signals._ECHO_SECONDS", 0.001)
    heard: list[int] = []
    with on_signals(heard.append):
        signal.raise_signal(signal.SIGTERM)
        eventually(lambda: len(heard) == 1)
        threading.Event().wait(0.002)
        signal.raise_signal(signal.SIGTERM)
        eventually(lambda: len(heard) == 2)
    assert heard == [signal.SIGTERM, signal.SIGTERM]
