"""The contract, on mailboxes in memory."""

from pillarbox.testing.contract import Backend, MailboxContract, MemoryBackend


class TestMemory(MailboxContract):
    def make_backend(self) -> Backend:
        return MemoryBackend()


def test_R30_memory_declares_that_it_can_do_everything() -> None:
    assert dict(MemoryBackend.cannot) == {}
