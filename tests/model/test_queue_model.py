"""The state machine against the naive model (R50, R53, R54 and section A): no difference.

CI runs 200,000 steps of the same rules in two ways. Hypothesis drives 40,000 of them, because
it shrinks a failure to the few steps that matter; its own bookkeeping costs twice what a step
does, so a seeded random driver runs the other 160,000 (and 5 million in the soak test).
Both count what they really ran, and the tests assert it. A failure prints its seed and story.
The two long runs are not traced for coverage (that would triple their time): what they cover,
the short run and the unit tests cover too.
"""

from __future__ import annotations

import os
import random
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from tests.model.driver import run
from tests.model.world import (
    DEAD,
    DEDUPLICATIONS,
    DELAYS,
    GROUPS,
    JUMPS,
    MAIN,
    OTHER,
    PRIORITIES,
    TIMEOUTS,
    VERBS,
    MessageSpec,
    World,
)

HYPOTHESIS_STEPS = 40_000
SEEDED_STEPS = 160_000
SOAK_STEPS = 5_000_000

# Every call, event and error must have been part of the run, once in 1,000 steps at least.
CALLS = (
    "send receive acknowledge nack release extend reject remove reschedule change_visibility force "
    "redrive purge pause resume tick"
)
WAITING = "park leave beat served"
EVENTS = (
    "Sent Scheduled CameDue Leased Acknowledged Returned Released Extended Died DiedInLine "
    "Rescheduled Hidden Redriven Removed Purged"
)
ERRORS = "MailboxFullError InvalidParameterError"

queues = st.sampled_from((MAIN, MAIN, MAIN, MAIN, OTHER, DEAD))
jumps = st.sampled_from(JUMPS)
batches = st.lists(
    st.tuples(
        st.sampled_from(PRIORITIES) | st.integers(0, 255),
        st.sampled_from(GROUPS),
        st.sampled_from(DEDUPLICATIONS),
    ),
    min_size=1,
    max_size=4,
)
picks = st.lists(st.integers(-12, -1), min_size=1, max_size=4)
keys = st.lists(st.integers(-1, 20), min_size=1, max_size=4)


class QueueMachine(RuleBasedStateMachine):
    """One world; each rule is a jump of the clock and one call."""

    steps: ClassVar[int] = 0
    world: World

    @initialize(seed=st.integers(0, 2**32))
    def start(self, seed: int) -> None:
        self.world = World(seed)

    @rule(jump=jumps, at=queues, specs=batches, delay=st.sampled_from(DELAYS))
    def send(self, jump: int, at: int, specs: list[MessageSpec], delay: int) -> None:
        self.world.jump(jump)
        self.world.send(at, specs, delay)

    @rule(
        jump=jumps,
        at=queues,
        count=st.sampled_from((1, 1, 2, 3, 10)),
        timeout=st.sampled_from(TIMEOUTS),
    )
    def receive(self, jump: int, at: int, count: int, timeout: int) -> None:
        self.world.jump(jump)
        self.world.receive(at, count, timeout)

    @rule(
        jump=jumps,
        at=queues,
        verb=st.sampled_from(VERBS),
        picks=picks,
        option=st.integers(0, 35),
    )
    def end(self, *, jump: int, at: int, verb: str, picks: list[int], option: int) -> None:
        self.world.jump(jump)
        self.world.end(at, verb, picks, option)

    @rule(jump=jumps, at=queues, keys=keys)
    def remove(self, jump: int, at: int, keys: list[int]) -> None:
        self.world.jump(jump)
        self.world.remove(at, keys)

    @rule(
        jump=jumps,
        at=queues,
        key=st.integers(-1, 20),
        delay=st.sampled_from(DELAYS),
    )
    def reschedule(self, jump: int, at: int, key: int, delay: int) -> None:
        self.world.jump(jump)
        self.world.reschedule(at, key, delay)

    @rule(
        jump=jumps,
        at=queues,
        key=st.integers(-1, 20),
        timeout=st.sampled_from(TIMEOUTS),
    )
    def change_visibility(self, jump: int, at: int, key: int, timeout: int) -> None:
        self.world.jump(jump)
        self.world.change_visibility(at, key, timeout)

    @rule(jump=jumps, at=queues)
    def force(self, jump: int, at: int) -> None:
        self.world.jump(jump)
        self.world.force(at)

    @rule(
        jump=jumps,
        way=st.sampled_from(((DEAD, MAIN), (DEAD, OTHER), (MAIN, OTHER), (MAIN, MAIN))),
        keys=keys,
    )
    def redrive(self, jump: int, way: tuple[int, int], keys: list[int]) -> None:
        self.world.jump(jump)
        self.world.redrive(*way, keys)

    @rule(at=queues, really=st.integers(0, 9))
    def purge(self, at: int, really: int) -> None:
        if really == 7:  # not often, or no queue would ever grow
            self.world.purge(at)
        else:
            self.world.tick(at)

    @rule(jump=jumps, at=queues)
    def tick(self, jump: int, at: int) -> None:
        self.world.jump(jump)
        self.world.tick(at)

    @rule(jump=jumps, at=queues, count=st.integers(1, 3), timeout=st.sampled_from(TIMEOUTS[1:]))
    def park(self, jump: int, at: int, count: int, timeout: int) -> None:
        self.world.jump(jump)
        if self.world.waits:
            self.world.park(at, count, timeout, gone=False)

    @rule(jump=jumps, at=queues, paused=st.sampled_from((True, False, False, False)))
    def pause(self, jump: int, at: int, paused: bool) -> None:
        self.world.jump(jump)
        self.world.pause(at, paused=paused)

    @rule(jump=jumps)
    def beat(self, jump: int) -> None:
        self.world.jump(jump)
        self.world.beat()

    def teardown(self) -> None:
        if hasattr(self, "world"):
            type(self).steps += self.world.steps


