"""P1 to P5 and the table of errors (R94, R95): 150 plans each, in memory and across restarts.

For each there is a bus that breaks it, which the very same property must find out.
"""

from __future__ import annotations

from typing import Any

import pytest

from pillarbox import InvalidParameterError
from pillarbox.bus import Envelope, MessageBus, SendResult, UnknownRecipientError
from tests.bus.properties import PROPERTIES, check
from tests.bus.worlds import DurableWorld, World

IN_MEMORY = [name for name in PROPERTIES if name != "P1, P2 and P5"]
FOUND_OUT = (AssertionError, pytest.fail.Exception, TypeError, ValueError, ExceptionGroup)
SEARCHED = 500  # a broken bus is found after 60 plans at most, as a rule
ON_DISK = ["P1, P2 and P5", "P3 zero is none", "P4 negative is zero", "R93 cancel and reschedule"]


@pytest.mark.parametrize("name", IN_MEMORY)
def test_R94_R95_holds_in_memory(name: str) -> None:
    check(name, World)


@pytest.mark.parametrize("name", ON_DISK)
def test_R94_R95_holds_on_disk_across_restarts(name: str) -> None:
    check(name, DurableWorld)


@pytest.mark.soak
@pytest.mark.parametrize("name", IN_MEMORY)
def test_R94_R95_holds_in_memory_for_long(name: str) -> None:
    check(name, World, examples=1_000)


@pytest.mark.soak
@pytest.mark.parametrize("name", ON_DISK)
def test_R94_R95_holds_on_disk_for_long(name: str) -> None:
    check(name, DurableWorld, examples=1_000)


class Early(MessageBus):
    """P1: a delay is cut short by a hair."""

    def send(self, *, delay_ms: Any = 0, **rest: Any) -> SendResult:
        return super().send(delay_ms=delay_ms - 0.000001 if delay_ms else 0, **rest)


class Late(MessageBus):
    """P2: it takes a little longer."""

    def send(self, *, delay_ms: Any = 0, **rest: Any) -> SendResult:
        return super().send(delay_ms=delay_ms + 0.000001 if delay_ms else 0, **rest)


class Forgetful(MessageBus):
    """P2: what is delayed for long is forgotten."""

    def send(self, *, delay_ms: Any = 0, **rest: Any) -> SendResult:
        result = super().send(delay_ms=delay_ms, **rest)
        if delay_ms > 1_000:
            self.cancel(result.message_id)
        return result


class Hesitant(MessageBus):
    """P3: even no delay is one."""

    def send(self, *, delay_ms: Any = None, **rest: Any) -> SendResult:
        return super().send(delay_ms=1 if delay_ms is not None else 0, **rest)


class Absolute(MessageBus):
    """P4: a negative delay is taken without its sign."""

    def send(self, *, delay_ms: Any = 0, **rest: Any) -> SendResult:
        return super().send(delay_ms=str(delay_ms).lstrip("-"), **rest)


class Stack(MessageBus):
    """P5: last in, first out."""

    def drain(self, recipient: str | None = None) -> list[Envelope]:
        return super().drain(recipient)[::-1]


class Stubborn(MessageBus):
    """R93: says that it did, and does not."""

    def cancel(self, message_id: str) -> bool:
        return self._scheduled(message_id) is not None

    def reschedule(self, message_id: str, delay_ms: Any) -> SendResult | None:
        return SendResult(message_id) if self._scheduled(message_id) else None


class Pedantic(MessageBus):
    """R95: what is no number is an error."""

    def send(self, *, delay_ms: Any = 0, **rest: Any) -> SendResult:
        return super().send(delay_ms=float(delay_ms), **rest)


class Illiterate(MessageBus):
    """R95: can't read numbers that are written out."""

    def send(self, *, delay_ms: Any = 0, **rest: Any) -> SendResult:
        return super().send(delay_ms=None if isinstance(delay_ms, str) else delay_ms, **rest)


class Patient(MessageBus):
    """R95: takes for ever as no delay."""

    def send(self, **what: Any) -> SendResult:
        try:
            return super().send(**what)
        except InvalidParameterError:
            return super().send(**what | {"delay_ms": 0})


class Welcoming(MessageBus):
    """R95: whoever is written to is registered."""

    def send(self, **what: Any) -> SendResult:
        try:
            return super().send(**what)
        except UnknownRecipientError:
            return super().send(**what | {"to": "ada"})


@pytest.mark.parametrize(
    ("name", "broken"),
    [
        ("P1 never early", Early),
        ("P2 eventually", Late),
        ("P2 eventually", Forgetful),
        ("P3 zero is none", Hesitant),
        ("P4 negative is zero", Absolute),
        ("P5 equal times keep the order", Stack),
        ("R93 cancel and reschedule", Stubborn),
        ("R95 no number is none", Pedantic),
        ("R95 numeric text is read", Illiterate),
        ("R95 what never ends is refused", Patient),
        ("R95 unknown recipient", Welcoming),
    ],
)
def test_R94_R95_control_a_broken_bus_is_found_out(name: str, broken: type[MessageBus]) -> None:
    with pytest.raises(FOUND_OUT):
        check(name, lambda: World(broken), examples=SEARCHED, shrink=False)


@pytest.mark.parametrize("name", ["P1 never early", "P2 eventually", "P1, P2 and P5"])
def test_R94_control_a_schedule_that_does_not_survive_is_found_out(name: str) -> None:
    class Amnesiac(DurableWorld):
        def restart(self, how: str) -> None:
            self.bus.force_deliver_all_delayed()
            super().restart(how)

    with pytest.raises(FOUND_OUT):
        check(name, Amnesiac, examples=SEARCHED, shrink=False)
