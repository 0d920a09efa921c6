"""A non-reentrant lock, work that signal handlers can't interrupt, and pauses for long work."""

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
    """A lock that raises `ReentrantCallError` in a signal handler that interrupted its holder.

    It is released by C code, which no handler can prevent.
    """

    def __enter__(self) -> bool:
        if self._is_owned():
            raise reentrant_call()
        try:
            return bool(self.acquire())
        except BaseException:  # a signal handler raised, perhaps after the lock was taken
            if self._is_owned():
                self.release()
            raise


def not_reentrant(lock: RLock) -> RLock:
    """Return the lock for a `with` block; raise `ReentrantCallError` if this thread holds it.

    `with` acquires and releases it in C: a signal handler that raises can't leave it locked.
    """
    if lock._is_owned():
        raise reentrant_call()
    return lock


def reentrant_call() -> ReentrantCallError:
    """Return the error for a signal handler that called what it interrupted."""
    return ReentrantCallError(
        "this thread was interrupted in the middle of another call to the same mailbox or store, "
        "which can't go on before the signal handler returns: let the handler set a flag, put "
        "the work on a queue.SimpleQueue, or hand it to another thread"
    )


def now_or_soon(work: Callable[P, object], *args: P.args, **options: P.kwargs) -> None:
    """Call `work` now, or in another thread if a signal handler interrupted the same object.

    For `close`, which must work in any signal handler. The program waits for it before it exits.
    """
    try:
        work(*args, **options)
    except ReentrantCallError:
        threading.Thread(
            target=work, args=args, kwargs=options, name="pillarbox-close", daemon=False
        ).start()


def uninterrupted(work: Callable[P, object], *args: P.args, **options: P.kwargs) -> None:
    """Call `work` in its own thread, where no signal handler runs, and wait until it is done.

    Drops exceptions that handlers raise in this thread meanwhile: the caller has already caught
    one, and re-raises it afterwards.
    """
    todo, done = [work], threading.Lock()
    done.acquire()
    outcome: list[BaseException | None] = []

    def run() -> None:
        try:
            mine = todo.pop()
        # Already running in the other thread: a handler raised just after its start.
        except IndexError:
            return
        try:
            mine(*args, **options)
            outcome.append(None)
        except BaseException as error:  # noqa: BLE001 - re-raised by the waiting thread
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
    except RuntimeError:  # no more threads can be started
        run()


def short_pause() -> None:
    """Let other threads run between two pieces of long work.

    Without it, they wait milliseconds for the interpreter each time they need it.
    """
    sleep(_PAUSE_SECONDS)


def paced(items: Iterable[T], at_once: int) -> Iterator[T]:
    """Yield the items, with a short pause after every `at_once` of them."""
    for number, item in enumerate(items, 1):
        yield item
        if number % at_once == 0:
            short_pause()
