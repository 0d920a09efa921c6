"""Converts a delay in milliseconds, as given by people or language models, to nanoseconds.

A value that is negative or not a number means no delay. Fractions are rounded up.
"""

from __future__ import annotations

import decimal
import numbers
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from pillarbox.bus.envelope import iso
from pillarbox.clock import Clock
from pillarbox.core.errors import InvalidParameterError

MS_NS = 1_000_000
_YEAR_9999_ENDS_NS = int(datetime.max.replace(tzinfo=UTC, microsecond=0).timestamp()) * 10**9
_MS_MAX = _YEAR_9999_ENDS_NS // MS_NS  # an upper bound, regardless of the current time
_SHOWN_BITS_MAX = 1_000  # Python refuses to print much larger numbers
_ROUND_UP = decimal.Context(prec=40, rounding=decimal.ROUND_CEILING, traps=[])


def due_after(value: Any, clock: Clock) -> tuple[int, str | None, float]:
    """Return when a delay ends, in nanoseconds and as text, and the delay in milliseconds."""
    now = clock.now()
    delay = delay_ns(value, now + clock.epoch_ns)
    if not delay:
        return 0, None, 0
    return now + delay, iso(now + delay + clock.epoch_ns), delay / MS_NS


def delay_ns(value: Any, now_epoch_ns: int) -> int:
    """Return the delay in nanoseconds; raise if it ends after the year 9999."""
    number = _number(value)
    if number.is_nan() or number <= 0:
        return 0
    if number <= _MS_MAX:
        delay = int(_ROUND_UP.to_integral_value(_ROUND_UP.multiply(number, Decimal(MS_NS))))
        if now_epoch_ns + delay <= _YEAR_9999_ENDS_NS:
            return delay
    huge = isinstance(value, int) and value.bit_length() > _SHOWN_BITS_MAX
    shown = f"a number of {value.bit_length():,} bits" if huge else value
    raise InvalidParameterError(
        "delay_ms", shown, "a number of milliseconds that ends before the year 10000"
    )


def _number(value: Any) -> Decimal:
    """Return the value as a number; NaN if it is not a number."""
    if isinstance(value, bool) or not isinstance(value, str | numbers.Number):
        return Decimal("NaN")
    if isinstance(value, int):
        return Decimal(min(max(value, -1), _MS_MAX + 1))  # avoid huge decimals
    try:
        if isinstance(value, str):
            return Decimal(value.strip())
        # From its shortest representation, so that 0.1 means exactly one tenth.
        return value if isinstance(value, Decimal) else Decimal(repr(float(value)))  # type: ignore[arg-type]
    except (decimal.InvalidOperation, TypeError, ValueError):  # text, or a complex number
        return Decimal("NaN")
    except OverflowError:  # a Fraction too large for a float
        return Decimal("Infinity") if value > 0 else Decimal(0)  # type: ignore[operator]
