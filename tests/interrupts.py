"""An exception at any point at which a signal handler may raise one, chosen by its number.

CPython lets a handler run when a function begins, after a call, and when a loop starts its next
round, and nowhere else. A tracer raises there what the handler would.
"""

from __future__ import annotations

import dis
import gc
import sys
from collections.abc import Callable
from functools import cache
from types import CodeType, FrameType
from typing import Any

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
        after = previous is not None and previous.opname.startswith(("CALL", "RESUME"))
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

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal left
        if not frame.f_globals.get("__name__", "").startswith(where):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if event == "opcode" and frame.f_lasti in _points(frame.f_code):
            left -= 1
            if left < 0:
                sys.settrace(None)
                LAST[:] = [frame.f_code.co_qualname, frame.f_lineno]
                raise Interrupt
        return trace

    before = sys.gettrace()
    gc.disable()  # or it would interrupt the finalizers of another test
    sys.settrace(trace)
    try:
        work()
    except Interrupt:
        return True
    finally:
        sys.settrace(before)
        gc.enable()
    return False
