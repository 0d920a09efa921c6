"""One step of a processor: the exactly-once algorithm, and the two weaker strategies.

A step is one batch of Spark's. Its inputs are fixed before it runs (Spark's offset file, our
recovery map), so running it again reads the same records and has the same hash. `windows` is
called between the acts of a step: tests interrupt it there.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from pillarbox.pipeline.graph import Strategy
from pillarbox.pipeline.maps import Attempt, Range, Recovery
from pillarbox.pipeline.recovery import Maps

#: Told the name of each act of a step that is done: `begun`, `recovery`, `attempt`, `output`.
Window = Callable[[str], None]


class InterruptedStepError(Exception):
    """Raised by a window, to end a run there as a crash would: it is not started again."""


@dataclass(frozen=True, slots=True)
class Step:
    """One set of inputs. The same records handed over again have the same hash."""

    processor: str
    number: int
    hash: str
    inputs: Mapping[str, Range] = field(default_factory=dict)
    #: How often the processor was reset; its steps count from 0 again each time.
    generation: int = 0


@dataclass(frozen=True, slots=True)
class Acts:
    """What a step is made of; each strategy puts them together in its own way."""

    backing: Maps
    #: The index that the next record of each output will have, or more.
    next_indices: Callable[[], dict[str, int]]
    #: Writes the outputs; told whether to leave out those that hold the step's hash.
    write: Callable[[bool], None]
    window: Window = lambda _: None

    def run(self, step: Step, strategy: Strategy) -> None:
        self.window("begun")
        if strategy == "exactly-once":
            self._exactly_once(step)
        elif strategy == "at-least-once":
            self.write(False)
        else:
            self._at_most_once(step)
        self.window("output")

    def _exactly_once(self, step: Step) -> None:
        self._recover(step)
        self.backing.write(
            Attempt(
                processor=step.processor,
                step=step.number,
                hash=step.hash,
                outputs=self.next_indices(),
                time=_now(),
            )
        )
        self.window("attempt")
        self.write(True)

    def _at_most_once(self, step: Step) -> None:
        """Said to be read before it is written: a crash in between loses the step."""
        known = self.backing.last(step.processor).recovery
        if known is None or known.step < step.number:
            self._recover(step)
            self.write(False)

    def _recover(self, step: Step) -> None:
        self.backing.write(
            Recovery(
                processor=step.processor,
                step=step.number,
                inputs=dict(step.inputs),
                time=_now(),
            )
        )
        self.window("recovery")

    def deliver(self, step: Step, function: Callable[[Step], object]) -> None:
        """The step of a sink: at least once, with the hash to tell a repetition by."""
        self.window("begun")
        self._recover(step)
        function(step)
        self.window("output")


def ranges(
    offsets: Sequence[tuple[str | None, str | None]], names: Sequence[str | None]
) -> dict[str, Range]:
    """Spark's offsets of a batch by the names of the inputs; a source of no name is left out."""
    found: dict[str, Range] = {}
    for (start, end), name in zip(offsets, names, strict=True):
        if name is not None and end is not None:
            found[name] = (None if start is None else _index(start), _index(end))
    return found


def _index(offset: str) -> int:
    return int(json.loads(offset)["index"])


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)
