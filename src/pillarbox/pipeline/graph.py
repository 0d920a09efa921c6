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
#: Which rows of an aggregation a step outputs: final ones (append) or changed ones (update).
OutputMode = Literal["append", "update"]
OUTPUT_MODES: tuple[OutputMode, ...] = ("append", "update")
#: The additional output of every stream and sink: its error log. In a pipeline that reads it,
#: the log has the name `errors-ID`.
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
        """Return the same log, limited to the rows that match an SQL condition.

        Examples:
            >>> orders = LogRef("orders", "file:./data/orders")
            >>> orders.where("amount > 100").condition
            'amount > 100'
        """
        both = f"({self.condition}) AND ({condition})" if self.condition else condition
        return replace(self, condition=both)


@dataclass(frozen=True, slots=True)
class Processor:
    """One node of a pipeline: a source, a stream or a sink, with its options."""

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
    """The declared logs and processors, in order of declaration; `checks` validates them."""

    logs: list[LogRef] = field(default_factory=list)
    processors: list[Processor] = field(default_factory=list)

    def log(self, name: str) -> LogRef:
        """Return the log with this name, or raise a PipelineError."""
        for log in self.logs:
            if log.name == name:
                return log
        known = ", ".join(each.name for each in self.logs)
        raise PipelineError(f"there is no log {name!r} in the pipeline; it has {known}")

    def processor(self, processor_id: str) -> Processor:
        """Return the processor with this id, or raise a PipelineError."""
        for each in self.processors:
            if each.id == processor_id:
                return each
        known = ", ".join(each.id for each in self.processors)
        raise PipelineError(
            f"there is no processor {processor_id!r} in the pipeline; it has {known}"
        )

    def writers(self, name: str) -> list[Processor]:
        """Return the processors that write a log."""
        return [each for each in self.processors if name in self.written_by(each)]

    def written_by(self, processor: Processor) -> list[str]:
        """Return the outputs of a processor, with its error log if that is declared."""
        errors = f"{ERRORS_OF}{processor.id}"
        named = [errors] if any(log.name == errors for log in self.logs) else []
        return [*processor.output_names, *named]

    def readers(self, name: str) -> list[Processor]:
        """Return the processors that read a log."""
        return [each for each in self.processors if name in each.input_names]

    def edges(self) -> Iterator[tuple[str, str]]:
        """Yield the edges, as (`log:a`, `processor:b`) and (`processor:b`, `log:c`)."""
        for each in self.processors:
            for name in each.input_names:
                yield f"log:{name}", f"processor:{each.id}"
            for name in self.written_by(each):
                yield f"processor:{each.id}", f"log:{name}"

    def in_order(self) -> list[Processor]:
        """Return the processors, upstream first, else as declared. Requires no cycle."""
        rank = self.ranks()
        return sorted(self.processors, key=lambda each: rank[f"processor:{each.id}"])

    def ranks(self) -> dict[str, int]:
        """Return the length of the longest path to each node.

        Nodes in a cycle, and nodes that are reachable from one, are left out.
        """
        before, rank = self._predecessors(), dict[str, int]()
        while ready := [n for n in before if n not in rank and rank.keys() >= set(before[n])]:
            for node in ready:
                rank[node] = 1 + max((rank[each] for each in before[node]), default=-1)
        return rank

    def cycle(self) -> list[str]:
        """Return the nodes of one cycle, with the first repeated at the end, or []."""
        try:
            TopologicalSorter(self._predecessors()).prepare()
        except CycleError as error:
            return list(error.args[1])
        return []

    def _predecessors(self) -> dict[str, list[str]]:
        """Return the predecessors of each node, in order of declaration."""
        nodes = [f"log:{log.name}" for log in self.logs]
        nodes += [f"processor:{each.id}" for each in self.processors]
        before: dict[str, list[str]] = {node: [] for node in nodes}
        for start, end in self.edges():
            before.setdefault(start, [])
            before.setdefault(end, []).append(start)
        return before


def names_of(references: Sequence[LogRef | str]) -> tuple[str, ...]:
    return tuple(each if isinstance(each, str) else each.name for each in references)
