"""An exception at any point at which a signal handler may raise one, chosen by its number.

CPython lets a handler run when a function begins, after a call, and when a loop starts its next
round, and nowhere else. A tracer raises there what the handler would.
"""

from __future__ import annotations

import dis
import gc
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from threading import get_ident
from types import CodeType, FrameType
from typing import Any

from pillarbox.mailbox.runner import run_sync

_CALLS = re.compile("CALL(?!_INTRINSIC)|RESUME")  # intrinsics, since 3.12, are no calls
LAST: list[object] = []  # where the last one was raised, for those who look for a fault


class Interrupt(BaseException):
    """What the handler of a signal raises, as Ctrl-C does."""


@cache
def _points(code: CodeType) -> frozenset[int]:
    """The offsets of instructions before which a handler may have run.

    What comes after the last call of a `try` is left out: the exception would belong to the call,
    and a tracer can only raise it outside.
    """
    entries = dis._parse_exception_table(code)  # type: ignore[attr-defined]

    def handler(offset: int) -> int | None:
        return next((each.target for each in entries if each.start <= offset < each.end), None)

    found = set()
    previous = None
    for instruction in dis.get_instructions(code):
        after = previous is not None and _CALLS.match(previous.opname)
        if after and handler(previous.offset) == handler(instruction.offset):
            found.add(instruction.offset)
        if "JUMP_BACKWARD" in instruction.opname:
            found.add(instruction.argval)
        previous = instruction
    return frozenset(found)


def interrupted(
    work: Callable[[], object], at: int, where: str | tuple[str, ...] = "pillarbox."
) -> bool:
    """Do the work and raise `Interrupt` at this point of it; False if it has fewer points."""
    left = at

    def count(frame: FrameType, offset: int) -> None:
        nonlocal left
        left -= offset in _points(frame.f_code)
        if left < 0:
            left = sys.maxsize  # once is enough
            LAST[:] = [frame.f_code.co_qualname, frame.f_lineno]
            raise Interrupt

    gc.disable()  # or it would interrupt the finalizers of another test
    try:
        with _instructions(where, count):
            work()
    except Interrupt:
        return True
    finally:
        gc.enable()
    return False


def handled(
    work: Callable[[], object],
    at: int,
    handler: Callable[[], object],
    where: str | tuple[str, ...] = "pillarbox.",
) -> bool:
    """Do the work and call a signal handler at this point of it; False if it has fewer points."""
    left = at

    def count(frame: FrameType, offset: int) -> None:
        nonlocal left
        left -= offset in _points(frame.f_code)
        if left < 0:
            left = sys.maxsize
            LAST[:] = [frame.f_code.co_qualname, frame.f_lineno]
            handler()

    with _instructions(where, count):
        work()
    return left > at


def _is_in(frame: FrameType, where: str | tuple[str, ...]) -> bool:
    return str(frame.f_globals.get("__name__")).startswith(where)


if sys.version_info >= (3, 12):  # whose tracers miss instructions

    @contextmanager
    def _instructions(
        where: str | tuple[str, ...], tell: Callable[[FrameType, int], None]
    ) -> Iterator[None]:
        """Tell of every instruction that is about to run in these modules, in this thread."""
        events, tool, thread = sys.monitoring, sys.monitoring.DEBUGGER_ID, get_ident()

        def instruction(code: CodeType, offset: int) -> object:
            frame = sys._getframe(1)
            if offset not in _points(code) or not _is_in(frame, where):
                return events.DISABLE
            if get_ident() == thread:
                tell(frame, offset)
            return None

        events.use_tool_id(tool, "interrupts")
        events.register_callback(tool, events.events.INSTRUCTION, instruction)
        events.set_events(tool, events.events.INSTRUCTION)
        events.restart_events()
        try:
            yield
        finally:
            events.set_events(tool, 0)
            events.free_tool_id(tool)

else:

    @contextmanager
    def _instructions(
        where: str | tuple[str, ...], tell: Callable[[FrameType, int], None]
    ) -> Iterator[None]:
        """Tell of every instruction that is about to run in these modules, in this thread."""

        def trace(frame: FrameType, event: str, _: Any) -> Any:
            if not _is_in(frame, where):
                return None
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
            if event == "opcode":
                tell(frame, frame.f_lasti)
            return trace

        before = sys.gettrace()
        sys.settrace(trace)
        try:
            yield
        finally:
            sys.settrace(before)


def held_after_late_undo(box: Any, other: Any) -> Any:
    """A message that `other` holds after a claim of `box`, whose lease has ended, was undone."""
    box.send("a")
    undone = []

    def do(call: Any) -> Any:
        answer = box._connection.do(call)
        if call.undo is not None:
            undone.append(call.undo(answer))
        return answer

    assert len(run_sync(do, box._verbs.receive(box, visibility_timeout=0))) == 1
    (held,) = other.receive()
    for undo in undone:
        run_sync(box._connection.do, undo)
    return held
