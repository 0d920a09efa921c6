"""The steps shared by both request clients, and the matching of replies to requests.

A reply may arrive before `send` has returned the id of its request; it is kept until then. A reply
that no caller waits for is unmatched: drop our own, return another client's to the mailbox.
"""

from __future__ import annotations

import random
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
_PAUSE_NS = 1_000_000  # before returning another client's reply the second time; then doubled
_PAUSE_DOUBLINGS_MAX = 10


class Waiting(Protocol):
    """A caller that waits for a reply; `request_id` is set once its request was sent."""

    request_id: str | None
    answer: Any


A = TypeVar("A", bound=Waiting)


class Unmatched(NamedTuple):
    """Replies that no caller of this client waits for."""

    ours: list[Any]  # our own: drop
    theirs: list[Any]  # another client's: return now
    again: list[Any]  # another client's, seen before: return after a pause


class Matching(Generic[A]):
    """The open requests of one client. Not thread-safe: the client holds a lock."""

    def __init__(self, *, shared: bool) -> None:
        self._shared = shared
        self.asks: dict[str, A] = {}  # by request id
        self._tickets = count()
        self._sending: dict[int, None] = {}  # tickets of sends that have not returned yet
        # Replies that arrived before `send` returned the id of their request, each with the first
        # ticket that is too late to be its request.
        self._early: dict[str, tuple[int, Any]] = {}
        self._own: OrderedDict[str, int] = OrderedDict()  # recent requests of this client
        # How often another client's reply came.
        self._foreign: OrderedDict[str, int] = OrderedDict()

    def begin(self) -> int:
        """Register a request before it is sent; return a ticket for `end`."""
        ticket = next(self._tickets)
        self._sending[ticket] = None
        return ticket

    def end(self, ticket: int, request_id: str | None, ask: A) -> list[Any]:
        """Register the id of a sent request (None if the send failed); return unmatched replies."""
        del self._sending[ticket]
        if request_id is not None:
            ask.request_id = request_id
            self.asks[request_id] = ask
            _count(self._own, request_id)
            if request_id in self._early:
                _, ask.answer = self._early.pop(request_id)
        oldest = next(iter(self._sending), None)
        unmatched = []
        while self._early:
            early_id, (late, message) = next(iter(self._early.items()))
            if oldest is not None and oldest < late:
                break
            del self._early[early_id]
            unmatched.append(message)
        return unmatched

    def leave(self, ask: A) -> None:
        """Remove a caller that stopped waiting, or whose request was not sent."""
        if ask.request_id is not None:
            self.asks.pop(ask.request_id, None)

    def take(self, messages: Sequence[Any]) -> tuple[list[A], list[Any]]:
        """Give each reply to its caller; return the callers served and the unmatched replies."""
        answered: list[A] = []
        unmatched: list[Any] = []
        for message in messages:
            request_id = message.in_reply_to or ""
            ask = self.asks.get(request_id)
            if ask is not None and ask.answer is None:
                ask.answer = message
                answered.append(ask)
            elif ask is None and self._sending and request_id not in self._early:
                self._early[request_id] = next(self._tickets), message
            else:
                unmatched.append(message)
        return answered, unmatched

    def sort(self, unmatched: list[Any], mailbox: str) -> Unmatched:
        """Decide what to do with unmatched replies."""
        sorted_ = Unmatched([], [], [])
        for message in unmatched:
            if self._shared and message.in_reply_to not in self._own:
                known = _count(self._foreign, message.id)
                (sorted_.again if known > 1 else sorted_.theirs).append(message)
                continue
            sorted_.ours.append(message)
            logger.warning(
                "reply dropped: no caller waits for it",
                mailbox=mailbox,
                message_id=message.id,
                in_reply_to=message.in_reply_to,
            )
        return sorted_

    def pause_ns(self, message: Any) -> int:
        """Return how long to hold another client's reply, so that its client gets to receive it.

        Random, or two clients with each other's reply could release both in lockstep forever, and
        each receive the wrong one again.
        """
        longest = _PAUSE_NS << min(self._foreign.get(message.id, 1), _PAUSE_DOUBLINGS_MAX)
        return random.randint(longest // 2, longest)


def _count(ids: OrderedDict[str, int], message_id: str) -> int:
    """Count this id and return its count; evict the least recently seen id."""
    ids[message_id] = ids.pop(message_id, 0) + 1
    if len(ids) > _IDS_REMEMBERED_MAX:
        ids.popitem(last=False)
    return ids[message_id]


class RequestSteps:
    """The part of both clients that is written once (see `runner.run_blocking`)."""

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
        if verbs is not None:  # otherwise it is a third-party mailbox
            verbs.use(answer_codec(verbs.codec))
        self._matching: Matching[Any] = Matching(shared=shared)
        self._lock = lock
        self._opened: tuple[Any, ...] = ()  # mailboxes to close
        self._renew_at: int | None = None  # None: the reply mailbox was not used yet

    def _sent(self, ask: Any) -> None:
        """Handle that the request of this caller was sent. Requires the lock."""

    def _send(self, ask: Any, body: Any, options: AskOptions) -> Verb[None]:
        with self._lock:
            ticket = self._matching.begin()
        request_id: str | None = None
        try:
            request_id = yield self._requests.send(body, reply_to=self._reply_to, **options)
        finally:
            with self._lock:
                unmatched = self._matching.end(ticket, request_id, ask)
                if request_id is not None:
                    self._sent(ask)
            again = yield from self._settle_unmatched(unmatched)
            yield from self._release(again)

    def _acknowledge(self, answered: list[Any]) -> Verb[None]:
        """Acknowledge these replies in one step; their callers already have them."""
        yield from self._tell("acknowledge_many", [ask.answer for ask in answered])

    def _release(self, messages: list[Any]) -> Verb[None]:
        """Return other clients' replies to the mailbox."""
        yield from self._tell("release_many", messages)

    def _tell(self, verb: str, messages: list[Any]) -> Verb[None]:
        """Acknowledge or release replies. No caller fails if the server can't be reached.

        They will be redelivered, and dropped or returned then.
        """
        try:
            if messages:
                yield getattr(self._replies, verb)(messages)
        except (MailboxConnectionError, UnknownOutcomeError) as error:
            logger.warning("reply not settled", mailbox=self._replies.name, error=str(error))

    def _settle_unmatched(self, unmatched: list[Any]) -> Verb[list[Any]]:
        """Drop our own replies, release those of others; return the ones to release later."""
        if not unmatched:
            return []
        with self._lock:
            found = self._matching.sort(unmatched, self._replies.name)
        yield from self._tell("acknowledge_many", found.ours)
        yield from self._release(found.theirs)
        return found.again

    def _renew(self, now: int) -> Verb[None]:
        """Renew the reply mailbox before the store considers it abandoned."""
        if self._opened and (self._renew_at is None or now >= self._renew_at):
            yield self._replies._run(self._replies._verbs.keep_for_answers())
            self._renew_at = now + _KEEP_NS

    def _end(self) -> Verb[None]:
        replies = self._replies
        if self._opened and self._renew_at is not None and not replies.closed:
            try:
                yield replies._run(replies._verbs.delete_queue())
            except MailboxError as error:
                logger.warning(
                    "could not delete the reply mailbox", mailbox=replies.name, error=str(error)
                )
        for mailbox in self._opened:
            yield mailbox.close()

    def _body_of(self, answer: Any) -> Any:
        """Return the body of a reply; raise if the request was dead-lettered."""
        if isinstance(answer.body, Rejection):
            name = self._requests.name
            raise RequestRejectedError(answer.in_reply_to or "", name, answer.body.reason)
        return answer.body

    def _no_answer(self, ask: Waiting, seconds: float) -> TimeoutError:
        return TimeoutError(
            f"request {ask.request_id} to mailbox {self._requests.name!r} had no reply in "
            f"{self._reply_to!r} after {seconds:g} seconds: check that a worker receives the "
            "requests and calls reply(), or allow more time; the request may still be done"
        )
