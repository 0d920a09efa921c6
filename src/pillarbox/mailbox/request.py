"""Ask and wait for the answer: request and response over two mailboxes, matched by id.

Any number of threads may ask through one client. One of them at a time receives for all and
hands the others their answers; when it has its own it passes that duty on. So nobody polls,
and the client has no thread of its own.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from threading import get_ident
from typing import Any, Generic, TypeVar

from pillarbox.clock import Clock, SystemClock
from pillarbox.closing import Closing
from pillarbox.core import limits
from pillarbox.core.errors import MailboxConnectionError, MailboxError, UnknownOutcomeError
from pillarbox.core.queue import NEVER
from pillarbox.logger import logger
from pillarbox.mailbox.answers import IDLE_SECONDS_MAX, new_reply_queue
from pillarbox.mailbox.matching import Matching
from pillarbox.mailbox.message import Message
from pillarbox.mailbox.protocol import Mailbox
from pillarbox.mailbox.url import open_mailbox
from pillarbox.mailbox.waiters import open_gate
from pillarbox.mutex import Mutex, now_or_soon, reentrant_call

Req = TypeVar("Req")
Rep = TypeVar("Rep")

KEEP_NS = IDLE_SECONDS_MAX * limits.SECOND_NS // 24
BATCH = 10  # what every backend can receive at a time
POLL_SECONDS_MAX = 20  # what every backend can wait at a time


def reply_mailbox(url: str, requests: str, options: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The URL of a client's own mailbox for answers, and the options to open it with."""
    before, _, after = url.rpartition(requests)
    own_url = f"{before}{new_reply_queue(requests)}{after}"
    return own_url, options | {"dead_letters": None, "create": True}


def no_answer(request_id: str, requests: str, reply_to: str, seconds: float) -> TimeoutError:
    return TimeoutError(
        f"request {request_id} to mailbox {requests!r} had no answer in {reply_to!r} after "
        f"{seconds:g} seconds: check that a worker receives the requests and calls reply(), or "
        "allow more time; the request may still be done"
    )


class _Ask:
    """One caller that waits. `answer` and `leads` are set before its gate is opened."""

    __slots__ = ("acknowledged", "answer", "gate", "leads", "thread")

    def __init__(self) -> None:
        self.answer: Message[Any] | None = None
        self.acknowledged = False
        self.leads = False  # it receives for all
        self.thread = get_ident()
        self.gate = threading.Lock()
        self.gate.acquire()


