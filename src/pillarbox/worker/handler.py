"""A handler: a plain function or a coroutine function, with or without the job.

    def handle(order: Order) -> None: ...
    async def handle(order: Order, job: Job[Order]) -> Receipt: ...

The annotation of the first parameter is the type of the bodies. A function that could not handle
any message is refused here, so that `@worker` fails when its module is imported.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from types import CoroutineType
from typing import Any

from pillarbox.codec import codec_for
from pillarbox.core.errors import InvalidParameterError
from pillarbox.worker.job import Job

_FORM = "a function or coroutine function with the parameters (body) or (body, job)"


class Handler:
    """A function, its body type, and how to call it."""

    def __init__(self, function: Callable[..., Any]) -> None:
        if not callable(function):
            raise _refusal(function)
        self.function = function
        self.name = getattr(function, "__qualname__", type(function).__qualname__)
        called = function if inspect.isroutine(function) else type(function).__call__
        code = [inspect.unwrap(each) for each in (function, called)]
        if any(
            inspect.isgeneratorfunction(each) or inspect.isasyncgenfunction(each) for each in code
        ):
            raise _refusal(function, ", not a generator function")
        self.is_async = any(map(inspect.iscoroutinefunction, code))
        names = _parameters(function)
        self.wants_job = len(names) > 1
        self.body_type = _body_type(function, called, names)

    def call(self, job: Job[Any]) -> Any:
        """Call the function; a coroutine function returns a coroutine."""
        if self.wants_job:
            result = self.function(job.message.body, job)
        else:
            result = self.function(job.message.body)
        if not self.is_async and type(result) is CoroutineType:
            result.close()  # never ran, so the message must not be acknowledged
            raise TypeError(f"handler {self.name} returned a coroutine: define it with async def")
        return result


def _refusal(function: object, why: str = "") -> InvalidParameterError:
    """Return the error for a function that can't be a handler, with its signature."""
    signature = function
    if inspect.isroutine(function):
        signature = f"{function.__module__}.{function.__qualname__}{inspect.signature(function)}"
    return InvalidParameterError("handler", signature, _FORM + why)


def _parameters(function: Callable[..., Any]) -> list[str]:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # some builtins have no signature
        return ["body"]
    positional = [
        each
        for each in parameters
        if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)
    ]
    required = [each for each in parameters if each.default is each.empty]
    spread = any(each.kind is each.VAR_POSITIONAL for each in parameters)
    needed = [each for each in required if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)]
    if (
        (not positional and not spread)
        or len(needed) > 2
        or any(each.kind is each.KEYWORD_ONLY for each in needed)
    ):
        raise _refusal(function)
    # A second parameter with a default is not the job.
    names = [each.name for each in positional[:2] if each is positional[0] or each in needed]
    return names or ["body"]


def _body_type(function: Any, called: Any, names: list[str]) -> Any:
    """Return the annotation of the first parameter; `Any` if it has none."""
    hints = _hints(function, called)
    body_type = hints.get(names[0], Any)
    if _is_job(body_type):
        raise _refusal(function, ": the body comes first")
    if len(names) > 1:
        job_type = hints.get(names[1], Any)
        if job_type is not Any and not _is_job(job_type):
            raise _refusal(
                function, f": a second parameter without a default is a Job; {names[1]!r} is not"
            )
    codec_for(body_type)  # raises if no message can have this type
    return body_type


def _hints(function: Any, called: Any) -> dict[str, Any]:
    for candidate in (function, called):
        try:
            hints = typing.get_type_hints(inspect.unwrap(candidate))
        except (TypeError, NameError):  # not a function, or a name under TYPE_CHECKING
            continue
        if hints:
            return hints
    return {}


def _is_job(hint: Any) -> bool:
    kind = typing.get_origin(hint) or hint
    return isinstance(kind, type) and issubclass(kind, Job)
