"""Which answer belongs to which request: the bookkeeping of request clients, without I/O.

An answer may come before `send` has told the id of its request; it waits here then. What nobody
asked for is a stray: our own is dropped, another client's is given back.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from itertools import count
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from pillarbox.logger import logger

_IDS_REMEMBERED_MAX = 10_000
_PAUSE_NS = 1_000_000  # for an answer that came twice and is another client's; then doubled
_PAUSE_DOUBLINGS_MAX = 10


class Waiting(Protocol):
    """A caller that waits for an answer."""

    answer: Any


A = TypeVar("A", bound=Waiting)


class Strays(NamedTuple):
    """Answers that nobody waits for here."""

    ours: list[Any]  # to be dropped
    theirs: list[Any]  # another client's: to be given back
    again: list[Any]  # another client's that came before: to be given back a little later


class Matching(Generic[A]):
    """The requests of one client. Not safe from several threads at once: its user has a lock."""

    def __init__(self, *, shared: bool) -> None:
        self._shared = shared
        self.asks: dict[str, A] = {}  # by the id of the request
        self._tickets = count()
        self._sending: dict[int, None] = {}  # tickets of sends that have not answered yet
        # Answers that came before `send` told the id of their request, and the first ticket
        # that is too late to be theirs.
        self._early: dict[str, tuple[int, Any]] = {}
        self._own: OrderedDict[str, int] = OrderedDict()  # the requests of this client
        self._foreign: OrderedDict[str, int] = OrderedDict()  # how often another's answer came

    def begin(self) -> int:
        """A request is about to be sent; a ticket for `end`."""
        ticket = next(self._tickets)
        self._sending[ticket] = None
        return ticket

    def end(self, ticket: int, request_id: str | None, ask: A) -> list[Any]:
        """The request was sent, or not if it has no id; answers that can be nobody's any more."""
        del self._sending[ticket]
        if request_id is not None:
            self.asks[request_id] = ask
            _count(self._own, request_id)
            if request_id in self._early:
                _, ask.answer = self._early.pop(request_id)
        oldest = next(iter(self._sending), None)
        strays = []
        while self._early:
            early_id, (late, message) = next(iter(self._early.items()))
            if oldest is not None and oldest < late:
                break
            del self._early[early_id]
            strays.append(message)
        return strays

    def take(self, messages: Sequence[Any]) -> tuple[list[A], list[Any]]:
        """Each answer to its asker: those who have theirs now, and the strays."""
        answered: list[A] = []
        strays: list[Any] = []
        for message in messages:
            request_id = message.in_reply_to or ""
            ask = self.asks.get(request_id)
            if ask is not None and ask.answer is None:
                ask.answer = message
                answered.append(ask)
            elif ask is None and self._sending and request_id not in self._early:
                self._early[request_id] = next(self._tickets), message
            else:
                strays.append(message)
        return answered, strays

    def sort(self, strays: list[Any], mailbox: str) -> Strays:
        """What to do with answers that nobody waits for."""
        sorted_ = Strays([], [], [])
        for message in strays:
            if self._shared and message.in_reply_to not in self._own:
                known = _count(self._foreign, message.id)
                (sorted_.again if known > 1 else sorted_.theirs).append(message)
                continue
            sorted_.ours.append(message)
            logger.warning(
                "answer dropped: nobody waits for it",
                mailbox=mailbox,
                message_id=message.id,
                in_reply_to=message.in_reply_to,
            )
        return sorted_

    def pause_ns(self, message: Any) -> int:
        """How long to keep another's answer, so that its client can't be passed over for ever."""
        return _PAUSE_NS << min(self._foreign.get(message.id, 1), _PAUSE_DOUBLINGS_MAX)


def _count(ids: OrderedDict[str, int], message_id: str) -> int:
    """Count this id, and forget the one that was not seen for longest; how often it came."""
    ids[message_id] = ids.pop(message_id, 0) + 1
    if len(ids) > _IDS_REMEMBERED_MAX:
        ids.popitem(last=False)
    return ids[message_id]
