"""The graph of a pipeline: logs, and the processors between them. Pure data, no Spark.

A log is named once and used by its name. A processor reads its inputs and writes its outputs;
a source has no inputs, a sink no outputs. Nothing here touches the disk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from graphlib import CycleError, TopologicalSorter
from typing import Any, Literal

from pillarbox.pipeline.errors import PipelineError

Kind = Literal["source", "stream", "sink"]
Strategy = Literal["exactly-once", "at-least-once", "at-most-once"]
STRATEGIES: tuple[Strategy, ...] = ("exactly-once", "at-least-once", "at-most-once")
#: Which rows of an aggregation a step hands on: finished ones, or changed ones.
OutputMode = Literal["append", "update"]
OUTPUT_MODES: tuple[OutputMode, ...] = ("append", "update")
#: Every stream and sink has one output more: the log of what failed in it. `errors-ID` names
#: that log where somebody wants to read it in the pipeline itself.
ERRORS = "errors"
ERRORS_OF = "errors-"


@dataclass(frozen=True, slots=True)
class LogRef:
    """A log of a pipeline, or the history of a mailbox: its name, URL and body type."""

    name: str
    url: str
    body_type: Any = Any
    condition: str | None = None

    def where(self, condition: str) -> LogRef:
        """The same log, limited to the rows that match an SQL condition.

        Examples:
            >>> orders = LogRef("orders", "file:./data/orders")
            >>> orders.where("amount > 100").condition
            'amount > 100'
        """
        both = f"({self.condition}) AND ({condition})" if self.condition else condition
        return replace(self, condition=both)


@dataclass(frozen=True, slots=True)
class Processor:
    """One step of a pipeline, and how it is to be run."""

    id: str
    kind: Kind
    function: Callable[..., Any]
    inputs: tuple[LogRef | str, ...] = ()
    outputs: tuple[LogRef | str, ...] = ()
    strategy: Strategy = "exactly-once"
    mode: OutputMode = "append"
    each: bool = False

    @property
    def input_names(self) -> tuple[str, ...]:
        """The names of the logs that it reads."""
        return names_of(self.inputs)

    @property
    def output_names(self) -> tuple[str, ...]:
        """The names of the logs that it writes."""
        return names_of(self.outputs)


@dataclass(slots=True)
class Graph:
    """What was declared, in the order of declaration; `checks.problems` says what is wrong."""

    logs: list[LogRef] = field(default_factory=list)
    processors: list[Processor] = field(default_factory=list)

    def log(self, name: str) -> LogRef:
        """The log with this name."""
        for log in self.logs:
            if log.name == name:
                return log
        known = ", ".join(each.name for each in self.logs)
        raise PipelineError(f"there is no log {name!r} in the pipeline; it has {known}")

    def processor(self, processor_id: str) -> Processor:
        """The processor with this id."""
        for each in self.processors:
            if each.id == processor_id:
                return each
        known = ", ".join(each.id for each in self.processors)
        raise PipelineError(
            f"there is no processor {processor_id!r} in the pipeline; it has {known}"
        )

    def writers(self, name: str) -> list[Processor]:
        """Who writes a log."""
        return [each for each in self.processors if name in self.written_by(each)]

    def written_by(self, processor: Processor) -> list[str]:
        """The outputs of a processor, and its error log if that was given a name."""
        errors = f"{ERRORS_OF}{processor.id}"
        named = [errors] if any(log.name == errors for log in self.logs) else []
        return [*processor.output_names, *named]

    def readers(self, name: str) -> list[Processor]:
        """Who reads a log."""
        return [each for each in self.processors if name in each.input_names]

    def edges(self) -> Iterator[tuple[str, str]]:
        """From log to processor and from processor to log, as (`log:a`, `processor:b`)."""
        for each in self.processors:
            for name in each.input_names:
                yield f"log:{name}", f"processor:{each.id}"
            for name in self.written_by(each):
                yield f"processor:{each.id}", f"log:{name}"

    def in_order(self) -> list[Processor]:
        """Upstream before downstream; of equals, as declared. The graph must have no cycle."""
        rank = self.ranks()
        return sorted(self.processors, key=lambda each: rank[f"processor:{each.id}"])

    def ranks(self) -> dict[str, int]:
        """How many edges lie before each node on the longest way to it; nodes in a cycle are
        left out, and so is all that follows from them."""
        before, rank = self._before(), dict[str, int]()
        while ready := [n for n in before if n not in rank and rank.keys() >= set(before[n])]:
            for node in ready:
                rank[node] = 1 + max((rank[each] for each in before[node]), default=-1)
        return rank

    def cycle(self) -> list[str]:
        """The nodes of one cycle, the first repeated at the end; empty if there is none."""
        try:
            TopologicalSorter(self._before()).prepare()
        except CycleError as error:
            return list(error.args[1])
        return []

    def _before(self) -> dict[str, list[str]]:
        """Each node, as declared, and those from which an edge leads to it."""
        nodes = [f"log:{log.name}" for log in self.logs]
        nodes += [f"processor:{each.id}" for each in self.processors]
        before: dict[str, list[str]] = {node: [] for node in nodes}
        for start, end in self.edges():
            before.setdefault(start, [])
            before.setdefault(end, []).append(start)
        return before


def names_of(references: Sequence[LogRef | str]) -> tuple[str, ...]:
    return tuple(each if isinstance(each, str) else each.name for each in references)
