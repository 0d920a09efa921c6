"""Key-value log lines through the standard library's `logging`, under the name `pillarbox`.

A library must not write to its user's standard output: the program's handlers decide where the
lines go. Without handlers, `logging` prints warnings to standard error.
"""

from __future__ import annotations

import logging
from typing import Any


class KeyValueLogger:
    """`warning("lease lost", mailbox="orders")` logs `event='lease lost' mailbox='orders'`."""

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name)

    def debug(self, event: str, /, **values: Any) -> None:
        self._log(logging.DEBUG, event, values)

    def info(self, event: str, /, **values: Any) -> None:
        self._log(logging.INFO, event, values)

    def warning(self, event: str, /, **values: Any) -> None:
        self._log(logging.WARNING, event, values)

    def error(self, event: str, /, **values: Any) -> None:
        self._log(logging.ERROR, event, values)

    def exception(self, event: str, /, **values: Any) -> None:
        """Log an error with the traceback of the exception that is being handled."""
        self._log(logging.ERROR, event, {"exc_info": True, **values})

    def _log(self, level: int, event: str, values: dict[str, Any]) -> None:
        if not self._logger.isEnabledFor(level):
            return
        exception = values.pop("exc_info", None)
        pairs = {"event": event, **values}.items()
        line = " ".join(f"{key}={value!r}" for key, value in pairs)
        # The line is not a format string: it may contain a percent sign. The caller is two frames
        # up.
        self._logger.log(level, "%s", line, exc_info=exception, stacklevel=3)


logger = KeyValueLogger("pillarbox")
