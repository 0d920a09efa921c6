"""For the tests of programs that use Pillarbox: doubles, a fake clock, and the contract."""

from pillarbox.testing.clock import FakeClock
from pillarbox.testing.doubles import CollectingMailbox, FakeMailbox, NullMailbox, Sent

__all__ = ["CollectingMailbox", "FakeClock", "FakeMailbox", "NullMailbox", "Sent"]
