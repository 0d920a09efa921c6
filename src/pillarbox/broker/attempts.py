"""ReceiveRequestAttemptId: a FIFO client that lost a response can ask for it again."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from pillarbox.core.limits import SECOND_NS
from pillarbox.core.queue import Lease

if TYPE_CHECKING:
    from pillarbox.broker.local_queue import LocalQueue

_KEPT_NS: Final = 300 * SECOND_NS
_KEPT_MAX: Final = 10_000


class Attempts:
    """The messages delivered for each attempt id of the last five minutes."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, tuple[int, Sequence[Lease]]] = OrderedDict()

    def keep(self, attempt: str, leases: Sequence[Lease]) -> None:
        self._known[attempt] = (leases[0].leased_at + _KEPT_NS, leases)
        self._known.move_to_end(attempt)
        while len(self._known) > _KEPT_MAX:
            self._known.popitem(last=False)

    def again(self, attempt: str, queue: LocalQueue, timeout: int) -> Sequence[Lease]:
        """Extend and return the same leases; none if any message was touched since."""
        until, leases = self._known.get(attempt, (0, ()))
        now = queue.session.store.clock.now()
        living = now < until and all(lease.deadline > now for lease in leases)
        if living and all(queue.session.extend(leases, timeout)):
            return leases
        self._known.pop(attempt, None)
        return ()
