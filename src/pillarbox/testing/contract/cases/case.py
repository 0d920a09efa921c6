"""The base class of all tests: a new backend for each, and helpers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

import pytest

from pillarbox.mailbox.message import Message
from pillarbox.mailbox.protocol import DeadLetterPolicy, Mailbox
from pillarbox.testing.contract.backend import Backend, Capability, needed_by

R = TypeVar("R")

_BATCH = 10  # the largest batch that every backend accepts
_LOOKS_MAX = 50


class Call(Generic[R]):
    """A call that may block, made in a separate thread."""

    def __init__(self, work: Callable[[], R], patience_seconds: float) -> None:
        self._future: Future[R] = Future()
        self._patience_seconds = patience_seconds
        threading.Thread(target=self._run, args=(work,), daemon=True).start()

    def _run(self, work: Callable[[], R]) -> None:
        try:
            self._future.set_result(work())
        except BaseException as error:  # noqa: BLE001 - raised by `result`
            self._future.set_exception(error)

    @property
    def future(self) -> Future[R]:
        return self._future

    @property
    def done(self) -> bool:
        return self._future.done()

    def result(self) -> R:
        """Return the result of the call; fail if the call hangs."""
        try:
            return self._future.result(self._patience_seconds)
        except TimeoutError:
            if self._future.done():  # a TimeoutError of the call itself
                raise
            pytest.fail(f"still blocked after {self._patience_seconds:g} seconds")


class Case:
    """One backend for each test, and helpers for tests."""

    backend: Backend

    def make_backend(self) -> Backend:
        """Return the backend to test; subclasses of the suite define it."""
        raise NotImplementedError(f"{type(self).__name__} must define make_backend()")

    @pytest.fixture(autouse=True)
    def _supply(self, request: pytest.FixtureRequest) -> Iterator[None]:
        self.backend = self.make_backend()
        try:
            self.require(*needed_by(request.function))
            yield
        finally:
            self.backend.close()

    def require(self, *capabilities: Capability) -> None:
        """Skip the test, with the reason, if the backend lacks a capability."""
        for capability in capabilities:
            if not self.backend.can(capability):
                pytest.skip(self.backend.refusal(capability))

    def can(self, capability: Capability) -> bool:
        return self.backend.can(capability)

    def open(self, body_type: Any = str, **options: Any) -> Mailbox[Any]:
        return self.backend.open(body_type, **options)

    def open_with(self, *bodies: str) -> Mailbox[Any]:
        """Open a mailbox and send these messages to it."""
        box = self.open()
        if len(bodies) == 1:
            box.send(bodies[0])
        else:
            box.send_many(bodies)
        return box

    def open_mortal(
        self,
        max_deliveries: int = 1,
        body_type: Any = str,
        *,
        sent: str | None = None,
        **options: Any,
    ) -> tuple[Mailbox[Any], Mailbox[Any]]:
        """Open a mailbox with a dead-letter policy, and send `sent` to it, if given."""
        box = self.open(body_type, dead_letters=DeadLetterPolicy(max_deliveries), **options)
        assert box.dead_letters is not None
        if sent is not None:
            box.send(sent)
        return box, box.dead_letters

    def pass_time(self, seconds: float) -> None:
        self.backend.pass_time(seconds)

    def take(self, box: Mailbox[Any], count: int, **options: Any) -> list[Message[Any]]:
        """Receive messages that must be there, in as few receives as possible."""
        options.setdefault("wait_time_seconds", self.backend.look_seconds)
        taken: list[Message[Any]] = []
        for _ in range(_LOOKS_MAX):
            if len(taken) == count:
                return taken
            taken += box.receive(max_messages=min(_BATCH, count - len(taken)), **options)
        pytest.fail(f"{len(taken)} messages came, not {count}: {[m.body for m in taken]}")

    def one(self, box: Mailbox[Any], **options: Any) -> Message[Any]:
        """Receive a message that must be there."""
        (message,) = self.take(box, 1, **options)
        return message

    def bodies(self, box: Mailbox[Any], count: int, **options: Any) -> list[Any]:
        """Return the bodies of the next messages."""
        return [message.body for message in self.take(box, count, **options)]

    def nothing(self, box: Mailbox[Any]) -> None:
        """Assert that no message can be received now."""
        assert [message.body for message in box.receive(max_messages=_BATCH)] == []

    def empty(self, box: Mailbox[Any]) -> None:
        """Assert that no message is left, in any state."""
        self.nothing(box)
        self.counts(box, 0)

    def counts(self, box: Mailbox[Any], expected: int) -> None:
        """Assert the number of messages (ready + scheduled + in flight), if it is exact."""
        if self.can(Capability.EXACT_COUNT):
            assert box.approximate_count() == expected

    def same_items(self, found: Sequence[Any], expected: Sequence[Any]) -> None:
        """Assert that the items are equal, in the same order if the backend keeps it."""
        if self.can(Capability.FIFO_ORDER):
            assert list(found) == list(expected)
        else:
            assert sorted(found) == sorted(expected)

    def call(self, work: Callable[[], R]) -> Call[R]:
        """Call a function in a thread."""
        return Call(work, self.backend.patience_seconds)

    def park(
        self, box: Mailbox[Any], *, wait_time_seconds: float = 20, **options: Any
    ) -> Call[Sequence[Message[Any]]]:
        """Start a waiting receive in a thread; `parked` returns once it waits."""
        return self.call(lambda: box.receive(wait_time_seconds=wait_time_seconds, **options))

    def parked(
        self, box: Mailbox[Any], count: int = 1, **options: Any
    ) -> list[Call[Sequence[Message[Any]]]]:
        """Start receives and return them once they wait, in the order of their arrival."""
        calls = []
        for number in range(1, count + 1):
            calls.append(self.park(box, **options))
            self.backend.wait_until_parked(box, number)
        return calls

    def die(self, box: Mailbox[Any], deliveries: int = 1) -> str:
        """Fail the first message until its deliveries are used up; return its id."""
        failed = ""
        for _ in range(deliveries):
            message = self.one(box)
            failed = message.id
            assert message.nack()
        self.let_die(box)
        return failed

    def let_die(self, box: Mailbox[Any]) -> None:
        """Receive once if the backend moves dead letters only at their next delivery."""
        if not self.can(Capability.DEAD_AT_ONCE):
            self.nothing(box)
