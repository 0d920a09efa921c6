"""R141: the wire tests of a broker pass on every shared store, each call at another of two."""

from __future__ import annotations

from tests.broker.test_as_aws import *  # noqa: F403 - the tests themselves
from tests.broker.test_batches import *  # noqa: F403
from tests.broker.test_dead_letters import *  # noqa: F403
from tests.broker.test_fifo import *  # noqa: F403
from tests.broker.test_messages import *  # noqa: F403
from tests.broker.test_queues import *  # noqa: F403
from tests.broker.test_recorded import (  # noqa: F401
    test_R39_a_chain_of_dead_letter_queues_must_not_end_where_it_began,
    test_R39_a_message_goes_through_a_chain_of_dead_letter_queues,
    test_R39_a_move_goes_back_one_queue_of_a_chain,
)
