"""The contract, through boto3 and aiobotocore: on our broker, and on moto as a second opinion."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import ClassVar

import pytest

from pillarbox.testing.contract import Backend, Capability, MailboxContract
from pillarbox.testing.contract.as_sync import EventLoopThread
from pillarbox.testing.contract.cases.deduplication import Deduplication
from pillarbox.testing.contract.cases.groups import Groups
from tests.contract.backends.sqs import (
    BROKER_CANNOT,
    SQS_CANNOT,
    AsyncSQSBackend,
    Server,
    SQSBackend,
    hold_client,
)
from tests.sqs.broker_server import broker_on_a_fake_clock
from tests.sqs.moto_server import running_moto

MOTO_CAN = {Capability.FULL_BATCH, Capability.EXACT_COUNT, Capability.TIME_TRAVEL}

MOTO_CANNOT: Mapping[Capability, str] = {
    **{what: why for what, why in SQS_CANNOT.items() if what not in MOTO_CAN},
    Capability.BIG_BATCH: "moto's time grows with the square of its messages",
    Capability.REDRIVE: "moto has no move tasks and does not tell where a message died",
    Capability.REDRIVE_BY_CHOICE: "moto does not tell where a message died",
}

# The broker of these tests has a clock that they move, and no time between two purges.
BROKER_CAN = {Capability.PURGE_AT_WILL, Capability.TIME_TRAVEL}

BROKER_ON_A_FAKE_CLOCK = {
    what: why for what, why in BROKER_CANNOT.items() if what not in BROKER_CAN
}

FIFO_CAN = {Capability.GROUPS, Capability.DEDUPLICATION}

FIFO_CANNOT = {
    **{what: why for what, why in BROKER_ON_A_FAKE_CLOCK.items() if what not in FIFO_CAN},
    Capability.MESSAGE_DELAY: "a FIFO queue of SQS delays all of its messages or none",
}


@contextmanager
def event_loop(server: Server) -> Iterator[EventLoopThread]:
    running = EventLoopThread()
    held = hold_client(server, running)
    yield running
    held.close()
    running.close()


@pytest.fixture(scope="module")
def moto() -> Iterator[Server]:
    with running_moto() as server:
        yield server


@pytest.fixture(scope="module")
def broker() -> Iterator[Server]:
    with broker_on_a_fake_clock() as server:
        yield server


class OnMoto:
    cannot: ClassVar[Mapping[Capability, str]] = MOTO_CANNOT
    server: ClassVar[Server]

    @pytest.fixture(autouse=True, scope="class")
    @classmethod
    def _server(cls, moto: Server) -> None:
        cls.server = moto


class OnBroker:
    cannot: ClassVar[Mapping[Capability, str]] = BROKER_ON_A_FAKE_CLOCK
    server: ClassVar[Server]

    @pytest.fixture(autouse=True, scope="class")
    @classmethod
    def _server(cls, broker: Server) -> None:
        cls.server = broker


class ByBoto3:
    suffix: ClassVar[str] = ""
    server: ClassVar[Server]
    cannot: ClassVar[Mapping[Capability, str]]

    def make_backend(self) -> Backend:
        backend = SQSBackend(self.server)
        backend.cannot, backend.suffix = self.cannot, self.suffix
        return backend


class ByAiobotocore:
    server: ClassVar[Server]
    cannot: ClassVar[Mapping[Capability, str]]
    loop: ClassVar[EventLoopThread]

    @pytest.fixture(autouse=True, scope="class")
    @classmethod
    def _loop(cls, _server: None) -> Iterator[None]:
        with event_loop(cls.server) as cls.loop:
            yield

    def make_backend(self) -> Backend:
        backend = AsyncSQSBackend(self.server, self.loop)
        backend.cannot = self.cannot
        return backend


class TestBroker(OnBroker, ByBoto3, MailboxContract):
    """`SQSMailbox` on our broker."""


class TestAsyncBroker(OnBroker, ByAiobotocore, MailboxContract):
    """`AsyncSQSMailbox` on our broker."""


class TestFifoBroker(OnBroker, ByBoto3, Groups, Deduplication):
    """What only FIFO queues can do, on those of our broker."""

    cannot: ClassVar[Mapping[Capability, str]] = FIFO_CANNOT
    suffix = ".fifo"


class TestMoto(OnMoto, ByBoto3, MailboxContract):
    """`SQSMailbox` on moto."""


@pytest.mark.soak  # the other three say as much
class TestAsyncMoto(OnMoto, ByAiobotocore, MailboxContract):
    """`AsyncSQSMailbox` on moto."""
