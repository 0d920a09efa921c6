"""R103: a worker claims what can start, settles what is done, and stops when asked."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from pillarbox import (
    DeadLetterPolicy,
    InMemoryMailbox,
    InvalidParameterError,
    MailboxConnectionError,
    MailboxStorageError,
    Message,
    RequestClient,
    open_mailbox,
)
from pillarbox.testing import FakeClock, FakeMailbox
from pillarbox.worker import (
    Dispatcher,
    Job,
    LeaseLost,
    ReceiveFailed,
    Reject,
    Release,
    Retry,
    RetryPolicy,
    TaskEnded,
    TaskStarted,
    Worker,
    WorkerStarted,
    WorkerStopped,
)
from pillarbox.worker.pools import TaskPool
from tests.unit.support import notices
from tests.worker.conftest import Place, eventually

Running = Callable[..., threading.Thread]
AT_ONCE = RetryPolicy(backoff=0)
KINDS = ["thread", "task"]

both_kinds = pytest.mark.parametrize("kind", KINDS)


def of_kind(kind: str, work: Callable[..., Any]) -> Callable[..., Any]:
    """The same handler as a plain function or as a coroutine function."""

    def plain(body: Any, job: Job[Any]) -> Any:
        return work(body, job)

    async def coroutine(body: Any, job: Job[Any]) -> Any:
        return work(body, job)

    return plain if kind == "thread" else coroutine


class Gathering:
    """A handler that waits until the test lets it go."""

    def __init__(self, kind: str) -> None:
        self.started: list[str] = []
        self.open = threading.Event()
        self.handler: Callable[[str], Any] = self.wait if kind == "thread" else self.await_it

    def wait(self, body: str) -> None:
        self.started.append(body)
        self.open.wait()

    async def await_it(self, body: str) -> None:
        self.started.append(body)
        await asyncio.to_thread(self.open.wait)


@both_kinds
def test_R103_every_message_is_handled_once_and_gone(
    place: Place, running: Running, kind: str
) -> None:
    box = place.open("work", int)
    seen: list[int] = []
    running(Worker(box, of_kind(kind, lambda body, job: seen.append(body)), concurrency=8))
    box.send_many(range(1_000))
    eventually(lambda: box.approximate_count() == 0)
    assert sorted(seen) == list(range(1_000))


@both_kinds
def test_R103_only_as_many_are_claimed_as_can_start(
    place: Place, running: Running, kind: str
) -> None:
    box = place.open("work")
    box.send_many(map(str, range(20)))
    gathering = Gathering(kind)
    running(Worker(box, gathering.handler, concurrency=5))
    eventually(lambda: len(gathering.started) == 5)
    assert (box.stats().in_flight, box.stats().ready) == (5, 15)
    gathering.open.set()
    eventually(lambda: box.approximate_count() == 0)
    assert len(gathering.started) == 20


@both_kinds
def test_R103_stop_drains_what_runs_and_leaves_the_rest_uncounted(
    place: Place, running: Running, kind: str
) -> None:
    box = place.open("work")
    box.send_many(map(str, range(9)))
    gathering = Gathering(kind)
    worker = Worker(box, gathering.handler, concurrency=3)
    thread = running(worker)
    eventually(lambda: len(gathering.started) == 3)
    worker.stop()
    assert thread.is_alive()
    gathering.open.set()
    thread.join(20)
    assert not thread.is_alive()
    assert len(gathering.started) == 3
    left = box.receive(max_messages=10)
    assert [message.delivery_count for message in left] == [1] * 6


@both_kinds
def test_R103_a_parked_worker_stops_at_once(place: Place, running: Running, kind: str) -> None:
    box = place.open("work")
    worker = Worker(box, of_kind(kind, print), concurrency=4, wait_time_seconds=600)
    thread = running(worker)
    eventually(lambda: threading.active_count() > 2)
    began = time.monotonic()
    worker.stop()
    thread.join(20)
    assert not thread.is_alive()
    assert time.monotonic() - began < 5
    # What the receive that was given up still gets goes back uncounted.
    box.send("a")
    (message,) = eventually(lambda: box.receive(wait_time_seconds=1))
    assert message.delivery_count == 1


class SlowAnswers(InMemoryMailbox[str]):
    """The answer to a receive comes when the test lets it go: what it leased is leased by then."""

    def __init__(self) -> None:
        super().__init__("work", str)
        self.claimed = threading.Event()
        self.open = threading.Event()

    def receive(self, **options: Any) -> Any:
        messages = super().receive(**options)
        self.claimed.set()
        self.open.wait()
        return messages


def stopped_while_claiming(running: Running, kind: str) -> tuple[SlowAnswers, threading.Thread]:
    box = SlowAnswers()
    box.send("a")
    worker = Worker(box, of_kind(kind, print))
    thread = running(worker)
    box.claimed.wait()
    worker.stop()
    eventually(lambda: worker._pool.drained)
    return box, thread


@both_kinds
def test_R103_run_returns_when_what_was_claimed_meanwhile_is_released(
    running: Running, kind: str
) -> None:
    box, thread = stopped_while_claiming(running, kind)
    box.open.set()
    thread.join(20)
    assert (box.stats().in_flight, box.stats().ready) == (0, 1)


@both_kinds
def test_R103_a_run_that_does_not_wait_for_it_would_leave_a_lease(
    running: Running, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Control. It is also what happens where a server does not answer: `run` ends all the same."""
    monkeypatch.setattr("pillarbox.worker.receiver._GRACE_SECONDS", 0)
    box, thread = stopped_while_claiming(running, kind)
    thread.join(20)
    assert not thread.is_alive()
    assert box.stats().in_flight == 1
    box.open.set()
    eventually(lambda: box.stats().ready == 1)


