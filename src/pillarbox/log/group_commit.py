"""Group commit: many submitters, one leader, one frame and one sync per group.

While the leader writes and syncs one group, the next one fills. Then it appoints a waiter of the
next group as leader, and wakes two waiters of its own group, each of which wakes the next: many
threads that wake at once would fight for the interpreter. A single writer leads without a thread
switch. A background thread, started on demand, leads groups that only have callbacks, awaits or
lazy records. Groups complete in index order.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Generator
from threading import get_ident
from typing import Any

from pillarbox.log.errors import LogError
from pillarbox.log.group import Group, nothing, notify_all, remove_waiter, wake_one
from pillarbox.log.segment_writer import JOIN_BYTES_MAX, SegmentWriter
from pillarbox.mutex import RLock, not_reentrant, reentrant_call

#: How long lazy records may stay in memory.
LAZY_SECONDS = 0.05
GROUP_BYTES_MAX = 8 << 20
#: At level memory, write at once when this much is buffered.
BUFFER_BYTES = 1 << 20

#: The group of a ticket that is confirmed already.
CONFIRMED = Group(0, None)
CONFIRMED.done = True


class Ticket:
    """A future for records that have indices but may not be confirmed yet."""

    __slots__ = ("_commit", "_group", "count", "first_index")

    def __init__(self, commit: GroupCommit, group: Group, first_index: int, count: int) -> None:
        self._commit = commit
        self._group = group
        self.first_index = first_index
        self.count = count

    def done(self) -> bool:
        """Return whether the records are confirmed or have failed."""
        return self._group.done

    def wait(self, timeout: float | None = None) -> int:
        """Block until confirmed, then return the first index; raises on failure."""
        self._commit.wait(self._group, timeout)
        if self._group.error is not None:
            raise self._group.error
        return self.first_index

    def add_done_callback(self, callback: Callable[[Ticket], object]) -> None:
        """Call `callback(ticket)` when done, on the committing thread, or at once."""
        self._commit.when_done(self._group, lambda: callback(self))

    def exception(self) -> Exception | None:
        """Return the error, or None."""
        return self._group.error

    def __await__(self) -> Generator[Any, None, int]:
        group = self._group
        if not group.done:
            yield from self._commit.future(group).__await__()
        if group.error is not None:
            raise group.error
        return self.first_index


_NOBODY, _APPOINTED = 0, -1  # not thread idents


class GroupCommit:
    """Coordinates the leader and the waiters. `write(group)` does the I/O.

    A signal handler may raise anywhere in here. If it interrupts the leader, what was written is
    unknown, so `poison` fails everyone. `engaged` are the threads that lead or wait: a signal
    handler on such a thread would deadlock, so its calls are refused.
    """

    def __init__(
        self,
        lock: RLock,
        write: Callable[[Group], None],
        poison: Callable[[BaseException], LogError],
    ) -> None:
        self._lock = lock
        self._write = write
        self._poison = poison
        self.groups: deque[Group] = deque()
        self.leader = _NOBODY
        self.engaged: dict[int, None] = {}
        #: The group that the leader writes, if there is one.
        self.under_way: Group | None = None
        self._thread: threading.Thread | None = None
        self._call = threading.Semaphore(0)
        self._called = False
        self.armed = False
        self._stopping = False

    def refuse_if_engaged(self) -> None:
        """Raise if this is a signal handler that interrupted a call to the log."""
        if self.is_busy_here():
            raise reentrant_call()

    def is_busy_here(self) -> bool:
        """Return whether this thread leads or waits already."""
        me = get_ident()
        return self.leader == me or me in self.engaged

    def wait(self, group: Group, timeout: float | None = None) -> None:
        """Return when the group is done; lead it if there is no leader."""
        if group.done:
            return
        self.refuse_if_engaged()
        me = get_ident()
        try:
            self.engaged[me] = None
            self._lead_or_park(group, me, timeout)
        except BaseException as failure:
            self.abandon(failure)
            raise
        finally:
            self.engaged.pop(me, None)

    def _lead_or_park(self, group: Group, me: int, timeout: float | None) -> None:
        parked = threading.Lock()
        parked.acquire()
        with not_reentrant(self._lock):
            if group.decided():
                return
            leads = not self.leader
            if leads:
                self.leader = me
            else:
                group.waiters.append(parked)
        if leads:
            self._lead(group)
            return
        woken = False
        try:
            woken = parked.acquire(timeout=-1 if timeout is None else max(0.0, timeout))
        finally:  # even if interrupted: it may have been appointed
            if woken or not remove_waiter(group, parked):
                self._resume(group, me)
        if not (woken or group.decided()):
            raise TimeoutError("the records are not confirmed yet")

    def _resume(self, group: Group, me: int) -> None:
        """After waking up: wake the next waiter, or lead."""
        if group.decided():
            wake_one(group)
        else:
            self.leader = me
            self._lead(group)

    def when_done(self, group: Group, callback: Callable[[], object]) -> None:
        with not_reentrant(self._lock):
            if not group.done:
                group.callbacks.append(callback)
                self._call_thread()
                return
        callback()

    def future(self, group: Group) -> asyncio.Future[None]:
        """Return a future of the running loop; one call_soon serves a whole group."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        with not_reentrant(self._lock):
            if group.done:
                future.set_result(None)
            else:
                group.futures.setdefault(loop, []).append(future)
                self._call_thread()
        return future

    def group_for(self, segment: SegmentWriter, first_index: int, cost: int) -> Group:
        """Lock held: the group being filled, or a new one if `cost` does not fit."""
        group = self.groups[-1] if self.groups else None
        large = group is not None and group.payload_bytes + cost > GROUP_BYTES_MAX
        if group is None or group.segment is not segment or large:
            group = Group(first_index, segment)
            self.groups.append(group)
        return group

    def arm(self) -> None:
        """Lock held: have the background thread write lazy records soon."""
        self.armed = True
        self._call_thread()

    def write_soon(self, group: Group) -> None:
        """Lock held: have the background thread write a large group at once."""
        if not group.callbacks:
            group.callbacks.append(nothing)
            self._call_thread()

    @property
    def idle(self) -> bool:
        """Lock held: whether nothing is pending and there is no leader."""
        return not self.leader and not self.groups

    def take_unawaited(self, segment: SegmentWriter, cost: int) -> bool:
        """Lock held: take the pending group if it has no waiters and fits; else return False."""
        group = self.groups[0]
        small = group.payload_bytes + cost <= JOIN_BYTES_MAX
        if len(self.groups) > 1 or group.wanted or group.segment is not segment or not small:
            return False
        self.under_way = group
        self.groups.popleft()
        return True

    def end_lead(self) -> None:
        """End the lead of `Writer.write_now`."""
        with not_reentrant(self._lock):
            if self.under_way is None and not self.groups:
                self.leader = _NOBODY
                self.engaged.pop(get_ident(), None)
                return
        self._finish(None, release=True)

    def abandon(self, failure: BaseException) -> None:
        """After an error or an interrupt: if this thread leads, poison the log and end the lead."""
        if self.leader == get_ident():
            self._finish(self._poison(failure), release=True)

    def _lead(self, target: Group | None) -> None:
        """Write groups in order until `target` (or all) are done, then hand over."""
        while True:
            with not_reentrant(self._lock):
                group = self.under_way = self.groups[0]
                self.groups.popleft()
            error: Exception | None = None
            try:
                self._write(group)
            except Exception as failure:  # noqa: BLE001 - every waiter gets it
                error = self._poison(failure)
            last = group is target if target is not None else not self.groups
            self._finish(error, release=last)
            if last or error is not None:
                return

    def _finish(self, error: Exception | None, *, release: bool) -> None:
        """Complete the current group, or fail all groups; hand over first if `release`."""
        decided: list[Group] = []
        try:
            with not_reentrant(self._lock):
                if self.under_way is not None:
                    decided = [self.under_way]
                if error is not None:
                    decided = [*decided, *self.groups]
                    self.groups.clear()
                for group in decided:
                    group.error = error
                    group.done = True
                    group.records = []
                self.under_way = None
                if release or error is not None:
                    self._hand_over()
                    self.engaged.pop(get_ident(), None)
        finally:
            notify_all(decided)

    def _hand_over(self) -> None:
        """Lock held: appoint a waiter as the next leader, if there is one."""
        for group in self.groups:
            if group.waiters:
                self.leader = _APPOINTED
                wake_one(group)
                return
        self.leader = _NOBODY
        if self.groups and any(group.wanted for group in self.groups):
            self._call_thread()

    def newest(self) -> Group:
        """Return the last group that is not done; a confirmed one if all are."""
        with not_reentrant(self._lock):
            if self.groups:
                return self.groups[-1]
            if self.leader and self.under_way is None:
                self.under_way = Group(0, None)
            return self.under_way or CONFIRMED

    def drain(self) -> None:
        """Return when everything submitted so far is done."""
        self.wait(self.newest())

    def _call_thread(self) -> None:
        if self._thread is None and not self._stopping:
            self._thread = threading.Thread(
                target=self._run, name="pillarbox-log-commit", daemon=True
            )
            self._thread.start()
        if not self._called:
            self._called = True
            self._call.release()

    def _run(self) -> None:
        while not self._stopping:
            timeout = LAZY_SECONDS if self.armed else None
            self._call.acquire(timeout=timeout)
            with not_reentrant(self._lock):
                called, self._called = self._called, False
                due = not called and self.armed
                if due:
                    self.armed = False
                wanted = any(group.wanted for group in self.groups)
                lead = bool(self.groups) and not self.leader and (due or wanted)
                if lead:
                    self.leader = get_ident()
            if lead:
                self._lead(None)

    def stop(self) -> None:
        """Stop the background thread, after draining."""
        self._stopping = True
        thread, self._thread = self._thread, None
        if thread is not None and thread is not threading.current_thread():
            self._call.release()
            thread.join()
