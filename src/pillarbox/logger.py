"""Structured notices through the standard library's `logging`, under the name `pillarbox`.

A library must not write to its user's standard output: what becomes of a notice is up to the
handlers of the program. Warnings show on standard error where there are none.
"""

from __future__ import annotations

import logging
from typing import cast

import structlog

logger = cast(
    "structlog.stdlib.BoundLogger",
    structlog.wrap_logger(
        logging.getLogger("pillarbox"),
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.processors.format_exc_info,
            structlog.processors.KeyValueRenderer(key_order=["event"]),
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
    ),
)