@both_kinds
def test_R103_a_stop_before_the_run_is_honoured(place: Place, kind: str) -> None:
    box = place.open("work")
    box.send("a")
    worker = Worker(box, of_kind(kind, print))
    worker.stop()
    worker.run()
    assert box.stats().ready == 1


@both_kinds
def test_R103_a_worker_with_a_url_opens_and_closes_its_mailbox(
    place: Place, running: Running, kind: str
) -> None:
    sender = place.open("work", int)
    sender.send_many(range(3))
    seen: list[int] = []
    handler = of_kind(kind, lambda body, job: seen.append(body))
    worker: Worker[int] = Worker(place.url_of("work"), handler, concurrency=3)
    thread = running(worker)
    eventually(lambda: len(seen) == 3)
    worker.stop()
    thread.join(20)
    assert worker.mailbox.closed
    assert sender.approximate_count() == 0


@both_kinds
def test_R103_abort_gives_back_what_runs_uncounted(
    place: Place, running: Running, kind: str
) -> None:
    box = place.open("work")
    box.send_many(["a", "b"])
    gathering = Gathering(kind)
    worker = Worker(box, gathering.handler, concurrency=2)
    running(worker)
    eventually(lambda: len(gathering.started) == 2)
    assert worker.abort() == 2
    assert [m.delivery_count for m in box.receive(max_messages=9)] == [1, 1]
    gathering.open.set()


@both_kinds
def test_R103_a_failure_is_tried_again_and_then_dead_with_its_reason(
    place: Place, running: Running, kind: str
) -> None:
    box = place.open("work", dead_letters=DeadLetterPolicy(3))
    tries: list[int] = []

    def fail(body: str, job: Job[str]) -> None:
        tries.append(job.delivery_count)
        raise ValueError("no such tea")

    running(Worker(box, of_kind(kind, fail), retry=RetryPolicy(retries=2, backoff=0)))
    box.send("mud")
    assert box.dead_letters is not None
    (letter,) = eventually(box.dead_letters.peek)
    assert tries == [1, 2, 3]
    assert letter.dead_letter.reason == "failed 3 times, most recently with ValueError: no such tea"


@both_kinds
def test_R103_a_handler_may_decide_itself(place: Place, running: Running, kind: str) -> None:
    box = place.open("work", dead_letters=DeadLetterPolicy(5))
    told: list[tuple[str, int]] = []

    def decide(body: str, job: Job[str]) -> None:
        told.append((body, job.delivery_count))
        if body == "reject":
            raise Reject("not ours to make")
        if body == "retry" and job.delivery_count < 3:
            raise Retry(0)
        if body == "release" and len([each for each in told if each[0] == "release"]) < 4:
            raise Release

    running(Worker(box, of_kind(kind, decide)))
    box.send_many(["reject", "retry", "release"])
    eventually(lambda: box.approximate_count() == 0)
    assert told.count(("reject", 1)) == 1
    assert sorted(each for each in told if each[0] == "retry") == [("retry", n) for n in (1, 2, 3)]
    assert [each for each in told if each[0] == "release"] == [("release", 1)] * 4
    assert box.dead_letters is not None
    (letter,) = box.dead_letters.peek()
    assert letter.dead_letter.reason == "not ours to make"


