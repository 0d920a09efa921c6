"""A delay as people and language models give it, in milliseconds, as whole nanoseconds.

What is no number is no delay, a negative one is none either, and none is ever cut short.
"""

from __future__ import annotations

import decimal
import numbers
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from pillarbox.core.errors import InvalidParameterError

_MS_NS = 1_000_000
_YEAR_9999_ENDS_NS = int(datetime.max.replace(tzinfo=UTC, microsecond=0).timestamp()) * 10**9
_MS_MAX = _YEAR_9999_ENDS_NS // _MS_NS  # however early it is now
_SHOWN_BITS_MAX = 1_000  # Python itself refuses to write larger numbers out
_ROUND_UP = decimal.Context(prec=40, rounding=decimal.ROUND_CEILING, traps=[])


def delay_ns(value: Any, now_epoch_ns: int) -> int:
    """How long to wait from now on; 0 for at once. Refused if it ends after the year 9999."""
    number = _number(value)
    if number.is_nan() or number <= 0:
        return 0
    if number <= _MS_MAX:
        delay = int(_ROUND_UP.to_integral_value(_ROUND_UP.multiply(number, Decimal(_MS_NS))))
        if now_epoch_ns + delay <= _YEAR_9999_ENDS_NS:
            return delay
    huge = isinstance(value, int) and value.bit_length() > _SHOWN_BITS_MAX
    shown = f"a number of {value.bit_length():,} bits" if huge else value
    raise InvalidParameterError(
        "delay_ms", shown, "a number of milliseconds that ends before the year 10000"
    )


def _number(value: Any) -> Decimal:
    """The number that this is or spells; else NaN."""
    if isinstance(value, bool) or not isinstance(value, str | numbers.Number):
        return Decimal("NaN")
    if isinstance(value, int):
        return Decimal(min(max(value, -1), _MS_MAX + 1))  # a huge one is as good as too large
    try:
        if isinstance(value, str):
            return Decimal(value.strip())
        # A float means the number that it is written as: 0.1 is a tenth, and not a hair more.
        return value if isinstance(value, Decimal) else Decimal(repr(float(value)))  # type: ignore[arg-type]
    except (decimal.InvalidOperation, TypeError, ValueError):  # words; a complex number
        return Decimal("NaN")
    except OverflowError:  # a fraction beyond all floats
        return Decimal("Infinity") if value > 0 else Decimal(0)  # type: ignore[operator]
