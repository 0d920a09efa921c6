"""Budgets and deadlines of requests.

A `Budget` and a `Deadline` are sent with a request. A `Meter` enforces them for one run; the
adapter reports its usage to the meter.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from pillarbox.core.errors import InvalidParameterError


class BudgetExceededError(Exception):
    """The request used more than its budget."""


class DeadlineExceededError(Exception):
    """The deadline of the request has passed."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens used, and their cost in your currency."""

    tokens: int = 0
    cost: float = 0.0

    def __post_init__(self) -> None:
        _check_amounts(tokens=self.tokens, cost=self.cost)


@dataclass(frozen=True, slots=True)
class Budget:
    """The limits of one request; None means no limit.

    Examples:
        >>> Budget(max_tokens=1_000, max_seconds=30)
        Budget(max_tokens=1000, max_cost=None, max_seconds=30)
    """

    max_tokens: int | None = None
    max_cost: float | None = None
    max_seconds: float | None = None

    def __post_init__(self) -> None:
        _check_amounts(
            max_tokens=self.max_tokens, max_cost=self.max_cost, max_seconds=self.max_seconds
        )


@dataclass(frozen=True, slots=True)
class Deadline:
    """The time after which the answer is no longer needed."""

    expires_at: datetime

    def __post_init__(self) -> None:
        if self.expires_at.tzinfo is None:
            raise InvalidParameterError(
                "expires_at", self.expires_at, "a datetime with a time zone, such as datetime.UTC"
            )

    @classmethod
    def after(cls, seconds: float, now: datetime | None = None) -> Deadline:
        """Return the deadline `seconds` from now."""
        return cls((now or datetime.now(UTC)) + timedelta(seconds=seconds))

    def seconds_left(self, now: datetime | None = None) -> float:
        """Return the seconds left; negative after the deadline."""
        return (self.expires_at - (now or datetime.now(UTC))).total_seconds()


class Meter:
    """Checks the usage of one run against its budget and its deadline. Thread-safe."""

    def __init__(
        self,
        budget: Budget | None = None,
        deadline: Deadline | None = None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        also: Callable[[], object] = lambda: None,
    ) -> None:
        self.budget = budget or Budget()
        self.deadline = deadline
        self._now = now
        self._also = also  # another check, which may raise
        self._started_at = now()
        self._usage = Usage()
        self._lock = threading.Lock()

    @property
    def usage(self) -> Usage:
        """The usage so far."""
        return self._usage

    @property
    def seconds_left(self) -> float:
        """Seconds until the deadline or the end of the budget; infinite without either."""
        now = self._now()
        left = math.inf if self.deadline is None else self.deadline.seconds_left(now)
        if self.budget.max_seconds is None:
            return left
        return min(left, self.budget.max_seconds - (now - self._started_at).total_seconds())

    def spend(self, *, tokens: int = 0, cost: float = 0.0) -> None:
        """Add to the usage; raise if a limit is exceeded."""
        added = Usage(tokens, cost)
        with self._lock:
            self._usage = Usage(self._usage.tokens + added.tokens, self._usage.cost + added.cost)
        self.check()

    def check(self) -> None:
        """Raise if the budget or the deadline is exceeded, or the lease is lost."""
        self._also()
        for what, used, most in (
            ("tokens", self._usage.tokens, self.budget.max_tokens),
            ("cost", self._usage.cost, self.budget.max_cost),
        ):
            if most is not None and used > most:
                raise BudgetExceededError(f"{what} used: {used:g}, allowed: {most:g}")
        if self.seconds_left > 0:
            return
        if self.deadline is not None and self.deadline.seconds_left(self._now()) <= 0:
            raise DeadlineExceededError(f"the deadline was {self.deadline.expires_at.isoformat()}")
        raise BudgetExceededError(f"seconds used: all {self.budget.max_seconds:g}")


def _check_amounts(**amounts: float | None) -> None:
    for name, amount in amounts.items():
        if amount is not None and not 0 <= amount < math.inf:
            raise InvalidParameterError(name, amount, "a number of at least 0, or None")
