"""A handler: a plain function or a coroutine function, with or without the job.

    def handle(order: Order) -> None: ...
    async def handle(order: Order, job: Job[Order]) -> Receipt: ...

The annotation of the first parameter is the type of the bodies.
"""

from __future__ import annotations

import importlib
import inspect
import sys
import typing
from collections.abc import Callable
from pathlib import Path
from types import CoroutineType
from typing import Any

from pillarbox.core.errors import InvalidParameterError
from pillarbox.worker.job import Job

_FORM = "a function or coroutine function with the parameters (body) or (body, job)"


class Handler:
    """A function with what a worker must know about it."""

    def __init__(self, function: Callable[..., Any]) -> None:
        if not callable(function):
            raise InvalidParameterError("handler", function, _FORM)
        self.function = function
        self.name = getattr(function, "__qualname__", type(function).__qualname__)
        called = function if inspect.isroutine(function) else type(function).__call__
        self.is_async = any(
            inspect.iscoroutinefunction(inspect.unwrap(each)) for each in (function, called)
        )
        names = _parameters(function)
        self.wants_job = len(names) > 1
        self.body_type = _annotation(function, called, names[0])

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
        raise InvalidParameterError("handler", function, _FORM)
    # A second parameter with a default is not the job.
    wanted = [each.name for each in positional[:2] if each is positional[0] or each in needed]
    return wanted or ["body"]


def _annotation(function: Any, called: Any, name: str) -> Any:
    for candidate in (function, called):
        try:
            hints = typing.get_type_hints(inspect.unwrap(candidate))
        except (TypeError, NameError):  # not a function, or a name under TYPE_CHECKING
            continue
        if name in hints:
            return hints[name]
    return Any


def load(path: str) -> Any:
    """Import `package.module:name`, searching the current directory first."""
    module_name, colon, name = path.partition(":")
    if not module_name or not colon or not name:
        raise InvalidParameterError("handler", path, "of the form package.module:function")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not module_name.startswith(error.name):
            raise  # the module exists but fails to import another
        raise InvalidParameterError(
            "handler", path, f"in a module that can be imported ({error}; searched {here} first)"
        ) from error
    for part in name.split("."):
        if not hasattr(found, part):
            raise InvalidParameterError(
                "handler", path, f"a name in {module_name}, which has no {part!r}"
            )
        found = getattr(found, part)
    return found
