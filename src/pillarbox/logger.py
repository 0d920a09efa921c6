"""Structured notices through the standard library's `logging`, under the name `pillarbox`.

A library must not write to its user's standard output: what becomes of a notice is up to the
handlers of the program. Warnings show on standard error where there are none.
"""

from __future__ import annotations

import logging
from typing import Any, cast

import structlog

_in_words = structlog.processors.KeyValueRenderer(key_order=["event"])


def _for_logging(
    wrapped: Any, name: str, event: structlog.typing.EventDict
) -> tuple[tuple[str], dict[str, Any]]:
    """The facts as one line; an exception is left to the handlers, which print it as it is."""
    exception = event.pop("exc_info", None)
    return (_in_words(wrapped, name, event),), {"exc_info": exception}


logger = cast(
    "structlog.stdlib.BoundLogger",
    structlog.wrap_logger(
        logging.getLogger("pillarbox"),
        processors=[
            structlog.stdlib.filter_by_level,
            _for_logging,
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
    ),
)
