"""`@worker(mailbox, retries=5)`: turns a function into the worker of a mailbox.

The function stays callable. `send` sends its argument to the mailbox, and `run` runs a worker in
this process; `pillarbox worker module` runs the workers of a module in processes of their own.
All of them use the same mailbox: the environment variable PILLARBOX_MAILBOX if it is set, else
that of the decorator.
"""

from __future__ import annotations

import functools
import importlib
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, ParamSpec, TypeVar, Unpack

from pillarbox.core.errors import InvalidParameterError
from pillarbox.core.limits import VISIBILITY_SECONDS_DEFAULT
from pillarbox.mailbox.protocol import Mailbox, SendOptions
from pillarbox.mailbox.url import without_password
from pillarbox.worker.dispatcher import Dispatcher
from pillarbox.worker.engine import Worker, open_for
from pillarbox.worker.handler import Handler
from pillarbox.worker.retry import RetryPolicy
from pillarbox.worker.signals import run_until_signalled

P = ParamSpec("P")
R = TypeVar("R")

MAILBOX_VARIABLE = "PILLARBOX_MAILBOX"


class WorkerFunction(Generic[P, R]):
    """A handler with its mailbox, as `@worker` returns it."""

    def __init__(
        self,
        function: Callable[P, R],
        mailbox: str | Mailbox[Any] | None,
        options: dict[str, Any],
    ) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self.declared = mailbox
        self.options = options
        self.handler = Handler(function)
        self._address: str | None = None
        self._mailbox: Mailbox[Any] | None = None

    def __call__(self, *arguments: P.args, **named: P.kwargs) -> R:
        """Call the function itself."""
        return self.function(*arguments, **named)

    @property
    def address(self) -> str | Mailbox[Any]:
        """The URL of the mailbox, or the mailbox that was given to the decorator."""
        if self._address is not None:
            return self._address
        url = os.environ.get(MAILBOX_VARIABLE)
        if url and (self.declared is None or isinstance(self.declared, str)):
            self._refuse_if_ambiguous(url)
            return url
        if self.declared is None:
            raise InvalidParameterError(
                "mailbox", None, f"given, by --mailbox URL, {MAILBOX_VARIABLE} or @worker(mailbox)"
            )
        return self.declared

    def use_mailbox(self, url: str) -> None:
        """Use this mailbox from now on, regardless of the decorator and the environment."""
        self._address, self._mailbox = url, None

    @property
    def mailbox(self) -> Mailbox[Any]:
        """The mailbox, opened on first use."""
        if self._mailbox is None:
            retry = RetryPolicy(self.options["retries"])
            self._mailbox = open_for(self.address, self.handler, retry)
        return self._mailbox

    def send(self, body: Any, **options: Unpack[SendOptions]) -> str:
        """Send a body for a worker to handle; return the message id."""
        return self.mailbox.send(body, **options)

    def send_many(self, bodies: Iterable[Any], **options: Any) -> list[str]:
        """Send several bodies; return the message ids."""
        return self.mailbox.send_many(bodies, **options)

    def worker(self, **changes: Any) -> Worker[Any]:
        """Return a worker for this function; `changes` override its options."""
        options = self.options | changes
        mailbox = options.pop("mailbox", None) or self.address
        retry = RetryPolicy(options.pop("retries"), options.pop("backoff"))
        return Worker(mailbox, self.function, retry=retry, **options)

    def run(self, **changes: Any) -> None:
        """Run a worker until SIGTERM or Ctrl-C; a second signal releases messages and exits."""
        run_until_signalled(self.worker(**changes))

    def _refuse_if_ambiguous(self, url: str) -> None:
        """Raise if the variable would replace the different mailboxes of several workers."""
        module = sys.modules.get(self.function.__module__)
        workers = workers_in(module).values() if module else ()
        declared = {str(each.declared) for each in workers}
        if len(declared) > 1:
            raise InvalidParameterError(
                MAILBOX_VARIABLE,
                without_password(url),
                f"unset for {self.function.__module__}, whose workers have {len(declared)} "
                f"mailboxes: {', '.join(map(without_password, sorted(declared)))}",
            )


def worker(
    mailbox: str | Mailbox[Any] | None = None,
    *,
    retries: int | None = None,
    concurrency: int = 1,
    backoff: float = 1.0,
    visibility_timeout: float = VISIBILITY_SECONDS_DEFAULT,
    time_limit: float | None = None,
    dispatcher: Dispatcher | None = None,
) -> Callable[[Callable[P, R]], WorkerFunction[P, R]]:
    """Turn a function into the worker of a mailbox, by default that of PILLARBOX_MAILBOX.

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
    options = {
        "retries": retries,
        "concurrency": concurrency,
        "backoff": backoff,
        "visibility_timeout": visibility_timeout,
        "time_limit": time_limit,
        "dispatcher": dispatcher,
    }
    return lambda function: WorkerFunction(function, mailbox, options)


def find_handlers(paths: Sequence[str]) -> dict[str, Any]:
    """Import `module` (all its `@worker` functions) or `module:name`; return them by name."""
    handlers: dict[str, Any] = {}
    for path in paths:
        module_name, colon, name = path.partition(":")
        if not module_name or (colon and not name):
            raise InvalidParameterError(
                "handler", path, "of the form package.module or package.module:function"
            )
        module = _import(module_name, path)
        if colon:
            handlers[path] = _attribute(module, name, path)
            continue
        workers = workers_in(module)
        if not workers:
            raise InvalidParameterError(
                "handler",
                path,
                f"a module with @worker functions; for another function, write {path}:function",
            )
        handlers |= {f"{path}:{name}": each for name, each in workers.items()}
    return handlers


def workers_in(module: ModuleType) -> dict[str, WorkerFunction[Any, Any]]:
    """Return the `@worker` functions that a module defines, each by its first name."""
    workers: dict[str, WorkerFunction[Any, Any]] = {}
    for name, value in vars(module).items():
        own = isinstance(value, WorkerFunction) and value.__module__ == module.__name__
        if own and not any(value is each for each in workers.values()):
            workers[name] = value
    return workers


def _import(name: str, path: str) -> ModuleType:
    """Import a module, searching the current directory first."""
    directory = str(Path.cwd())
    if directory not in sys.path:
        sys.path.insert(0, directory)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if not f"{name}.".startswith(f"{error.name}."):
            raise  # the module exists but fails to import another
        raise InvalidParameterError(
            "handler",
            path,
            f"in a module that can be imported ({error}; searched {directory} first)",
        ) from error


def _attribute(module: ModuleType, name: str, path: str) -> Any:
    value: Any = module
    for part in name.split("."):
        if not hasattr(value, part):
            raise InvalidParameterError(
                "handler", path, f"a name in {module.__name__}, which has no {part!r}"
            )
        value = getattr(value, part)
    return value