class RequestClient(Closing, Generic[Req, Rep]):
    """Sends requests to one mailbox and waits for their answers in another.

    Examples:
        >>> import threading
        >>> from pillarbox import open_mailbox
        >>> sums = open_mailbox("memory:sums", list[int])
        >>> totals = open_mailbox("memory:totals", int)
        >>> def work():
        ...     for request in sums.receive(wait_time_seconds=5):
        ...         request.reply(sum(request.body))
        ...         request.acknowledge()
        >>> worker = threading.Thread(target=work)
        >>> worker.start()
        >>> RequestClient(sums, totals).ask([2, 3], timeout=5)
        5
        >>> worker.join()

    `replies` is best a mailbox of the client's own: an answer that nobody waits for any more is
    dropped then. With `shared=True` it may be another client's and is given back uncounted.
    `reply_to` is the name by which those who answer find `replies`, if that isn't its own.
    """

    def __init__(
        self,
        requests: Mailbox[Req],
        replies: Mailbox[Rep],
        *,
        reply_to: str | None = None,
        shared: bool = False,
        clock: Clock | None = None,
    ) -> None:
        self._requests = requests
        self._replies = replies
        self._reply_to = replies.name if reply_to is None else limits.text("reply_to", reply_to)
        self._clock: Clock = clock or SystemClock()
        self._lock = Mutex()
        self._matching: Matching[_Ask] = Matching(shared=shared)
        self._leader = 0  # the thread that receives for all, or the one that was told to
        self._opened: tuple[Mailbox[Any], ...] = ()
        self._keep_at = 0

    @classmethod
    def open(
        cls, url: str, request_type: Any = Any, reply_type: Any = Any, **options: Any
    ) -> RequestClient[Any, Any]:
        """A client of the mailbox that a URL names, with one of its own beside it for answers.

        Both are opened with these options, but the one for answers has no dead letters. It ends
        with the client: `close` deletes it.
        """
        requests = open_mailbox(url, request_type, **options)
        own_url, own = reply_mailbox(url, requests.name, options)
        try:
            replies: Any = open_mailbox(own_url, reply_type, **own)
        except BaseException:
            requests.close()
            raise
        client = RequestClient(requests, replies)
        client._opened = (replies, requests)
        client._keep()
        return client

    def close(self) -> None:
        """Close what `open` opened, and delete the mailbox for answers with what is in it."""
        now_or_soon(self._close)

    def _close(self) -> None:
        replies: Any = self._replies
        if self._opened and not replies.closed:
            try:
                replies._end_with_client()
            except MailboxError as error:
                logger.warning(
                    "the mailbox for answers is left behind", mailbox=replies.name, error=str(error)
                )
        for mailbox in self._opened:
            mailbox.close()

    def _keep(self) -> None:
        """Say that we live, before what we have for answers is taken for left behind."""
        replies: Any = self._replies
        if self._opened and self._clock.now() >= self._keep_at:
            replies._keep_for_answers()
            self._keep_at = self._clock.now() + KEEP_NS

    def ask(
        self,
        body: Req,
        *,
        timeout: float,
        delay_seconds: float = 0,
        priority: int = 0,
        attributes: Mapping[str, str] | None = None,
        group: str | None = None,
    ) -> Rep:
        """Send a request and wait for its answer, for `timeout` seconds; the answer's body.

        `TimeoutError` if none came in time; the request is not taken back then.
        """
        if self._leader == get_ident():  # a signal handler, in whose thread all answers come
            raise reentrant_call()
        until = self._clock.now() + limits.seconds("timeout", timeout, limits.WAIT_SECONDS_MAX)
        self._keep()
        ask = _Ask()
        request_id = self._send(
            ask,
            body,
            delay_seconds=delay_seconds,
            priority=priority,
            attributes=attributes,
            group=group,
        )
        try:
            self._wait(ask, until)
        finally:
            self._leave(request_id, ask)
        if ask.answer is None:
            raise no_answer(request_id, self._requests.name, self._reply_to, timeout)
        if not ask.acknowledged:
            self._acknowledge([ask])
        answer: Message[Rep] = ask.answer
        return answer.body

    def _send(self, ask: _Ask, body: Req, **options: Any) -> str:
        with self._lock:
            ticket = self._matching.begin()
        request_id: str | None = None
        try:
            request_id = self._requests.send(body, reply_to=self._reply_to, **options)
            return request_id
        finally:
            with self._lock:
                strays = self._matching.end(ticket, request_id, ask)
                if request_id is not None and ask.answer is None and not self._leader:
                    self._leader, ask.leads = get_ident(), True
            again = self._put_away(strays)
            if again:
                self._replies.release_many(again)

    def _wait(self, ask: _Ask, until: int) -> None:
        while ask.answer is None:
            if ask.leads:
                self._lead(ask, until)
                return
            if self._clock.now() >= until:
                return
            self._clock.wait(ask.gate, until)

    def _leave(self, request_id: str, ask: _Ask) -> None:
        """This one waits no more; if it received for all, another must."""
        with self._lock:
            del self._matching.asks[request_id]
            if not ask.leads:
                return
            for other in self._matching.asks.values():
                if other.answer is None:
                    self._leader, other.leads = other.thread, True
                    open_gate(other.gate)
                    return
            self._leader = 0

    def _lead(self, ask: _Ask, until: int) -> None:
        """Receive for all, until this one has its answer or its time is up."""
        kept: list[Message[Rep]] = []  # others' answers; given back a little later
        give_back_at = NEVER
        try:
            while True:
                left_ns = max(0, min(until, give_back_at) - self._clock.now())
                messages = self._replies.receive(
                    max_messages=BATCH,
                    wait_time_seconds=min(left_ns / limits.SECOND_NS, POLL_SECONDS_MAX),
                )
                again = self._hand_out(messages)
                now = self._clock.now()
                if ask.answer is not None or now >= until:
                    kept += again
                    return
                if now >= give_back_at:
                    self._replies.release_many(kept)
                    kept, give_back_at = [], NEVER
                for message in again:
                    kept.append(message)
                    give_back_at = min(give_back_at, now + self._pause(message))
        finally:
            if kept:
                self._replies.release_many(kept)

    def _hand_out(self, messages: Sequence[Message[Rep]]) -> list[Message[Rep]]:
        """Each answer to its asker. Those of other clients that keep coming are left over."""
        with self._lock:
            answered, strays = self._matching.take(messages)
        self._acknowledge(answered)
        for ask in answered:
            open_gate(ask.gate)
        return self._put_away(strays)

    def _acknowledge(self, answered: list[_Ask]) -> None:
        """All of these in one step. Their askers are here: nothing can be lost in between."""
        messages = [ask.answer for ask in answered if ask.answer is not None]
        for ask in answered:
            ask.acknowledged = True
        try:
            if messages:
                self._replies.acknowledge_many(messages)
        except (
            MailboxConnectionError,
            UnknownOutcomeError,
        ) as error:  # they come again, and are dropped then
            logger.warning("answer not acknowledged", mailbox=self._replies.name, error=str(error))

    def _put_away(self, strays: list[Message[Rep]]) -> list[Message[Rep]]:
        """Drop what is ours and give back what may be another's, but what came before."""
        if not strays:
            return []
        with self._lock:
            found = self._matching.sort(strays, self._replies.name)
        if found.ours:
            self._replies.acknowledge_many(found.ours)
        if found.theirs:
            self._replies.release_many(found.theirs)
        return found.again

    def _pause(self, message: Message[Rep]) -> int:
        with self._lock:
            return self._matching.pause_ns(message)
