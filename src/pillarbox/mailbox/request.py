"""Ask and wait for the answer: request and response over two mailboxes, matched by id.

Any number of threads may ask through one client. One of them at a time receives for all and
hands the others their answers; when it has its own it passes that duty on. So nobody polls,
and the client has no thread of its own.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from itertools import count
from threading import get_ident
from typing import Any, Generic, TypeVar

from pillarbox.clock import Clock, SystemClock
from pillarbox.closing import Closing
from pillarbox.core import limits
from pillarbox.core.errors import MailboxConnectionError, MailboxError, UnknownOutcomeError
from pillarbox.core.queue import NEVER
from pillarbox.logger import logger
from pillarbox.mailbox.answers import IDLE_SECONDS_MAX, new_reply_queue
from pillarbox.mailbox.message import Message
from pillarbox.mailbox.protocol import Mailbox
from pillarbox.mailbox.url import open_mailbox
from pillarbox.mailbox.waiters import open_gate
from pillarbox.mutex import Mutex, now_or_soon, reentrant_call

Req = TypeVar("Req")
Rep = TypeVar("Rep")

_KEEP_NS = IDLE_SECONDS_MAX * limits.SECOND_NS // 24
_BATCH = 10  # what every backend can receive at a time
_POLL_SECONDS_MAX = 20  # what every backend can wait at a time
_IDS_REMEMBERED_MAX = 10_000
_PAUSE_NS = 1_000_000  # for an answer that came twice and is another client's; then doubled
_PAUSE_DOUBLINGS_MAX = 10


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
        self._shared = shared
        self._clock: Clock = clock or SystemClock()
        self._lock = Mutex()
        self._asks: dict[str, _Ask] = {}  # by the id of the request
        self._leader = 0  # the thread that receives for all, or the one that was told to
        self._tickets = count()
        self._sending: dict[int, None] = {}  # tickets of sends that have not answered yet
        # Answers that came before `send` told the id of their request, and the first ticket
        # that is too late to be theirs.
        self._early: dict[str, tuple[int, Message[Rep]]] = {}
        self._own: OrderedDict[str, int] = OrderedDict()  # the requests of this client
        self._foreign: OrderedDict[str, int] = OrderedDict()  # how often another's answer came
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
        before, _, after = url.rpartition(requests.name)
        own_url = f"{before}{new_reply_queue(requests.name)}{after}"
        own = options | {"dead_letters": None} | ({"create": True} if url.startswith("sqs") else {})
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
            self._keep_at = self._clock.now() + _KEEP_NS

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
            raise TimeoutError(
                f"request {request_id} to mailbox {self._requests.name!r} had no answer in "
                f"{self._reply_to!r} after {timeout:g} seconds: see that a worker receives the "
                "requests and calls reply(), or allow more time; the request may still be done"
            )
        if not ask.acknowledged:
            self._acknowledge([ask])
        answer: Message[Rep] = ask.answer
        return answer.body

    def _send(self, ask: _Ask, body: Req, **options: Any) -> str:
        with self._lock:
            ticket = next(self._tickets)
            self._sending[ticket] = None
        request_id: str | None = None
        try:
            request_id = self._requests.send(body, reply_to=self._reply_to, **options)
            return request_id
        finally:
            with self._lock:
                del self._sending[ticket]
                if request_id is not None:
                    self._enter(request_id, ask)
                strays = self._strays()
            again = self._put_away(strays)
            if again:
                self._replies.release_many(again)

    def _enter(self, request_id: str, ask: _Ask) -> None:
        """From now on an answer to this request finds its asker. Needs the lock."""
        self._asks[request_id] = ask
        _note(self._own, request_id)
        if request_id in self._early:
            _, ask.answer = self._early.pop(request_id)
        elif not self._leader:
            self._leader, ask.leads = get_ident(), True

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
            del self._asks[request_id]
            if not ask.leads:
                return
            for other in self._asks.values():
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
                    max_messages=_BATCH,
                    wait_time_seconds=min(left_ns / limits.SECOND_NS, _POLL_SECONDS_MAX),
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
        strays, answered = [], []
        with self._lock:
            for message in messages:
                request_id = message.in_reply_to or ""
                ask = self._asks.get(request_id)
                if ask is not None and ask.answer is None:
                    ask.answer = message
                    answered.append(ask)
                elif ask is None and self._sending and request_id not in self._early:
                    self._early[request_id] = next(self._tickets), message
                else:
                    strays.append(message)
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

    def _strays(self) -> list[Message[Rep]]:
        """Early answers that no send can be waiting for any more. Needs the lock."""
        oldest = next(iter(self._sending), None)
        strays = []
        while self._early:
            request_id, (ticket, message) = next(iter(self._early.items()))
            if oldest is not None and oldest < ticket:
                break
            del self._early[request_id]
            strays.append(message)
        return strays

    def _put_away(self, strays: list[Message[Rep]]) -> list[Message[Rep]]:
        """Drop what is ours and give back what may be another's, but what came before."""
        if not strays:
            return []
        ours = strays
        theirs: list[Message[Rep]] = []
        again: list[Message[Rep]] = []
        if self._shared:
            with self._lock:
                ours = [m for m in strays if m.in_reply_to in self._own]
                for message in strays:
                    if message.in_reply_to not in self._own:
                        known = _note(self._foreign, message.id)
                        (again if known > 1 else theirs).append(message)
        for message in ours:
            logger.warning(
                "answer dropped: nobody waits for it",
                mailbox=self._replies.name,
                message_id=message.id,
                in_reply_to=message.in_reply_to,
            )
        if ours:
            self._replies.acknowledge_many(ours)
        if theirs:
            self._replies.release_many(theirs)
        return again

    def _pause(self, message: Message[Rep]) -> int:
        """How long to keep another's answer, so that its client can't be passed over for ever."""
        with self._lock:
            return _PAUSE_NS << min(self._foreign.get(message.id, 1), _PAUSE_DOUBLINGS_MAX)


def _note(ids: OrderedDict[str, int], message_id: str) -> int:
    """Count this id, and forget the one that was not seen for longest; how often it came."""
    ids[message_id] = ids.pop(message_id, 0) + 1
    if len(ids) > _IDS_REMEMBERED_MAX:
        ids.popitem(last=False)
    return ids[message_id]