def test_R103_one_failure_harms_no_other_message(running: Running) -> None:
    box = InMemoryMailbox("work", int, dead_letters=DeadLetterPolicy(1))
    seen: list[int] = []

    def odd(body: int) -> None:
        if body % 2:
            raise SystemExit("even this")
        seen.append(body)

    running(Worker(box, odd, concurrency=4))
    box.send_many(range(100))
    eventually(lambda: box.approximate_count() == 0)
    assert sorted(seen) == list(range(0, 100, 2))
    assert box.stats().dead == 50


@both_kinds
def test_R21_what_a_handler_returns_is_the_answer(
    place: Place, running: Running, kind: str
) -> None:
    requests, replies = place.open("sums", list[int]), place.open("totals", int)
    running(Worker(requests, of_kind(kind, lambda body, job: sum(body)), concurrency=2))
    client = RequestClient(requests, replies)
    assert client.ask([2, 3], timeout=20) == 5
    assert client.ask([], timeout=20) == 0
    eventually(lambda: requests.approximate_count() == 0)


@both_kinds
def test_R100_a_handler_that_runs_3_x_its_timeout_is_not_redelivered(
    place: Place, running: Running, kind: str
) -> None:
    box = place.open("slow")
    calls: list[int] = []

    def slow(body: str, job: Job[str]) -> None:
        calls.append(job.delivery_count)
        time.sleep(4.5)

    # Not so short that a busy machine keeps the keeper from its turn.
    worker = Worker(box, of_kind(kind, slow), concurrency=2, visibility_timeout=1.5)
    running(worker)
    box.send("a")
    eventually(lambda: box.approximate_count() == 0)
    assert calls == [1]


def test_R100_without_the_keeper_it_is_redelivered(running: Running) -> None:
    """Control: the same work with its keeper switched off."""
    box = InMemoryMailbox("slow", str)
    calls: list[int] = []

    def slow(body: str, job: Job[str]) -> None:
        calls.append(job.delivery_count)
        if len(calls) == 1:
            eventually(lambda: len(calls) > 1)

    worker = Worker(box, slow, concurrency=2, visibility_timeout=0.5)
    worker._keeper.hold = lambda helds: None  # type: ignore[method-assign]
    late: list[LeaseLost] = []
    worker.dispatcher.subscribe(LeaseLost, late.append)
    running(worker)
    box.send("a")
    eventually(lambda: late)
    assert calls == [1, 2]


@both_kinds
def test_R100_a_handler_is_told_that_its_lease_is_lost(running: Running, kind: str) -> None:
    box = FakeMailbox("slow", str)
    held: list[Message[str]] = []
    ends: list[str] = []

    def threaded(body: str, job: Job[str]) -> None:
        held.append(job.message)
        if job.delivery_count > 1:
            return
        eventually(lambda: job.lost)
        with pytest.raises(Exception, match="is lost") as raised:
            job.check()
        ends.append(type(raised.value).__name__)

    async def tasked(body: str, job: Job[str]) -> None:
        held.append(job.message)
        if job.delivery_count > 1:
            return
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError as error:
            ends.append(type(error).__name__)
            raise

    handler = threaded if kind == "thread" else tasked
    worker = Worker(box, handler, visibility_timeout=0.6)
    lost: list[LeaseLost] = []
    worker.dispatcher.subscribe(LeaseLost, lost.append)
    running(worker)
    box.send("a")
    eventually(lambda: held)
    box.expire(held[0])
    eventually(lambda: box.approximate_count() == 0)
    assert ends == ["LeaseLostError" if kind == "thread" else "CancelledError"]
    eventually(lambda: lost)  # told by the keeper's thread
    assert [event.job.message for event in lost] == [held[0]]


