"""The contract, through `BrokerMailbox` on a real broker: in memory, on disk, and with asyncio."""

from pillarbox.testing.contract import Backend, MailboxContract
from tests.contract.backends.broker import (
    AsyncBrokerBackend,
    AsyncDurableBrokerBackend,
    BrokerBackend,
    DurableBrokerBackend,
)


class TestBroker(MailboxContract):
    def make_backend(self) -> Backend:
        return BrokerBackend()


class TestDurableBroker(MailboxContract):
    def make_backend(self) -> Backend:
        return DurableBrokerBackend()


class TestAsyncBroker(MailboxContract):
    def make_backend(self) -> Backend:
        return AsyncBrokerBackend()


class TestAsyncDurableBroker(MailboxContract):
    def make_backend(self) -> Backend:
        return AsyncDurableBrokerBackend()


def test_R35_the_broker_declares_that_it_can_do_everything() -> None:
    assert dict(BrokerBackend.cannot) == {}
