"""P1 to P6 and the table of errors, each as a plan to draw and a property that must hold of it.

A property is asked of any world, so that the same one can be asked of a broken bus.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from pillarbox import InvalidParameterError
from pillarbox.bus import UnknownRecipientError
from pillarbox.bus.envelope import iso
from tests.bus.worlds import NAMES, Make, World, due_after

EXAMPLES = 150  # the contract asks for 100; `make soak` asks 1,000

names = st.sampled_from(NAMES)
# Few values, so that times collide; and some of every size.
few = st.sampled_from((0, 1, 2, 3, 5, 10, 10, 250, 1_000))
any_delay = few | st.integers(1, 10**12) | st.floats(1e-7, 1e9)
delays = st.sampled_from((1, 2, 3, 5, 10, 250)) | any_delay.filter(bool)
restarts = st.sampled_from(("close", "kill", "power"))
steps = st.one_of(
    st.tuples(st.just("send"), names, any_delay),
    st.tuples(st.just("send"), names, few),
    st.tuples(st.just("pass"), few | st.floats(0, 100)),
    st.tuples(st.just("look")),
    st.tuples(st.just("restart"), restarts),
)
changes = st.one_of(
    steps,
    st.tuples(st.just("cancel"), st.integers(0, 9)),
    st.tuples(st.just("reschedule"), st.integers(0, 9), few | any_delay),
)
plans = st.tuples(st.lists(steps, min_size=1, max_size=10), restarts)
changing_plans = st.tuples(st.lists(changes, min_size=2, max_size=10), restarts)


def play(world: World, plan: tuple[list[Any], str]) -> World:
    """Do what a plan says, then go through every deadline."""
    for verb, *options in plan[0]:
        if verb == "send":
            world.send(*options)
        elif verb == "pass":
            world.clock.advance(options[0] / 1_000)
        elif verb == "look":
            world.look()
        elif verb == "restart":
            world.restart(*options)
        else:
            change(world, verb, options)
    world.walk(plan[1])
    world.bus.close()
    return world


def change(world: World, verb: str, options: list[Any]) -> None:
    """Cancel or reschedule a message of the past, and foresee whether that can be."""
    if not world.sent:
        return
    message = list(world.sent.values())[options[0] % len(world.sent)]
    now, message_id = world.clock.now(), message.result.message_id
    delayed = message.due > now and not message.cancelled
    if verb == "cancel":
        assert world.bus.cancel(message_id) == delayed
        message.cancelled = message.cancelled or delayed
        return
    result = world.bus.reschedule(message_id, options[1])
    assert (result is not None) == delayed
    if result is not None:
        assert result.message_id == message_id
        message.due = due_after(now, options[1])


def p1_never_early(world: World) -> None:
    for seen in world.seen:
        assert seen.at >= world.sent[seen.envelope.payload].due, "it was received before its time"


def p2_eventually(world: World) -> None:
    assert sorted(world.seen_numbers()) == sorted(world.sent), "each of them, and each once"
    for seen in world.seen:
        message = world.sent[seen.envelope.payload]
        looks = world.looks[message.looks_before :]
        assert seen.at == next(at for at in looks if at >= message.due), "it came too late"
        scheduled = message.result.scheduled_delivery_time
        assert (scheduled is not None) == (message.due > message.sent_at)
        assert scheduled is None or scheduled == iso(message.due)


def p3_zero_is_none(make: Make, plan: list[tuple[str, Any]]) -> None:
    world, plain = make(), make()
    for to, zero in plan:
        result = world.bus.send(to=to, sender="me", payload=to, delay_ms=zero)
        without = plain.bus.send(to=to, sender="me", payload=to)
        assert result.scheduled_delivery_time is without.scheduled_delivery_time is None
    assert world.bus.delayed_count() == plain.bus.delayed_count() == 0
    assert world.bus.deliver_due_messages() == 0
    got, expected = world.bus.drain(), plain.bus.drain()
    assert [m.payload for m in got] == [m.payload for m in expected]
    assert len(got) == len(plan)
    world.bus.close()
    plain.bus.close()


def p5_equal_times_keep_the_order_of_sending(world: World) -> None:
    for name in NAMES:
        got = [world.sent[s.envelope.payload] for s in world.seen if s.envelope.to == name]
        assert got == sorted(got, key=lambda m: (m.due, m.number)), "out of order"


def r93_what_is_cancelled_never_comes_and_a_new_time_counts(world: World) -> None:
    alive = sorted(m.number for m in world.sent.values() if not m.cancelled)
    assert sorted(world.seen_numbers()) == alive
    for seen in world.seen:
        assert seen.at >= world.sent[seen.envelope.payload].due


def played(*properties: Callable[[World], None]) -> Callable[[Make, Any], None]:
    """Play a plan to its end, then look at what happened."""

    def hold(make: Make, plan: Any) -> None:
        world = play(make(), plan)
        for each in properties:
            each(world)

    return hold


# -- the table of errors -------------------------------------------------------------------

words = st.text(max_size=8).filter(lambda text: not _spells_number(text))
no_numbers = st.one_of(
    st.none(),
    st.booleans(),
    words,
    st.just(math.nan),
    st.just("NaN"),
    st.just(Decimal("NaN")),
    st.lists(st.integers(), max_size=2),
    st.dictionaries(st.text(max_size=2), st.integers(), max_size=2),
    st.binary(max_size=3),
    st.complex_numbers(),
)
negatives = st.one_of(
    st.integers(max_value=-1),
    st.floats(max_value=-1e-300),
    st.integers(max_value=-1).map(str),
    st.floats(max_value=-1e-300).map(repr),
    st.sampled_from((Decimal("-1e9"), Decimal("-Infinity"), Fraction(-1, 3))),
)
beyond = st.one_of(
    st.just(math.inf),
    st.sampled_from(("inf", "Infinity", " +infinity ", "1e999999999", "1e400")),
    st.integers(min_value=253_402_300_800_000),
    st.integers(min_value=253_402_300_800_000).map(str),
    st.floats(min_value=2.6e14),
    st.just(10**5_000),
)
numbers = st.integers(1, 10**12) | st.floats(1e-6, 1e12)


def _spells_number(text: str) -> bool:
    try:
        Decimal(text.strip())
    except ArithmeticError:
        return False
    return True


def r95_numeric_text_is_read(make: Make, plan: tuple[Any, str]) -> None:
    number, blank = plan
    world = make()
    text = blank + repr(number) + blank
    as_text = world.bus.send(to="ada", sender="me", payload="text", delay_ms=text)
    as_number = world.bus.send(to="ada", sender="me", payload="number", delay_ms=number)
    assert as_text.scheduled_delivery_time == as_number.scheduled_delivery_time
    assert world.bus.delayed_count("ada") == 2
    world.bus.close()


def r95_what_never_ends_is_refused_and_nothing_is_stored(make: Make, value: Any) -> None:
    world = make()
    kept = world.send("ada", 5)
    for attempt in (
        lambda: world.bus.send(to="ada", sender="me", payload="x", delay_ms=value),
        lambda: world.bus.reschedule(kept.result.message_id, value),
    ):
        with pytest.raises(InvalidParameterError, match="delay_ms must be a number"):
            attempt()
    assert world.bus.delayed_count() == 1
    assert world.bus.drain() == []
    world.walk()
    assert world.seen_numbers() == [kept.number]
    world.bus.close()


def r95_an_unknown_recipient_is_an_error_and_nothing_is_stored(make: Make, name: Any) -> None:
    world = make()
    verbs: list[Callable[[], object]] = [
        lambda: world.bus.send(to=name, sender="me", payload="x"),
        lambda: world.bus.send(to=name, sender="me", payload="x", delay_ms=5),
        lambda: world.bus.receive_next(name),
        lambda: world.bus.drain(name if name is not None else ""),
        lambda: world.bus.delayed_count(name if name is not None else ""),
    ]
    for verb in verbs:
        with pytest.raises(UnknownRecipientError, match="is not registered"):
            verb()
    assert world.bus.recipients == NAMES
    assert (world.bus.delayed_count(), world.bus.drain()) == (0, [])
    world.bus.close()


strangers = (st.text() | st.none() | st.integers() | st.lists(st.text())).filter(
    lambda name: name not in NAMES
)

ZERO = st.sampled_from((0, 0.0, -0.0, "0", " 0 ", "0.0", Decimal(0)))

# name: what to draw, what must hold
PROPERTIES: dict[str, tuple[st.SearchStrategy[Any], Callable[[Make, Any], None]]] = {
    "P1 never early": (plans, played(p1_never_early)),
    "P2 eventually": (plans, played(p2_eventually)),
    "P3 zero is none": (st.lists(st.tuples(names, ZERO), min_size=1, max_size=8), p3_zero_is_none),
    "P4 negative is zero": (
        st.lists(st.tuples(names, negatives), min_size=1, max_size=8),
        p3_zero_is_none,
    ),
    "P5 equal times keep the order": (plans, played(p5_equal_times_keep_the_order_of_sending)),
    "P1, P2 and P5": (
        plans,
        played(p1_never_early, p2_eventually, p5_equal_times_keep_the_order_of_sending),
    ),
    "R93 cancel and reschedule": (
        changing_plans,
        played(r93_what_is_cancelled_never_comes_and_a_new_time_counts),
    ),
    "R95 no number is none": (
        st.lists(st.tuples(names, no_numbers), min_size=1, max_size=8),
        p3_zero_is_none,
    ),
    "R95 numeric text is read": (
        st.tuples(numbers, st.sampled_from(("", " ", "\t"))),
        r95_numeric_text_is_read,
    ),
    "R95 what never ends is refused": (
        beyond,
        r95_what_never_ends_is_refused_and_nothing_is_stored,
    ),
    "R95 unknown recipient": (
        strangers,
        r95_an_unknown_recipient_is_an_error_and_nothing_is_stored,
    ),
}


def check(name: str, make: Make, *, examples: int = EXAMPLES, shrink: bool = True) -> None:
    """Test a property with this many plans, counted."""
    strategy, holds = PROPERTIES[name]
    asked = 0

    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        phases=[Phase.generate, Phase.shrink] if shrink else [Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def ask(plan: Any) -> None:
        nonlocal asked
        asked += 1
        holds(make, plan)

    ask()
    assert asked >= examples
