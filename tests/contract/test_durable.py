"""The contract, on mailboxes on disk: at each level of durability, and with asyncio."""

from pillarbox.testing.contract import Backend, MailboxContract
from tests.contract.backends.durable import AsyncDurableBackend, DurableBackend


class OsBackend(DurableBackend):
    name = "durable (os)"
    durability = "os"


class MemoryLevelBackend(DurableBackend):
    name = "durable (memory)"
    durability = "memory"


class TestDurable(MailboxContract):
    def make_backend(self) -> Backend:
        return DurableBackend()


class TestDurableOs(MailboxContract):
    def make_backend(self) -> Backend:
        return OsBackend()


class TestDurableMemory(MailboxContract):
    def make_backend(self) -> Backend:
        return MemoryLevelBackend()


class TestAsyncDurable(MailboxContract):
    def make_backend(self) -> Backend:
        return AsyncDurableBackend()


def test_R31_durable_declares_that_it_can_do_everything() -> None:
    assert dict(DurableBackend.cannot) == {}