def test_R100_a_coroutine_that_exceeds_its_time_limit_is_dead_lettered(running: Running) -> None:
    box = InMemoryMailbox("slow", str, dead_letters=DeadLetterPolicy(2))
    deliveries: list[int] = []

    async def handle(body: str, job: Job[str]) -> None:
        deliveries.append(job.delivery_count)
        await asyncio.sleep(60)

    retry = RetryPolicy(retries=1, backoff=0)
    running(Worker(box, handle, retry=retry, visibility_timeout=30, time_limit=0.05))
    box.send("a")
    eventually(lambda: box.stats().dead)
    assert deliveries == [1, 2]
    assert box.dead_letters is not None
    (letter,) = box.dead_letters.peek()
    assert letter.dead_letter is not None
    assert "the time limit of the message was exceeded" in letter.dead_letter.reason


def test_R100_a_coroutine_whose_lease_is_lost_before_it_starts_is_cancelled(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = InMemoryMailbox("slow", str)
    ends: list[int] = []

    async def handle(body: str, job: Job[str]) -> None:
        try:
            await asyncio.sleep(60 if job.delivery_count == 1 and not ends else 0)
        except asyncio.CancelledError:
            ends.append(job.delivery_count)
            raise

    worker = Worker(box, handle, visibility_timeout=30)
    start = TaskPool._start_tasks

    def start_late(pool: TaskPool, jobs: list[Job[str]]) -> None:
        if not ends:
            worker._keeper._lose(jobs[0], "it expired")
        start(pool, jobs)

    monkeypatch.setattr(TaskPool, "_start_tasks", start_late)
    running(worker)
    box.send("a")
    eventually(lambda: box.approximate_count() == 0)
    assert ends == [1]


def test_R103_an_unreachable_server_is_tried_again(running: Running) -> None:
    box = FakeMailbox("far", str)
    seen: list[str] = []
    failures: list[ReceiveFailed] = []
    dispatcher = Dispatcher()
    dispatcher.subscribe(ReceiveFailed, failures.append)
    box.break_connection()
    worker = Worker(box, seen.append, dispatcher=dispatcher)
    running(worker)
    eventually(lambda: failures)
    assert not worker.stats().connected
    box.restore_connection()
    box.send("a")
    eventually(lambda: seen == ["a"])
    assert worker.stats().connected


def test_R103_an_acknowledgement_is_tried_again_while_the_lease_lasts(running: Running) -> None:
    box = FakeMailbox("far", str)
    real, calls = box.acknowledge_many, []

    def flaky(messages: Any) -> list[bool]:
        calls.append(1)
        if len(calls) < 4:
            raise MailboxConnectionError("gone for a moment")
        return real(messages)

    box.acknowledge_many = flaky  # type: ignore[method-assign]
    seen: list[str] = []
    running(Worker(box, seen.append))
    box.send("a")
    eventually(lambda: box.approximate_count() == 0)
    assert seen == ["a"]


def test_R103_a_broken_disk_ends_the_worker_with_its_error() -> None:
    box = FakeMailbox("broken", str)

    def broken(**options: Any) -> Any:
        raise MailboxStorageError("the disk is gone")

    box.receive = broken  # type: ignore[method-assign]
    with pytest.raises(MailboxStorageError, match="the disk is gone"):
        Worker(box, print, concurrency=3).run()


def test_R103_a_backend_that_gives_ten_at_a_time_is_asked_for_ten(running: Running) -> None:
    box = InMemoryMailbox("small", int)
    real, asked = box.receive, []

    def small(*, max_messages: int = 1, **options: Any) -> Any:
        asked.append(max_messages)
        if max_messages > 10:
            raise InvalidParameterError("max_messages", max_messages, "from 1 to 10")
        return real(max_messages=max_messages, **options)

    box.receive = small  # type: ignore[method-assign]
    seen: list[int] = []
    running(Worker(box, seen.append, concurrency=50))
    box.send_many(range(100))
    eventually(lambda: len(seen) == 100)
    assert asked[0] == 50
    assert max(asked[1:]) == 10


@both_kinds
def test_R102_a_worker_tells_what_it_does(running: Running, kind: str) -> None:
    box = InMemoryMailbox("work", str)
    dispatcher = Dispatcher()
    told: list[str] = []
    for event_type in (WorkerStarted, WorkerStopped, TaskStarted, TaskEnded):
        dispatcher.subscribe(event_type, lambda event: told.append(type(event).__name__))
    ends: list[TaskEnded] = []
    dispatcher.subscribe(TaskEnded, ends.append)

    def work(body: str, job: Job[str]) -> None:
        if body == "bad" and job.delivery_count == 1:
            raise ValueError("once")

    worker = Worker(box, of_kind(kind, work), retry=AT_ONCE, dispatcher=dispatcher)
    thread = running(worker)
    box.send_many(["good", "bad"])
    eventually(lambda: box.approximate_count() == 0)
    worker.stop()
    thread.join(20)
    assert told[0] == "WorkerStarted"
    assert told[-1] == "WorkerStopped"
    assert told[1:-1] == ["TaskStarted", "TaskEnded"] * 3
    assert [(end.job.body, end.outcome) for end in ends] == [
        ("good", "succeeded"),
        ("bad", "retried"),
        ("bad", "succeeded"),
    ]
    assert repr(ends[1].error) == "ValueError('once')"
    assert all(end.seconds >= 0 for end in ends)


def test_R103_a_worker_and_its_askers_meet_over_sqs(
    broker_url: str, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQS gives ten at a time, and so does whoever speaks its protocol."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "nobody")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "nothing")
    url = f"sqs+{broker_url}/doubling"
    with RequestClient.open(url, int, int, create=True) as client:
        running(Worker(open_mailbox(url, int), lambda number: 2 * number, concurrency=25))
        assert [client.ask(number, timeout=30) for number in range(5)] == [0, 2, 4, 6, 8]


def test_R103_retries_need_a_place_for_the_dead() -> None:
    box = InMemoryMailbox("plain", str)
    with pytest.raises(InvalidParameterError, match=r"'plain', which has no dead-letter queue"):
        Worker(box, print, retry=RetryPolicy(retries=5))
    worker = Worker("memory:with-retries", print, retry=RetryPolicy(retries=5))
    assert worker.mailbox.dead_letters is not None


def test_R103_the_wait_before_a_retry_doubles_and_is_partly_left_to_chance() -> None:
    policy = RetryPolicy(backoff=2, backoff_max=60, jitter=0.5)
    for delivery, whole in enumerate([2, 4, 8, 16, 32, 60, 60], start=1):
        waits = [policy.delay(delivery) for _ in range(200)]
        assert whole / 2 <= min(waits) < max(waits) <= whole
    assert RetryPolicy(jitter=0).delay(1_000) == 600


def test_R103_a_worker_is_run_once() -> None:
    worker = Worker(InMemoryMailbox("once", str), print)
    worker.stop()
    worker.run()
    with pytest.raises(RuntimeError, match="create another"):
        worker.run()


def test_R103_a_failed_handler_is_logged_with_its_queue_and_its_cause(running: Running) -> None:
    box = InMemoryMailbox("logged", str, dead_letters=DeadLetterPolicy(1))

    def handle(body: str) -> None:
        raise ValueError("no such tea")

    with notices() as said:
        running(Worker(box, handle))
        box.send("a")
        eventually(lambda: box.stats().dead == 1)
    (line,) = [line for line in said if "handler failed" in line]
    assert "logged" in line
    assert "no such tea" in line


class Distant(InMemoryMailbox[int]):
    """A mailbox whose server is so many seconds away, and which knows who asked it."""

    def __init__(self, seconds: float) -> None:
        self.clock = FakeClock()
        self.seconds = seconds
        self.settled_by: list[str] = []
        super().__init__("distant", int, clock=self.clock)

    def acknowledge_many(self, messages: Iterable[Message[int]]) -> list[bool]:
        self.settled_by.append(threading.current_thread().name)
        self.clock.advance(self.seconds)
        return super().acknowledge_many(messages)


def test_R103_a_server_that_is_near_is_told_by_the_thread_of_the_handler() -> None:
    near = Distant(0.001)
    near.send_many([1, 2, 3])
    Worker(near, print, clock=near.clock).run(max_receives=3)
    assert near.approximate_count() == 0
    assert set(near.settled_by) == {"pillarbox-worker-1"}


def test_R103_a_server_that_is_far_is_told_by_another_thread_while_handlers_go_on() -> None:
    far = Distant(1)
    far.send_many([1, 2, 3])
    Worker(far, print, clock=far.clock).run(max_receives=3)
    assert far.approximate_count() == 0
    assert far.settled_by[0] == "pillarbox-worker-1"  # it was not known before
    assert set(far.settled_by[1:]) == {"pillarbox-acknowledger"}
