"""R100, R101: requests in, results out; nothing is acknowledged before it is answered."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
import pydantic
import pytest

from pillarbox import (
    DeadLetterPolicy,
    InMemoryMailbox,
    InvalidParameterError,
    Mailbox,
    RequestClient,
    SerializationError,
    open_mailbox,
)
from pillarbox.testing import FakeClock, FakeMailbox
from pillarbox.worker import (
    Budget,
    Deadline,
    Dispatcher,
    ErrorReport,
    LeaseLostError,
    MainLoop,
    MainLoopRequest,
    MainLoopResult,
    Meter,
    PromptResponse,
    RequestAnswered,
    RequestFailedError,
    Retry,
    Usage,
)
from tests.worker.conftest import Place, eventually

Running = Callable[..., threading.Thread]


@dataclass(frozen=True)
class Question:
    text: str


@dataclass(frozen=True)
class Answer:
    text: str
    length: int


class Modelled(pydantic.BaseModel):
    text: str


class Structured(msgspec.Struct):
    text: str


class Echo:
    """An adapter that answers with what it was asked; some words make it fail."""

    def __init__(self, usage: Usage | None = None) -> None:
        self.usage = usage or Usage()
        self.asked: list[str] = []

    def evaluate(self, prompt: Any, *, meter: Meter) -> PromptResponse[Answer]:
        self.asked.append(prompt.text)
        if prompt.text == "fail":
            raise ValueError("no words")
        return PromptResponse(Answer(prompt.text, len(prompt.text)), self.usage, "echo-1")


class SlowEcho(Echo):
    """A coroutine adapter that never comes to an end by itself."""

    async def evaluate(self, prompt: Any, *, meter: Meter) -> PromptResponse[Answer]:  # type: ignore[override]
        self.asked.append(prompt.text)
        if prompt.text == "slow":
            await asyncio.sleep(3_600)
        return PromptResponse(Answer(prompt.text, len(prompt.text)))


class Session:
    """A loop between two mailboxes in memory, on a clock that only the test moves."""

    def __init__(self, adapter: Any = None, **options: Any) -> None:
        self.clock = FakeClock()
        self.requests = FakeMailbox(
            "requests",
            MainLoopRequest[Question],
            clock=self.clock,
            dead_letters=DeadLetterPolicy(3),
        )
        self.responses = FakeMailbox("responses", MainLoopResult[Answer], clock=self.clock)
        self.adapter = adapter or Echo()
        self.loop: MainLoop[Question, Answer] = MainLoop(
            self.adapter,
            self.requests,
            self.responses,
            clock=self.clock,
            wait_time_seconds=0,
            **options,
        )

    def serve(self, text: str = "hello", **options: Any) -> MainLoopResult[Answer]:
        request = MainLoopRequest(Question(text), **options)
        self.requests.send(request)
        self.loop.run(max_iterations=1)
        (message,) = self.responses.receive()
        message.acknowledge()
        assert message.body.request_id == request.request_id
        assert self.requests.approximate_count() == 0
        return message.body


def test_R100_the_recipe_of_one_iteration_works_with_types_in_brackets() -> None:
    requests = InMemoryMailbox[MainLoopRequest[Question]]("requests")
    responses = InMemoryMailbox[MainLoopResult[Answer]]("responses")
    loop = MainLoop(adapter=Echo(), requests=requests, responses=responses)
    request_id = uuid4()
    requests.send(MainLoopRequest(request=Question("hi"), request_id=request_id))
    loop.run(max_iterations=1)
    (message,) = responses.receive()
    assert message.body.request_id == request_id
    assert message.body.error is None
    assert message.body.unwrap() == PromptResponse(Answer("hi", 2), Usage(), "echo-1")
    assert message.acknowledge() is True


def test_R100_a_subclass_makes_the_prompt() -> None:
    class Loud(MainLoop[Question, Answer]):
        def prompt(self, request: Question) -> Any:
            return Question(request.text.upper())

    session = Session()
    session.loop = Loud(session.adapter, session.requests, session.responses, wait_time_seconds=0)
    assert session.serve("psst").unwrap().output == Answer("PSST", 4)


def test_R100_a_failure_is_answered_with_the_error_and_acknowledged() -> None:
    result = Session().serve("fail")
    assert result.response is None
    assert result.error == ErrorReport("ValueError", "no words")
    with pytest.raises(RequestFailedError, match="ValueError: no words") as raised:
        result.unwrap()
    assert raised.value.report == result.error


def test_R100_the_answer_is_sent_before_the_request_is_acknowledged() -> None:
    session = Session()
    real, in_flight = session.responses.send, []

    def send(body: Any, **options: Any) -> str:
        in_flight.append(session.requests.stats().in_flight)
        return real(body, **options)

    session.responses.send = send  # type: ignore[method-assign]
    session.serve()
    assert in_flight == [1]


def test_R100_an_answer_that_cannot_be_sent_rests_60_s_then_120_then_240() -> None:
    session = Session()
    session.requests.dead_letters  # noqa: B018 - three deliveries are allowed
    session.responses.break_connection()
    session.requests.send(MainLoopRequest(Question("hello")))
    for rest in (60, 120):
        session.loop.run(max_iterations=1)
        assert session.requests.stats().scheduled == 1
        session.clock.advance(rest - 1)
        assert session.requests.stats().ready == 0
        session.clock.advance(1)
        assert session.requests.stats().ready == 1
    session.responses.restore_connection()
    session.loop.run(max_iterations=1)
    (message,) = session.responses.receive()
    assert message.body.error is None
    assert session.requests.approximate_count() == 0


def test_R100_an_answer_that_can_never_be_sent_ends_in_the_dead_letters() -> None:
    session = Session()
    session.responses.break_connection()
    session.requests.send(MainLoopRequest(Question("hello")))
    for _ in range(3):
        session.loop.run(max_iterations=1)
        session.clock.advance(3_600)
    assert session.requests.stats().dead == 1


def test_R100_an_output_that_does_not_serialize_becomes_an_error() -> None:
    class Odd:
        def evaluate(self, prompt: Any, *, meter: Meter) -> PromptResponse[Any]:
            return PromptResponse(object())

    result = Session(Odd()).serve()
    assert result.error is not None
    assert result.error.kind == f"{SerializationError.__module__}.SerializationError"


def test_R100_an_adapter_may_ask_for_a_retry() -> None:
    class Busy(Echo):
        def evaluate(self, prompt: Any, *, meter: Meter) -> PromptResponse[Answer]:
            if not self.asked:
                self.asked.append("")
                raise Retry(30, "rate limited")
            return super().evaluate(prompt, meter=meter)

    session = Session(Busy())
    session.requests.send(MainLoopRequest(Question("hello")))
    session.loop.run(max_iterations=1)
    assert session.requests.stats().scheduled == 1
    assert session.responses.approximate_count() == 0
    session.clock.advance(30)
    session.loop.run(max_iterations=1)
    assert session.responses.approximate_count() == 1


def test_R100_a_deadline_that_is_over_is_answered_without_asking_the_adapter() -> None:
    session = Session()
    result = session.serve(deadline=Deadline.after(-1, session.loop._now()))
    assert result.error is not None
    assert result.error.kind.endswith("DeadlineExceededError")
    assert session.adapter.asked == []


def test_R100_an_answer_that_comes_too_late_is_refused() -> None:
    class Late(Echo):
        def evaluate(self, prompt: Any, *, meter: Meter) -> PromptResponse[Answer]:
            assert meter.seconds_left == 5
            session.clock.advance(6)
            return super().evaluate(prompt, meter=meter)

    session = Session(Late())
    result = session.serve(deadline=Deadline.after(5, session.loop._now()))
    assert result.error is not None
    assert result.error.kind.endswith("DeadlineExceededError")


@pytest.mark.parametrize(
    ("budget", "usage", "within"),
    [
        (Budget(max_tokens=100), Usage(tokens=100), True),
        (Budget(max_tokens=100), Usage(tokens=101), False),
        (Budget(max_cost=0.5), Usage(cost=0.5), True),
        (Budget(max_cost=0.5), Usage(cost=0.51), False),
        (Budget(max_seconds=10), Usage(), True),
        (Budget(max_seconds=0), Usage(), False),
        (Budget(), Usage(10**9, 1e9), True),
    ],
    ids=repr,
)
def test_R100_a_budget_is_enforced(budget: Budget, usage: Usage, within: bool) -> None:
    for result in (
        Session(Echo(usage)).serve(budget=budget),
        Session(Echo(usage), budget=budget).serve(),  # the loop's own, for requests without one
    ):
        assert (result.error is None) is within
        if result.error is not None:
            assert result.error.kind.endswith("BudgetExceededError")


@pytest.mark.parametrize(
    "make",
    [
        lambda: Budget(max_tokens=-1),
        lambda: Budget(max_cost=float("nan")),
        lambda: Budget(max_seconds=float("inf")),
        lambda: Usage(tokens=-5),
        lambda: Deadline(datetime(2030, 1, 1)),  # noqa: DTZ001 - it has no time zone
        lambda: Meter().spend(tokens=-1),
    ],
)
def test_R100_amounts_and_times_that_make_no_sense_are_refused(make: Callable[[], Any]) -> None:
    with pytest.raises(InvalidParameterError):
        make()


def test_R100_what_is_reported_on_the_way_stops_the_work_there() -> None:
    class Counting(Echo):
        def evaluate(self, prompt: Any, *, meter: Meter) -> PromptResponse[Answer]:
            for _ in range(10):
                self.asked.append("turn")
                meter.spend(tokens=40)
            return PromptResponse(Answer("done", 4))

    session = Session(Counting())
    result = session.serve(budget=Budget(max_tokens=100))
    assert result.error is not None
    assert "tokens used: 120, allowed: 100" in result.error.message
    assert len(session.adapter.asked) == 3


def test_R100_a_coroutine_adapter_is_cut_off_when_its_time_is_over(running: Running) -> None:
    requests = InMemoryMailbox("requests", MainLoopRequest[Question])
    responses = InMemoryMailbox("responses", MainLoopResult[Answer])
    adapter = SlowEcho()
    running(MainLoop(adapter, requests, responses, concurrency=3))  # type: ignore[arg-type]
    requests.send(MainLoopRequest(Question("slow"), budget=Budget(max_seconds=0.1)))
    requests.send(MainLoopRequest(Question("slow"), deadline=Deadline.after(0.1)))
    requests.send(MainLoopRequest(Question("quick")))
    results = [eventually(lambda: responses.receive(wait_time_seconds=1))[0] for _ in range(3)]
    kinds = sorted(m.body.error.kind.rpartition(".")[2] if m.body.error else "" for m in results)
    assert kinds == ["", "BudgetExceededError", "DeadlineExceededError"]
    eventually(lambda: requests.approximate_count() == 0)


def test_R100_a_lost_lease_sends_no_answer() -> None:
    class Losing(Echo):
        def evaluate(self, prompt: Any, *, meter: Meter) -> PromptResponse[Answer]:
            (job,) = session.loop._worker._keeper.held()  # type: ignore[union-attr]
            session.requests.expire(job.message)
            session.clock.advance(21)
            eventually(lambda: job.lost)
            with pytest.raises(LeaseLostError, match="is lost"):
                meter.check()
            raise RuntimeError("whatever came of it")

    session = Session(Losing())
    session.requests.send(MainLoopRequest(Question("hello")))
    session.loop.run(max_iterations=1)
    assert session.responses.approximate_count() == 0
    assert session.requests.stats().ready == 1


def test_R100_the_lease_is_kept_while_the_adapter_works() -> None:
    class Slow(Echo):
        def evaluate(self, prompt: Any, *, meter: Meter) -> PromptResponse[Answer]:
            for _ in range(40):  # 10 x the lease
                eventually(lambda: session.loop._worker._keeper._wake_at > session.clock.now())  # type: ignore[union-attr]
                session.clock.advance(15)
            return super().evaluate(prompt, meter=meter)

    session = Session(Slow())
    assert session.serve().error is None


def test_R103_a_shutdown_before_the_run_is_honoured() -> None:
    session = Session()
    session.requests.send(MainLoopRequest(Question("hello")))
    session.loop.shutdown()
    session.loop.run()
    assert session.requests.stats().ready == 1


def test_R103_a_shutdown_wakes_a_parked_loop_at_once(running: Running) -> None:
    requests = InMemoryMailbox("requests", MainLoopRequest[Question])
    responses = InMemoryMailbox("responses", MainLoopResult[Answer])
    loop: MainLoop[Question, Answer] = MainLoop(Echo(), requests, responses, wait_time_seconds=600)
    thread = running(loop)
    eventually(lambda: requests._session.waiters)
    began = time.monotonic()
    loop.shutdown()
    thread.join(20)
    assert not thread.is_alive()
    assert time.monotonic() - began < 5


def test_R100_a_loop_may_be_run_again() -> None:
    session = Session()
    assert [session.serve(text).unwrap().output.text for text in "abc"] == ["a", "b", "c"]


def test_R102_a_loop_tells_what_it_answered() -> None:
    dispatcher, told = Dispatcher(), []
    dispatcher.subscribe(RequestAnswered, told.append)
    session = Session(dispatcher=dispatcher)
    ids = [session.serve(text).request_id for text in ("hello", "fail")]
    assert [event.request_id for event in told] == ids
    assert [event.error is None for event in told] == [True, False]


OUTPUTS: list[tuple[Any, Any]] = [
    (Answer, Answer("a", 1)),
    (Modelled, Modelled(text="a")),
    (Structured, Structured("a")),
    (dict[str, int], {"a": 1}),
    (str, "a"),
    (list[Answer], [Answer("a", 1)]),
]


@pytest.mark.parametrize(("kind", "output"), OUTPUTS, ids=lambda value: str(value)[:30])
def test_R101_requests_and_results_travel_through_every_backend(
    place: Place, kind: Any, output: Any
) -> None:
    requests = place.open("requests", MainLoopRequest[kind])
    results = place.open("results", MainLoopResult[kind])
    request = MainLoopRequest(output, budget=Budget(9, 0.5, 7), deadline=Deadline.after(60))
    requests.send(request)
    assert requests.receive()[0].body == request
    for result in (
        MainLoopResult(request.request_id, PromptResponse(output, Usage(3, 0.25), "m")),
        MainLoopResult(request.request_id, error=ErrorReport("ValueError", "no", True)),
    ):
        results.send(result)
        (message,) = results.receive()
        assert message.body == result
        message.acknowledge()


@pytest.mark.parametrize(("kind", "output"), OUTPUTS[:4], ids=lambda value: str(value)[:30])
def test_R21_a_request_client_asks_a_main_loop(
    place: Place, running: Running, kind: Any, output: Any
) -> None:
    class Fixed:
        def evaluate(self, prompt: Any, *, meter: Meter) -> PromptResponse[Any]:
            return PromptResponse(output)

    requests: Mailbox[Any] = place.open("requests", MainLoopRequest[Question])
    replies: Mailbox[Any] = place.open("replies", MainLoopResult[kind])
    responses: Mailbox[Any] = place.open("responses", MainLoopResult[kind])
    running(MainLoop(Fixed(), requests, responses))
    client = RequestClient(requests, replies)
    request = MainLoopRequest(Question("what?"))
    result = client.ask(request, timeout=20)
    assert result.request_id == request.request_id
    assert result.unwrap().output == output
    assert responses.approximate_count() == 0


POISON = """
import os, sys
from pillarbox import DeadLetterPolicy, open_mailbox
from pillarbox.worker import MainLoop, MainLoopRequest, MainLoopResult, PromptResponse

