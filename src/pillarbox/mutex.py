"""A lock that a thread can't take twice, and how a thread lets others run."""

from __future__ import annotations

import threading
from _thread import start_new_thread
from collections.abc import Callable, Iterable, Iterator
from time import sleep
from typing import Any, ParamSpec, TypeAlias, TypeVar

from pillarbox.core.errors import ReentrantCallError

P = ParamSpec("P")
T = TypeVar("T")

_PAUSE_SECONDS = 0.000_3

_RLock: Any = type(threading.RLock())
RLock: TypeAlias = Any  # with `_is_owned()`, which the type stubs leave out


class Mutex(_RLock):  # type: ignore[misc]
    """`with mutex:`; a signal handler that needs what it interrupted gets `ReentrantCallError`.

    It is released by C code, which no handler can keep from it.
    """

    def __enter__(self) -> bool:
        if self._is_owned():
            raise reentrant_call()
        try:
            return bool(self.acquire())
        except BaseException:  # a signal handler raised, perhaps when it was ours already
            if self._is_owned():
                self.release()
            raise


def not_reentrant(lock: RLock) -> RLock:
    """`with not_reentrant(lock):` raises `ReentrantCallError` if this thread has the lock.

    `with` acquires and releases it in C: a signal handler that raises can't leave it locked.
    """
    if lock._is_owned():
        raise reentrant_call()
    return lock


def reentrant_call() -> ReentrantCallError:
    """What a handler gets to read."""
    return ReentrantCallError(
        "this thread was interrupted in the middle of another call to the same mailbox or store, "
        "which can't go on before the signal handler returns: let the handler set a flag, put "
        "the work on a queue.SimpleQueue, or hand it to another thread"
    )


def now_or_soon(work: Callable[P, object], *args: P.args, **options: P.kwargs) -> None:
    """Do this now; or in another thread, where it is a call that this one interrupted.

    For closing: that must work in any signal handler. The program waits for it before it ends.
    """
    try:
        work(*args, **options)
    except ReentrantCallError:
        threading.Thread(
            target=work, args=args, kwargs=options, name="pillarbox-close", daemon=False
        ).start()


def uninterrupted(work: Callable[P, object], *args: P.args, **options: P.kwargs) -> None:
    """Do this on a thread of its own, where no signal handler runs, and wait until it is done.

    What handlers raise in this thread meanwhile is dropped: this is for code that has caught
    what a handler raised, and raises that afterwards.
    """
    todo, done = [work], threading.Lock()
    done.acquire()
    outcome: list[BaseException | None] = []

    def run() -> None:
        try:
            mine = todo.pop()
        except IndexError:  # another thread has it: a handler raised when that had just started
            return
        try:
            mine(*args, **options)
            outcome.append(None)
        except BaseException as error:  # noqa: BLE001 - it is raised by whoever waits
            outcome.append(error)
        finally:
            done.release()

    while not outcome:
        try:
            if todo:
                _start(run)
            done.acquire()
        except BaseException:  # noqa: BLE001, S112 - see above
            continue
    if outcome[0] is not None:
        raise outcome[0]


def _start(run: Callable[[], None]) -> None:
    try:
        start_new_thread(run, ())
    except RuntimeError:  # the process has as many threads as it may
        run()


def short_pause() -> None:
    """Let other threads run between two pieces of long work.

    Without it they wait for the interpreter for milliseconds each time that they need it.
    """
    sleep(_PAUSE_SECONDS)


def paced(items: Iterable[T], at_once: int) -> Iterator[T]:
    """These items, with a short pause after each `at_once` of them."""
    for number, item in enumerate(items, 1):
        yield item
        if number % at_once == 0:
            short_pause()