@contextmanager
def untraced() -> Iterator[None]:
    """No line is traced in here."""
    tracer = sys.gettrace()
    sys.settrace(None)
    try:
        yield
    finally:
        sys.settrace(tracer)


@pytest.mark.timeout(900)
def test_R50_hypothesis_finds_no_difference_from_the_naive_model() -> None:
    class Machine(QueueMachine):
        steps: ClassVar[int] = 0

    # Not every example runs to its end, so how many it takes differs from run to run.
    with untraced():
        while (missing := HYPOTHESIS_STEPS - Machine.steps) > 0:
            run_state_machine_as_test(
                Machine,
                settings=settings(
                    max_examples=missing // 100 + 1,
                    stateful_step_count=101,  # the first of them makes the world
                    deadline=None,
                    suppress_health_check=list(HealthCheck),
                ),
            )


@pytest.mark.timeout(900)
def test_R50_R53_R54_the_seeded_driver_finds_no_difference_from_the_naive_model() -> None:
    with untraced():
        steps, seen = run(seed=int(os.environ.get("MODEL_SEED", "1")), steps=SEEDED_STEPS)

    assert steps >= SEEDED_STEPS
    _assert_everything_was_seen(seen, steps)


def test_R50_a_short_run_finds_no_difference_from_the_naive_model() -> None:
    """What the mutation run uses: some seconds of the same driver."""
    steps, _ = run(seed=2, steps=1_500)

    assert steps >= 1_500


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_R50_soak_five_million_steps_with_a_new_seed_find_no_difference() -> None:
    seed = int(os.environ.get("MODEL_SEED", "0")) or random.SystemRandom().randrange(1, 2**31)
    print(f"MODEL_SEED={seed}")

    steps, seen = run(seed=seed, steps=SOAK_STEPS)

    assert steps >= SOAK_STEPS
    _assert_everything_was_seen(seen, steps)


def _assert_everything_was_seen(seen: Counter[str], steps: int) -> None:
    everything = f"{CALLS} {WAITING} {EVENTS} {ERRORS}".split()
    too_rare = {what: seen[what] for what in everything if seen[what] < steps / 1_000}
    assert not too_rare
