"""R21: a client helper that waits for its answer."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pillarbox import (
    InMemoryMailbox,
    InvalidParameterError,
    MailboxClosedError,
    Message,
    RequestClient,
)
from pillarbox.mailbox.store import Store
from pillarbox.testing import FakeMailbox
from tests.unit.support import WatchedClock, notices, start

DROPPED = "reply dropped: no caller waits for it"


class Counted(InMemoryMailbox[Any]):
    """Counts how often it is asked for messages."""

    receives = 0

    def receive(self, **options: Any) -> Any:
        self.receives += 1
        return super().receive(**options)


class Office:
    """Two mailboxes on a clock that only the test moves, and those who answer by hand."""

    def __init__(self, **options: Any) -> None:
        self.clock = WatchedClock()
        self.store = Store(self.clock)
        self.requests = InMemoryMailbox("requests", str, store=self.store)
        self.replies = Counted("replies", str, store=self.store)
        self.client = self.make_client(**options)

    def make_client(self, **options: Any) -> RequestClient[str, str]:
        return RequestClient(self.requests, self.replies, clock=self.clock, **options)

    def until_received_for_all(self) -> None:
        """Return once an asker is parked on the answers."""
        self.clock.wait_until(lambda: len(self.replies._session.waiters) > 0)

    def take(self, count: int) -> list[Message[str]]:
        """Requests that have come or will come."""
        taken: list[Message[str]] = []
        while len(taken) < count:
            taken += self.requests.receive(max_messages=count, wait_time_seconds=20)
        return taken


@pytest.fixture
def office() -> Office:
    return Office()


def answering(requests: InMemoryMailbox[Any], how: Callable[[Any], Any]) -> None:
    """A worker, until the mailbox is closed."""
    while not requests.closed:
        for request in requests.receive(wait_time_seconds=20):
            request.reply(how(request.body))
            request.acknowledge()


@pytest.fixture
def doubling() -> Iterator[tuple[InMemoryMailbox[int], Store]]:
    """Four workers that double numbers, on real time."""
    store = Store()
    requests = InMemoryMailbox("requests", int, store=store)
    workers = [start(lambda: answering(requests, lambda n: 2 * n)) for _ in range(4)]
    yield requests, store
    requests.close()
    for worker in workers:
        try:
            worker.result()
        except MailboxClosedError:
            continue


def test_R21_ask_returns_the_body_of_the_answer_and_leaves_nothing_behind(
    doubling: tuple[InMemoryMailbox[int], Store],
) -> None:
    requests, store = doubling
    replies = InMemoryMailbox("replies", int, store=store)
    assert RequestClient(requests, replies).ask(21, timeout=20) == 42
    assert replies.approximate_count() == 0


def ask_many(client: RequestClient[int, int], first: int) -> list[tuple[int, int]]:
    """50 asks, one after the other: what was asked and what was answered."""
    return [(n, client.ask(n, timeout=60)) for n in range(first, first + 50)]


def test_R21_20_threads_of_50_asks_each_get_their_own_answers(
    doubling: tuple[InMemoryMailbox[int], Store],
) -> None:
    requests, store = doubling
    replies = InMemoryMailbox("replies", int, store=store)
    client = RequestClient(requests, replies)
    calls = [start(lambda n=n: ask_many(client, 50 * n)) for n in range(20)]  # type: ignore[misc]
    pairs = [pair for call in calls for pair in call.result()]
    assert pairs == [(n, 2 * n) for n in range(1000)]
    assert replies.approximate_count() == 0


def test_R21_two_clients_on_one_reply_mailbox_get_their_own_answers(
    doubling: tuple[InMemoryMailbox[int], Store],
) -> None:
    requests, store = doubling
    boxes = [InMemoryMailbox("replies", int, store=store) for _ in range(2)]
    clients = [RequestClient(requests, box, shared=True) for box in boxes]
    calls = [
        start(lambda n=n: ask_many(clients[n % 2], 50 * n))  # type: ignore[misc]
        for n in range(20)
    ]
    pairs = [pair for call in calls for pair in call.result()]
    assert pairs == [(n, 2 * n) for n in range(1000)]
    assert boxes[0].approximate_count() == 0


def test_R21_no_answer_in_time_is_a_timeout_that_says_what_to_look_at(office: Office) -> None:
    call = start(lambda: office.client.ask("hello?", timeout=2.5))
    office.clock.wait_until_waiting(1)
    office.clock.advance(2.5)
    with pytest.raises(TimeoutError, match=r"'requests'.*'replies'.*2\.5 seconds") as raised:
        call.result()
    (request,) = office.requests.receive()
    assert request.id in str(raised.value)


def test_R21_nobody_polls_and_no_thread_is_started(office: Office) -> None:
    before = threading.active_count()
    call = start(lambda: office.client.ask("hello?", timeout=10))
    office.clock.wait_until_waiting(1)
    office.clock.advance(9)
    assert threading.active_count() == before + 1
    assert office.replies.receives == 1
    (request,) = office.take(1)
    request.reply("hello")
    assert call.result() == "hello"
    assert office.replies.receives == 1


def test_R21_a_long_wait_is_made_of_waits_that_every_backend_allows(office: Office) -> None:
    call = start(lambda: office.client.ask("hello?", timeout=50))
    for advance in (20, 20, 10):
        office.clock.wait_until_waiting(1)
        office.clock.advance(advance)
    with pytest.raises(TimeoutError):
        call.result()
    assert office.replies.receives == 3


def test_R21_an_ask_without_time_takes_what_is_there(office: Office) -> None:
    with pytest.raises(TimeoutError):
        office.client.ask("hello?", timeout=0)
    assert office.replies.receives == 1


def test_R21_one_receives_for_all_and_each_has_its_own_time(office: Office) -> None:
    first = start(lambda: office.client.ask("first", timeout=1))
    office.clock.wait_until_waiting(1)
    others = {n: start(lambda n=n: office.client.ask(str(n), timeout=n)) for n in (3, 5)}  # type: ignore[misc]
    office.clock.wait_until_waiting(3)
    assert len(office.replies._session.waiters) == 1
    office.clock.advance(1)
    with pytest.raises(TimeoutError):
        first.result()
    office.clock.wait_until_waiting(2)  # another receives for all now
    for request in office.take(3):
        if request.body == "5":
            request.reply("five")
    assert others[5].result() == "five"
    office.clock.advance(2)
    with pytest.raises(TimeoutError):
        others[3].result()
    assert office.client._matching.asks == {}
    assert office.client._leader == 0


def test_R21_answers_in_any_order_find_who_asked(office: Office) -> None:
    calls = {n: start(lambda n=n: office.client.ask(str(n), timeout=9)) for n in range(10)}  # type: ignore[misc]
    for request in reversed(office.take(10)):
        request.reply(f"answer to {request.body}")
    assert {n: call.result() for n, call in calls.items()} == {
        n: f"answer to {n}" for n in range(10)
    }


def test_R21_an_answer_that_comes_too_late_is_dropped_and_logged(office: Office) -> None:
    with pytest.raises(TimeoutError):
        office.client.ask("late", timeout=0)
    (late,) = office.take(1)
    late.reply("too late")
    with notices() as logs, pytest.raises(TimeoutError):
        office.client.ask("next", timeout=0)
    assert len(logs) == 1
    assert DROPPED in logs[0]
    assert late.id in logs[0]
    assert office.replies.approximate_count() == 0


@pytest.mark.parametrize("shared", [False, True])
def test_R21_the_first_of_two_answers_counts_and_the_second_is_dropped(shared: bool) -> None:
    office = Office(shared=shared)
    call = start(lambda: office.client.ask("twice", timeout=5))
    (request,) = office.take(1)
    request.reply("first")
    request.reply("second")
    assert call.result() == "first"
    with notices() as logs, pytest.raises(TimeoutError):
        office.client.ask("next", timeout=0)
    assert all(DROPPED in log for log in logs)
    assert len(logs) <= 1  # both may have come in one batch
    assert office.replies.approximate_count() == 0


def test_R21_on_a_shared_mailbox_an_own_late_answer_is_dropped() -> None:
    office = Office(shared=True)
    test_R21_an_answer_that_comes_too_late_is_dropped_and_logged(office)


def test_R21_another_client_s_answer_is_given_back_uncounted() -> None:
    office = Office(shared=True)
    request_id = office.requests.send("of another client", reply_to="replies")
    (request,) = office.take(1)
    request.reply("for the other")
    with pytest.raises(TimeoutError):
        office.client.ask("mine", timeout=0)
    (answer,) = office.replies.receive()
    assert (answer.in_reply_to, answer.delivery_count) == (request_id, 1)


def test_R21_an_answer_that_its_client_does_not_fetch_is_not_juggled_with() -> None:
    office = Office(shared=True)
    office.requests.send("of a client that is gone", reply_to="replies")
    office.take(1)[0].reply("for nobody")
    call = start(lambda: office.client.ask("mine", timeout=60))
    (request,) = office.take(1)
    office.until_received_for_all()
    assert office.replies.receives == 3  # taken and given back, taken again, and then waited
    assert office.replies.stats().in_flight == 1
    request.reply("yours")
    assert call.result() == "yours"
    (answer,) = office.replies.receive()
    assert (answer.body, answer.delivery_count) == ("for nobody", 1)


def test_R21_what_was_kept_for_a_moment_goes_to_its_client_then() -> None:
    office = Office(shared=True)
    other_id = office.requests.send("of another", reply_to="replies")
    office.take(1)[0].reply("for the other")
    call = start(lambda: office.client.ask("mine", timeout=60))
    (request,) = office.take(1)
    office.until_received_for_all()
    other = start(lambda: office.replies.receive(wait_time_seconds=20))
    office.clock.wait_until(lambda: len(office.replies._session.waiters) == 2)
    office.clock.advance(0.004)
    (answer,) = other.result()
    assert (answer.in_reply_to, answer.delivery_count) == (other_id, 1)
    request.reply("yours")
    assert call.result() == "yours"


class Prompt(InMemoryMailbox[str]):
    """Each request is answered, and its answer received, before `send` has returned."""

    handed_out = threading.Event()

    def send(self, body: str, **options: Any) -> str:
        request_id = super().send(body, **options)
        if body == "prompt":
            (request,) = self.receive()
            self.handed_out.clear()
            request.reply("at once")
            assert self.handed_out.wait(20)
        return request_id


def test_R21_an_answer_may_overtake_the_return_of_send() -> None:
    office = Office()
    prompt = Prompt("prompt", str, store=office.store)
    client = RequestClient(prompt, office.replies, clock=office.clock)
    real = client._distribute

    def hand_out(messages: Any) -> Any:
        left = real(messages)
        prompt.handed_out.set()
        return left

    client._distribute = hand_out  # type: ignore[method-assign]
    leader = start(lambda: client.ask("slow", timeout=5))
    (slow,) = prompt.receive(wait_time_seconds=20)
    office.until_received_for_all()
    with notices() as logs:
        assert client.ask("prompt", timeout=5) == "at once"
    assert logs == []
    slow.reply("at last")
    assert leader.result() == "at last"
    assert client._matching._early == {}
    assert office.replies.approximate_count() == 0


@pytest.mark.parametrize("shared", [False, True])
def test_R21_an_answer_that_no_send_was_for_does_not_stay(shared: bool) -> None:
    office = Office(shared=shared)
    other_id = office.requests.send("of another", reply_to="replies")
    (other,) = office.take(1)
    leader = start(lambda: office.client.ask("slow", timeout=5))
    office.until_received_for_all()
    real = office.requests._session.send

    def send(*arguments: Any, **options: Any) -> Any:
        office.requests._session.send = real  # type: ignore[method-assign]
        other.reply("for another")  # received while this send is on its way
        while not office.client._matching._early:
            assert threading.active_count() > 1
        return real(*arguments, **options)

    office.requests._session.send = send  # type: ignore[method-assign]
    with pytest.raises(TimeoutError):
        office.client.ask("mine", timeout=0)
    assert office.client._matching._early == {}
    office.clock.advance(5)
    with pytest.raises(TimeoutError):
        leader.result()
    answers = office.replies.receive()
    expected = [(other_id, 1)] if shared else []
    assert [(m.in_reply_to, m.delivery_count) for m in answers] == expected


def test_R21_a_reply_mailbox_that_is_closed_lets_nobody_hang(office: Office) -> None:
    calls = [start(lambda: office.client.ask("hello?", timeout=60)) for _ in range(3)]
    office.clock.wait_until_waiting(3)
    office.replies.close()
    for call in calls:
        with pytest.raises(MailboxClosedError, match="replies"):
            call.result()
    assert office.client._leader == 0


def test_R21_who_is_interrupted_lets_another_receive(office: Office) -> None:
    real = office.replies._session.receive

    def interrupted(*arguments: Any) -> Any:
        office.replies._session.receive = real  # type: ignore[method-assign]
        office.clock.wait_until_waiting(1)  # the other one waits
        raise KeyboardInterrupt

    office.replies._session.receive = interrupted  # type: ignore[method-assign]
    first = start(lambda: office.client.ask("first", timeout=5))

    def ask_second() -> str:
        while not office.client._leader:
            assert not first.done
        return office.client.ask("second", timeout=5)

    second = start(ask_second)
    with pytest.raises(KeyboardInterrupt):
        first.result()
    for request in office.take(2):
        request.reply(f"answer to {request.body}")
    assert second.result() == "answer to second"


def test_R21_an_answer_counts_though_it_can_t_be_acknowledged() -> None:
    store = Store()
    requests = InMemoryMailbox("requests", str, store=store)
    replies = FakeMailbox("replies", str, store=store)
    real = replies._session.receive

    def receive_and_break(*arguments: Any) -> Any:
        leases = real(*arguments)
        replies.break_connection()
        return leases

    call = start(lambda: RequestClient(requests, replies).ask("a", timeout=20))
    (request,) = requests.receive(wait_time_seconds=20)
    replies._session.receive = receive_and_break  # type: ignore[method-assign]
    request.reply("b")
    assert call.result() == "b"


def test_R21_reply_to_and_send_options_travel_with_the_request(office: Office) -> None:
    client = office.make_client(reply_to="elsewhere")
    options: dict[str, Any] = {"priority": 3, "attributes": {"colour": "red"}, "group": "g"}
    with pytest.raises(TimeoutError):
        client.ask("a", timeout=0, **options)
    (request,) = office.take(1)
    assert (request.reply_to, request.priority, request.group) == ("elsewhere", 3, "g")
    assert dict(request.attributes) == {"colour": "red"}


def test_R21_a_delayed_request_is_asked_later(office: Office) -> None:
    call = start(lambda: office.client.ask("later", timeout=9, delay_seconds=4))
    office.clock.wait_until_waiting(1)
    assert office.requests.receive() == []
    office.clock.advance(4)
    office.take(1)[0].reply("now")
    assert call.result() == "now"


@pytest.mark.parametrize("timeout", [-1, float("nan"), float("inf"), "1", None, True, 43_201])
def test_R22_a_bad_timeout_is_refused_and_nothing_is_sent(office: Office, timeout: Any) -> None:
    with pytest.raises(InvalidParameterError) as raised:
        office.client.ask("a", timeout=timeout)
    assert raised.value.parameter == "timeout"
    assert office.requests.approximate_count() == 0


def test_R22_a_request_that_can_t_be_sent_leaves_the_client_as_it_was(office: Office) -> None:
    with pytest.raises(InvalidParameterError):
        office.client.ask("a", timeout=1, priority=256)
    assert (office.client._matching.asks, office.client._matching._sending) == ({}, {})
    with pytest.raises(InvalidParameterError, match="reply_to"):
        office.make_client(reply_to="")
