"""How a verb of a queue becomes one step under the lock of its store."""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar

from pillarbox.mutex import reentrant_call

if TYPE_CHECKING:
    from pillarbox.mailbox.queue_session import QueueSession

D = TypeVar("D", bound="QueueSession")
P = ParamSpec("P")
R = TypeVar("R")


class Written(Protocol):
    """What was put on record, and is confirmed sooner or later."""

    def wait(self, timeout: float | None = None) -> int: ...
    def __await__(self) -> Generator[Any, None, int]: ...


def locked(
    verb: Callable[Concatenate[D, P], tuple[Written | None, R]],
) -> Callable[Concatenate[D, P], R]:
    """A verb that is one step under the store's lock: it answers with what has to be confirmed."""

    @wraps(verb)
    def run(session: D, *args: P.args, **options: P.kwargs) -> R:
        if session.store.confirms_here:  # a signal handler: nothing it writes could be confirmed
            raise reentrant_call()
        written, answer = session._lock.run(verb, session, *args, **options)
        if written is not None:
            session.store.confirm(written)
        return answer

    return run  # type: ignore[return-value]  # `wraps` knows its first argument by name
