"""`@worker(mailbox, retries=5)`: turns a function into the worker of a mailbox.

The function stays callable. `send` sends its argument to the mailbox, and `run` runs a worker in
this process; `pillarbox worker module:function` runs workers in processes of their own.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Generic, ParamSpec, TypeVar, Unpack

from pillarbox.core.errors import InvalidParameterError
from pillarbox.core.limits import VISIBILITY_SECONDS_DEFAULT
from pillarbox.mailbox.protocol import Mailbox, SendOptions
from pillarbox.worker.dispatcher import Dispatcher
from pillarbox.worker.engine import Worker, open_for
from pillarbox.worker.handler import Handler
from pillarbox.worker.retry import RetryPolicy
from pillarbox.worker.signals import run_until_signalled

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """The options of a worker."""

    mailbox: str | Mailbox[Any] | None = None
    concurrency: int = 1
    retries: int | None = None
    backoff: float = 1.0
    visibility_timeout: float = VISIBILITY_SECONDS_DEFAULT
    time_limit: float | None = None
    dispatcher: Dispatcher | None = None

    @property
    def retry(self) -> RetryPolicy:
        return RetryPolicy(self.retries, self.backoff)


class WorkerFunction(Generic[P, R]):
    """A handler with its mailbox, as `@worker` returns it."""

    def __init__(self, function: Callable[P, R], options: WorkerOptions) -> None:
        self.function = function
        self.options = options
        self.handler = Handler(function)
        self._mailbox: Mailbox[Any] | None = None
        functools.update_wrapper(self, function)

    def __call__(self, *arguments: P.args, **named: P.kwargs) -> R:
        """Call the function itself."""
        return self.function(*arguments, **named)

    @property
    def mailbox(self) -> Mailbox[Any]:
        """The mailbox, opened on first use."""
        if self._mailbox is None:
            self._mailbox = open_for(self.options.mailbox, self.handler, self.options.retry)
        return self._mailbox

    def send(self, body: Any, **options: Unpack[SendOptions]) -> str:
        """Send a body for a worker to handle; returns the message id."""
        return self.mailbox.send(body, **options)

    def send_many(self, bodies: Iterable[Any], **options: Any) -> list[str]:
        """Send several bodies; returns the message ids."""
        return self.mailbox.send_many(bodies, **options)

    def worker(self, **changes: Any) -> Worker[Any]:
        """A worker for this function; `changes` override its options."""
        return make_worker(self, replace(self.options, **changes))

    def run(self, **changes: Any) -> None:
        """Run a worker until SIGTERM or Ctrl-C; a second signal releases messages and exits."""
        run_until_signalled(self.worker(**changes))


def worker(
    mailbox: str | Mailbox[Any],
    *,
    retries: int | None = None,
    concurrency: int = 1,
    backoff: float = 1.0,
    visibility_timeout: float = VISIBILITY_SECONDS_DEFAULT,
    time_limit: float | None = None,
    dispatcher: Dispatcher | None = None,
) -> Callable[[Callable[P, R]], WorkerFunction[P, R]]:
    """Turn a function into the worker of a mailbox.

    Examples:
        >>> @worker("memory:parcels", retries=5)
        ... def pack(parcel: str) -> str:
        ...     return f"{parcel}, packed"
        >>> pack("tea")
        'tea, packed'
        >>> _ = pack.send("tea")
        >>> pack.mailbox.approximate_count()
        1
    """
    options = WorkerOptions(
        mailbox, concurrency, retries, backoff, visibility_timeout, time_limit, dispatcher
    )
    return lambda function: WorkerFunction(function, options)


def make_worker(target: Any, options: WorkerOptions) -> Worker[Any]:
    """The worker for a function, with or without `@worker`."""
    if options.mailbox is None:
        raise InvalidParameterError(
            "mailbox", None, "given, by --mailbox URL or by @worker(mailbox)"
        )
    function = target.function if isinstance(target, WorkerFunction) else target
    return Worker(
        options.mailbox,
        function,
        concurrency=options.concurrency,
        retry=options.retry,
        visibility_timeout=options.visibility_timeout,
        time_limit=options.time_limit,
        dispatcher=options.dispatcher,
    )
