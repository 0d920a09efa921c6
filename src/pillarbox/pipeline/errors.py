"""Errors of a whole pipeline. For failed records see `failures`."""

from __future__ import annotations

import re

from pillarbox.log.errors import holder_of_lock

#: The last line of a Python traceback: the exception and its message.
_RAISED = re.compile(r"Traceback [^\n]*\n(?:[ \t]+[^\n]*\n)+([\w.]+: [^\n]*)")
_MODULE = re.compile(r"^(?:[a-z_]\w*\.)+(?=[A-Z])")
_SQLSTATE = re.compile(r"\s*SQLSTATE: \w{5}")
_MESSAGE_CHARS_MAX = 1000


class PipelineError(Exception):
    """A pipeline can't start, or had to stop. The message says what to do."""

    def __init__(self, message: str, *, problems: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.problems = problems or (message,)


class PipelineRunningError(PipelineError):
    """Another process is running this pipeline."""

    def __init__(self, path: str, pid: int | None) -> None:
        super().__init__(
            f"the pipeline in {path} is running in {holder_of_lock(pid)}; stop that process first:"
            " a pipeline can have only one run at a time"
        )


class TooManyFailedError(PipelineError):
    """More records of a processor failed than the run allows."""


class OffsetsChangedError(PipelineError):
    """Another run has replaced the offsets of the batch that is running. Nothing was written."""


def one_line(error: Exception) -> str:
    """Return the message of an error without the stack traces of Spark and Python."""
    text = str(error).split("\n\nJVM stacktrace")[0]
    if raised := _RAISED.findall(text):
        chosen = _MODULE.sub("", raised[-1])
    else:
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        chosen = lines[0] if lines else ""
        if not isinstance(error, PipelineError) and not chosen.startswith("["):
            name = type(error).__name__
            chosen = f"{name}: {chosen}" if chosen else name
    return _SQLSTATE.sub("", chosen).rstrip(";")[:_MESSAGE_CHARS_MAX]
