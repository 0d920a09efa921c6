"""For tests of programs that use Pillarbox: test doubles and a fake clock."""

from pillarbox.testing.clock import FakeClock
from pillarbox.testing.doubles import CollectingMailbox, FakeMailbox, NullMailbox, Sent

__all__ = ["CollectingMailbox", "FakeClock", "FakeMailbox", "NullMailbox", "Sent"]
