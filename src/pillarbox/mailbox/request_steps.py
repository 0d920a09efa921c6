"""What both request clients do between two waits, and which answer belongs to which request.

An answer may come before `send` has told the id of its request; it waits here then. What nobody
asked for is a stray: our own is dropped, another client's is given back.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from contextlib import AbstractContextManager
from itertools import count
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from pillarbox.core import limits
from pillarbox.core.errors import (
    MailboxConnectionError,
    MailboxError,
    RequestRejectedError,
    UnknownOutcomeError,
)
from pillarbox.logger import logger
from pillarbox.mailbox.answers import IDLE_SECONDS_MAX, Rejection, answer_codec
from pillarbox.mailbox.protocol import AskOptions
from pillarbox.mailbox.runner import Verb

_KEEP_NS = IDLE_SECONDS_MAX * limits.SECOND_NS // 24
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


class RequestSteps:
    """What both clients share: the steps between two waits (see `runner.run_blocking`)."""

    def __init__(
        self,
        requests: Any,
        replies: Any,
        reply_to: str | None,
        shared: bool,
        lock: AbstractContextManager[Any],
    ) -> None:
        self._requests = requests
        self._replies = replies
        self._reply_to = replies.name if reply_to is None else limits.text("reply_to", reply_to)
        verbs = getattr(replies, "_verbs", None)
        if verbs is not None:  # else it is a mailbox from elsewhere
            verbs.use(answer_codec(verbs.codec))
        self._matching: Matching[Any] = Matching(shared=shared)
        self._lock = lock
        self._opened: tuple[Any, ...] = ()  # what `open` opened
        self._keep_at: int | None = None  # None: the mailbox for answers was not used yet

    def _sent(self, ask: Any) -> None:
        """The request of this one was sent; the lock is held."""

    def _send(self, ask: Any, body: Any, options: AskOptions) -> Verb[str]:
        with self._lock:
            ticket = self._matching.begin()
        request_id: str | None = None
        try:
            request_id = yield self._requests.send(body, reply_to=self._reply_to, **options)
            return request_id
        finally:
            with self._lock:
                strays = self._matching.end(ticket, request_id, ask)
                if request_id is not None:
                    self._sent(ask)
            again = yield from self._put_away(strays)
            if again:
                yield self._replies.release_many(again)

    def _acknowledge(self, answered: list[Any]) -> Verb[None]:
        """All of these in one step. Their askers are here: nothing can be lost in between."""
        messages = [ask.answer for ask in answered]
        try:
            if messages:
                yield self._replies.acknowledge_many(messages)
        except (MailboxConnectionError, UnknownOutcomeError) as error:
            # They come again, and are dropped then.
            logger.warning("answer not acknowledged", mailbox=self._replies.name, error=str(error))

    def _put_away(self, strays: list[Any]) -> Verb[list[Any]]:
        """Drop what is ours and give back what may be another's; those that came before remain."""
        if not strays:
            return []
        with self._lock:
            found = self._matching.sort(strays, self._replies.name)
        if found.ours:
            yield self._replies.acknowledge_many(found.ours)
        if found.theirs:
            yield self._replies.release_many(found.theirs)
        return found.again

    def _keep(self, now: int) -> Verb[None]:
        """Say that we live, before what we have for answers is taken for left behind."""
        if self._opened and (self._keep_at is None or now >= self._keep_at):
            yield self._replies._run(self._replies._verbs.keep_for_answers())
            self._keep_at = now + _KEEP_NS

    def _end(self) -> Verb[None]:
        replies = self._replies
        if self._opened and self._keep_at is not None and not replies.closed:
            try:
                yield replies._run(replies._verbs.delete_queue())
            except MailboxError as error:
                logger.warning(
                    "the mailbox for answers is left behind", mailbox=replies.name, error=str(error)
                )
        for mailbox in self._opened:
            yield mailbox.close()

    def _body_of(self, answer: Any) -> Any:
        """The body of an answer; raises if the request was dead-lettered."""
        if isinstance(answer.body, Rejection):
            name = self._requests.name
            raise RequestRejectedError(answer.in_reply_to or "", name, answer.body.reason)
        return answer.body

    def _no_answer(self, request_id: str, seconds: float) -> TimeoutError:
        return TimeoutError(
            f"request {request_id} to mailbox {self._requests.name!r} had no answer in "
            f"{self._reply_to!r} after {seconds:g} seconds: check that a worker receives the "
            "requests and calls reply(), or allow more time; the request may still be done"
        )
