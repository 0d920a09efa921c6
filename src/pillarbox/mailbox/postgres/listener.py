"""One listener per process and database: wakes receivers that wait at a queue.

While a process waits at a queue it holds a shared advisory lock, which tells senders to notify it
(`pillarbox.wake` in line.sql). One thread reads the notifications, wakes one receiver per message,
and watches the clock for messages that come due.

Behind a transaction pooler there is no LISTEN and no session lock: then receivers poll.
"""

from __future__ import annotations

import os
import select
import threading
import time
from bisect import insort
from collections.abc import Callable
from operator import attrgetter
from typing import Any

import psycopg
from msgspec import Struct

from pillarbox.logger import logger

POLL_SECONDS = 1.0  # without LISTEN
_POLL_ANYWAY_SECONDS = 10.0  # one receiver per queue polls this often in any case
_LINGER_SECONDS = 1.0  # leave a queue when no receiver has waited there for this long,
_LINGER_UNUSED_SECONDS = 0.05  # or this long if none had to wait: until then senders must notify
_PARKED = 1885500417  # see line.sql

_listeners: dict[tuple[int, str], Listener] = {}
_registry = threading.RLock()


class Waiter(Struct, eq=False):
    """A waiting receiver; `wake` may be called from any thread."""

    wake: Callable[[], None]
    stop: Callable[[], bool]
    ticket: int = 0  # the lowest is woken first
    woken: bool = False


class _WaitList:
    """The waiting receivers of one queue."""

    __slots__ = ("left_at", "linger_seconds", "look_at", "position", "waiters")

    def __init__(self) -> None:
        self.waiters: list[Waiter] = []  # sorted by ticket
        self.position = 0  # incremented by every notification
        self.look_at = time.monotonic() + _POLL_ANYWAY_SECONDS
        self.left_at = time.monotonic()
        self.linger_seconds = _LINGER_UNUSED_SECONDS

    def wake(self, count: int) -> None:
        self.position += 1
        while count > 0 and self.waiters:
            waiter = self.waiters.pop(0)
            waiter.woken = True
            waiter.wake()
            count -= 1


def listener_for(conninfo: str, pooler: bool = False) -> Listener:
    """Return this process's listener for a database; each caller must call `release` later.

    Behind a pooler it does not listen: receivers poll.
    """
    with _registry:
        key = os.getpid(), conninfo
        found = _listeners.get(key)
        if found is None:
            found = _listeners[key] = Listener(conninfo, pooler)
        found.users += 1
        return found