class Dies:
    def evaluate(self, prompt, *, meter):
        if prompt == "poison":
            os._exit(9)
        return PromptResponse(prompt)

if sys.argv[2:] == ["unconfirmed"]:
    from pillarbox import DurableMailbox
    DurableMailbox.extend_visibility_many = lambda self, messages, timeout: []

path = sys.argv[1]
options = {"dead_letters": DeadLetterPolicy(3)}
requests = open_mailbox(f"file:{path}/requests", MainLoopRequest[str], **options)
responses = open_mailbox(f"file:{path}/responses", MainLoopResult[str])
loop = MainLoop(Dies(), requests, responses, visibility_timeout=0.2, wait_time_seconds=1)
loop.run(max_iterations=3)
for box in (requests, responses):
    box.close()
"""


def run_poison(path: Path, *words: str, rounds: int = 4) -> list[int]:
    """Start the loop until it ends by itself; the exit codes."""
    options = {"dead_letters": DeadLetterPolicy(3)}
    with open_mailbox(f"file:{path}/requests", MainLoopRequest[str], **options) as requests:
        requests.send_many([MainLoopRequest("poison"), MainLoopRequest("fine")])
    codes: list[int] = []
    while codes[-1:] != [0] and len(codes) < rounds:
        program = [sys.executable, "-c", POISON, str(path), *words]
        codes.append(subprocess.run(program, check=False, timeout=60).returncode)
    return codes


def test_R100_a_request_that_kills_its_process_reaches_the_dead_letters(tmp_path: Path) -> None:
    assert run_poison(tmp_path) == [9, 9, 9, 0]
    url, policy = f"file:{tmp_path}/requests", DeadLetterPolicy(3)
    with (
        open_mailbox(url, MainLoopRequest[str], dead_letters=policy) as requests,
        open_mailbox(f"file:{tmp_path}/responses", MainLoopResult[str]) as responses,
    ):
        assert requests.dead_letters is not None
        (letter,) = requests.dead_letters.peek()
        assert letter.body.request == "poison"  # type: ignore[union-attr]
        assert requests.approximate_count() == 0
        (answer,) = responses.receive()
        assert answer.body.unwrap().output == "fine"


def test_R100_if_a_claim_is_not_on_disk_before_the_work_it_kills_for_ever(tmp_path: Path) -> None:
    """Control."""
    assert run_poison(tmp_path, "unconfirmed") == [9, 9, 9, 9]
