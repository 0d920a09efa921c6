"""Controls: the model test can fail. Each breaks one rule of the core, and must be noticed."""

from __future__ import annotations
import __future__

import inspect
import textwrap
from collections.abc import Callable
from types import CodeType
from typing import Any

import pytest

from pillarbox.core import apply, decide, lane, leases, lines, queue, timers
from pillarbox.mailbox.store import Store
from tests.model.driver import run

STEPS_MAX = 6_000

# name: the function, what it says, what it shall say instead
BROKEN_RULES: dict[str, tuple[Callable[..., Any], str, str]] = {
    "R15 a lease lives on at its deadline": (decide.live, "deadline > now", "deadline >= now"),
    "R15 a lease named twice counts twice": (decide.live, "lease not in seen", "lease not in ()"),
    "R16 redelivery goes to the front": (
        lines.give_back,
        "append_to_lane(queue, record)",
        "prepend_to_lane(queue, record)",
    ),
    "R16 redelivery never keeps its place": (
        lines.give_back,
        'redelivery == "original"',
        'redelivery == ""',
    ),
    "R16 a returned message overtakes": (
        queue._merge,
        "place(older) < _place(newer)",
        "place(older) != _place(newer)",
    ),
    "R17 every message has priority 0": (
        lines.join,
        "append_to_lane(queue, record)",
        "record.priority = 0; append_to_lane(queue, record)",
    ),
    "R17 the lowest priority is first": (
        queue.in_order,
        "mask.bit_length() - 1",
        "(mask & -mask).bit_length() - 1",
    ),
    "R18 a release counts as a delivery": (
        apply.released,
        "queue.leases.end((event.lease,))",
        "queue.leases.end((event.lease,)); record.deliveries = event.lease.number",
    ),
    "R39 one delivery too many": (decide._fail, "<= here", "< here"),
    "R39 one delivery too many, as SQS": (decide.receive_or_bury, ">= most", "> most"),
    "R39 a death without history": (apply.died, "note(", "str("),
    "R39 a redriven message stays dead": (apply.like_new, "death=None, ", ""),
    "R50 a purge leaves leases alive": (leases.Leases.clear, "lease.deadline = 0", "pass"),
    "R50 a full queue takes one more": (
        decide.send,
        "len(fresh) > capacity",
        "len(fresh) > capacity + 1",
    ),
    "R50 deciding changes the queue": (
        decide.tick,
        "timed.sort(",
        "queue.wake_at += 1; timed.sort(",
    ),
    "R53 expiry just after the deadline": (
        leases.Leases.expired,
        "lease.deadline <= now",
        "lease.deadline < now",
    ),
    "R53 a delay ends just after its time": (timers.Timers.due, "<= now", "< now"),
    "R53 unusual leases never expire": (
        leases.Leases.expired,
        "for _, key, _ in self._timers.due(now, most)",
        "for key in ()",
    ),
    "R53 a delay does not wake the queue": (
        apply.scheduled,
        "queue.wake_at = min(queue.wake_at, due)",
        "pass",
    ),
    "R53 an extension does not wake the queue": (
        apply.extended,
        "queue.wake_at = min(queue.wake_at, deadline)",
        "pass",
    ),
    "R51 the first that are due are not the earliest": (
        timers.Timers.due,
        "self.soonest()), most)",
        "reversed(list(self.soonest()))), most)",
    ),
    "R51 a message that was given back is not found": (
        lines._reposition,
        "queue.out_of_order[record.key] = record",
        "pass",
    ),
    "R53 what is due happens in no order": (decide.tick, "timed.sort", "id"),
    "R93 a new time does not wake the queue": (
        apply.rescheduled,
        "queue.wake_at = min(queue.wake_at, due)",
        "pass",
    ),
    "R93 a message keeps its old time": (apply.rescheduled, "add(due,", "add(due + 1,"),
    "R93 forcing keeps no order": (
        decide.force,
        "[e.CameDue(record, now) for _, _, record in queue.schedule]",
        "[e.CameDue(x[2], now) for x in reversed(list(queue.schedule))]",
    ),
    "R59 a paused queue delivers": (decide.receive, "queue.settings.paused", "False"),
    "R59 a paused queue has deaths on receive": (decide.deliver, "and not settings.paused", ""),
    "R59 those who wait are not served on resume": (
        Store.pause,
        "session.serve(self.clock.now())",
        "pass",
    ),
    "R55 a group is not held": (lines.can_deliver, "group.held == 0 or", "group.held >= 0 or"),
    "R150 what follows a held message is delivered": (
        lines.can_deliver,
        "place(group.waiting.head[0]) < place(hidden.head[0])",
        "group.waiting.head[0].deliveries > 0",
    ),
    "R55 a group is not held by a delay": (
        apply.returned,
        "queue.schedule.add(event.due, lease.record)",
        "queue.schedule.add(event.due, lease.record); lines.unhold(queue, lease.record)",
    ),
    "R55 a group that is free again goes first": (
        lines.enter_lane,
        "lane.append(group)",
        "lane.appendleft(group)",
    ),
    "R55 a group loses its order": (
        lane.Lane.insert,
        "part.insert(at, item)",
        "part.append(item)",
    ),
    "R55 duplicates are known for ever": (decide.original, "known[1] <= now", "known[1] <= 0"),
    "R55 duplicates are known one instant longer": (
        decide.original,
        "known[1] <= now",
        "known[1] < now",
    ),
    "R55 duplicates are never known": (apply.remember, "known[name] =", "_ ="),
    "R55 the scope of a duplicate is the queue": (
        decide.duplicate_id,
        "queue.settings.deduplicate_by_group",
        "None",
    ),
}


@pytest.mark.parametrize("rule", BROKEN_RULES)
def test_R50_control_a_broken_rule_is_noticed(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    function, right, wrong = BROKEN_RULES[rule]
    monkeypatch.setattr(function, "__code__", code_with(function, right, wrong))

    with pytest.raises(AssertionError, match="replay with run_world"):
        run(seed=3, steps=STEPS_MAX)


def test_R50_control_nothing_is_noticed_when_no_rule_is_broken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    codes = [(function, code_with(function, x, x)) for function, x, _ in BROKEN_RULES.values()]
    for function, code in codes:
        monkeypatch.setattr(function, "__code__", code)

    steps, _ = run(seed=3, steps=STEPS_MAX)

    assert steps == STEPS_MAX


def code_with(function: Callable[..., Any], right: str, wrong: str) -> CodeType:
    """The code of this function with one rule changed."""
    source = textwrap.dedent(inspect.getsource(function))
    assert right in source, f"{function.__name__} no longer says {right!r}"
    flags = __future__.annotations.compiler_flag
    code = compile(source.replace(right, wrong), "<broken>", "exec", flags, dont_inherit=True)
    scope: dict[str, Any] = {}
    exec(code, function.__globals__, scope)
    return scope[function.__name__].__code__