class Listener:
    """Created by `listener_for`. Safe to use from any thread, and from a signal handler."""

    def __init__(self, conninfo: str, pooler: bool) -> None:
        self._conninfo = conninfo
        self._lock = threading.RLock()
        self._wait_lists: dict[int, _WaitList] = {}
        self._positions = 0
        self._connection: Any = None
        self._thread: threading.Thread | None = None
        self._pipe: tuple[int, int] | None = None
        self.users = 0
        self._pooler = pooler
        if pooler:
            logger.warning(
                "behind a connection pooler there is no LISTEN: receivers poll",
                seconds=POLL_SECONDS,
            )

    def parked(self, queue: int) -> int:
        """Return how many receivers of this process wait at a queue."""
        waiting = self._wait_lists.get(queue)
        return len(waiting.waiters) if waiting is not None else 0

    def position(self, queue: int) -> int | None:
        """Return the notification count of a queue; None if this process is not registered."""
        waiting = self._wait_lists.get(queue)
        return None if waiting is None else waiting.position

    def enter(self, queue: int) -> int | None:
        """Register this process at a queue and return the position; None if receivers must poll."""
        with self._lock:
            if self._pooler:
                return None
            waiting = self._wait_lists.get(queue)
            if waiting is None:
                if self._connection is None:
                    self._connect()
                self._connection.execute(
                    "SELECT pg_advisory_lock_shared(%s::int, %s::int)", (str(_PARKED), str(queue))
                )
                waiting = self._wait_lists[queue] = _WaitList()
                waiting.position = self._positions = self._positions + 1_000_000
            waiting.left_at = time.monotonic()
            return waiting.position

    def join(
        self, queue: int, position: int | None, waiter: Waiter, due_seconds: float | None
    ) -> bool:
        """Add a waiter; return False if there was a notification after `position`."""
        with self._lock:
            waiting = self._wait_lists.get(queue)
            if waiting is None or waiting.position != position:
                return False
            insort(waiting.waiters, waiter, key=attrgetter("ticket"))
            waiting.linger_seconds = _LINGER_SECONDS
            if due_seconds is not None:
                look_at = time.monotonic() + due_seconds
                if look_at < waiting.look_at:
                    waiting.look_at = look_at
                    self._nudge()
            return True

    def leave(self, queue: int, waiter: Waiter, *, heard: bool) -> None:
        """Remove a waiter. If it missed its wake-up, wake the next one."""
        with self._lock:
            waiting = self._wait_lists.get(queue)
            if waiting is None:
                return
            waiting.left_at = time.monotonic()
            if waiter.woken:
                if not heard:
                    waiting.wake(1)
            elif waiter in waiting.waiters:
                waiting.waiters.remove(waiter)

    def wake(self, queue: int, *, stopped: bool = False) -> None:
        """Wake all waiters of a queue, or only those whose mailbox was closed."""
        with self._lock:
            waiting = self._wait_lists.get(queue)
            for waiter in list(waiting.waiters) if waiting is not None else ():
                if not stopped or waiter.stop():
                    waiter.wake()

    def release(self) -> None:
        """Decrement the reference count; the last user closes the connection."""
        with _registry, self._lock:
            self.users -= 1
            if self.users == 0:
                _listeners.pop((os.getpid(), self._conninfo), None)
                self._disconnect()

    def _connect(self) -> None:
        connection = psycopg.connect(self._conninfo, autocommit=True, prepare_threshold=None)
        try:
            connection.execute("LISTEN pillarbox")
        except BaseException:
            connection.close()
            raise
        connection.add_notify_handler(lambda each: self._notified(each.payload))
        self._connection = connection
        self._pipe = os.pipe()
        self._thread = threading.Thread(
            target=self._run, args=(connection, self._pipe), name="pillarbox-listen", daemon=True
        )
        self._thread.start()

    def _disconnect(self) -> None:
        """Drop the connection and wake all waiters; they register again if necessary."""
        connection, self._connection = self._connection, None
        wait_lists, self._wait_lists = self._wait_lists, {}
        for waiting in wait_lists.values():
            waiting.wake(len(waiting.waiters))
        if connection is not None:
            connection.close()
            self._nudge()
            self._pipe = None

    def _nudge(self) -> None:
        if self._pipe is not None:
            os.write(self._pipe[1], b".")

    def _notified(self, payload: str) -> None:
        queue, _, count = payload.partition(" ")
        waiting = self._wait_lists.get(int(queue))
        if waiting is not None:
            waiting.wake(int(count))

    def _run(self, connection: Any, pipe: tuple[int, int]) -> None:
        try:
            socket, poll = connection.fileno(), select.poll()
            for end in (socket, pipe[0]):
                poll.register(end, select.POLLIN)
            while self._connection is connection:
                with self._lock:
                    if self._connection is not connection:
                        break
                    seconds = self._check_clock()
                ready = dict(poll.poll(seconds * 1_000))
                if pipe[0] in ready:
                    os.read(pipe[0], 4096)
                if socket in ready:
                    self._read(connection)
        except (psycopg.Error, OSError):
            with self._lock:
                if self._connection is connection:
                    self._disconnect()
        finally:
            for end in pipe:
                os.close(end)

    def _read(self, connection: Any) -> None:
        with self._lock:
            if self._connection is not connection:
                return
            connection.pgconn.consume_input()
            while (notification := connection.pgconn.notifies()) is not None:
                self._notified(notification.extra.decode())

    def _check_clock(self) -> float:
        """Wake the waiters whose time has come; return the seconds until the next check."""
        now = time.monotonic()
        following = now + _POLL_ANYWAY_SECONDS
        for queue, waiting in list(self._wait_lists.items()):
            if not waiting.waiters and now - waiting.left_at > waiting.linger_seconds:
                self._connection.execute(
                    "SELECT pg_advisory_unlock_shared(%s::int, %s::int)",
                    (str(_PARKED), str(queue)),
                )
                del self._wait_lists[queue]
                continue
            if waiting.look_at <= now:
                waiting.look_at = now + _POLL_ANYWAY_SECONDS
                waiting.wake(1)
            following = min(following, waiting.look_at)
            if not waiting.waiters:
                following = min(following, waiting.left_at + waiting.linger_seconds)
        return max(0.001, following - now)
