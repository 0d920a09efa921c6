"""All tests of the contract in one class."""

from pillarbox.testing.contract.cases.batches import Batches
from pillarbox.testing.contract.cases.bodies import Bodies
from pillarbox.testing.contract.cases.closing import Closing
from pillarbox.testing.contract.cases.counting import Counting
from pillarbox.testing.contract.cases.crowds import Crowds
from pillarbox.testing.contract.cases.dead_letters import DeadLetters
from pillarbox.testing.contract.cases.declaring import Declaring
from pillarbox.testing.contract.cases.deduplication import Deduplication
from pillarbox.testing.contract.cases.fairness import Fairness
from pillarbox.testing.contract.cases.groups import Groups
from pillarbox.testing.contract.cases.handles import Handles
from pillarbox.testing.contract.cases.iterating import Iterating
from pillarbox.testing.contract.cases.leases import Leases
from pillarbox.testing.contract.cases.messages import Messages
from pillarbox.testing.contract.cases.ordering import Ordering
from pillarbox.testing.contract.cases.peeking import Peeking
from pillarbox.testing.contract.cases.receiving import Receiving
from pillarbox.testing.contract.cases.redriving import Redriving
from pillarbox.testing.contract.cases.refusals import Refusals
from pillarbox.testing.contract.cases.releasing import Releasing
from pillarbox.testing.contract.cases.replies import Replies
from pillarbox.testing.contract.cases.sending import Sending
from pillarbox.testing.contract.cases.undecodable import UndecodableBodies
from pillarbox.testing.contract.cases.waiting import Waiting


class MailboxContract(
    Declaring,
    Sending,
    Receiving,
    Iterating,
    Messages,
    Leases,
    Handles,
    Waiting,
    Ordering,
    Counting,
    Batches,
    Releasing,
    DeadLetters,
    Redriving,
    Peeking,
    UndecodableBodies,
    Bodies,
    Groups,
    Fairness,
    Deduplication,
    Crowds,
    Replies,
    Refusals,
    Closing,
):
    """Tests of rows R1-R24, R38-R40 and R151: subclass it and define `make_backend`."""
