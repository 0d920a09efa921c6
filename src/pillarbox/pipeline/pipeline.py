"""`Pipeline`: a graph of processors over logs, declared in Python, run by Spark, exactly once.

Declaring touches neither Spark nor the disk. `check` says what is wrong, `mermaid` and `svg`
draw it, `run` starts it (`pip install 'pillarbox[spark]'`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from pillarbox.extras import extra
from pillarbox.pipeline import checks, drawing
from pillarbox.pipeline.errors import PipelineError
from pillarbox.pipeline.failures import Failure
from pillarbox.pipeline.graph import (
    ERRORS_OF,
    Graph,
    Kind,
    LogRef,
    OutputMode,
    Processor,
    Strategy,
)
from pillarbox.pipeline.paths import Paths
from pillarbox.spark.location import location_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pillarbox.pipeline.runner import Run

F = TypeVar("F", bound=Callable[..., Any])
Logs = LogRef | str | Sequence[LogRef | str]


class Pipeline:
    """A graph of processors over logs.

    Examples:
        >>> pipeline = Pipeline("shop", path="./data/pipelines/shop")
        >>> orders = pipeline.log("orders", url="file:./data/orders")
        >>> large = pipeline.log("large")
        >>> @pipeline.stream(inputs=orders, outputs=large)
        ... def only_large(orders):
        ...     return orders.where("amount > 1000")
        >>> print(pipeline.mermaid())
        flowchart LR
            log_orders[("orders")] --> processor_only_large["only_large"]
            processor_only_large["only_large"] --> log_large[("large")]
    """

    def __init__(self, name: str, *, path: str | os.PathLike[str] | None = None) -> None:
        self.name = name
        place = os.fspath(path or f"./data/pipelines/{name}")
        location = location_of(place)
        if location is None:
            raise PipelineError(
                f"a pipeline can't be kept at {place}; give a directory, or a URL of an object"
                " store such as s3a://bucket/shop"
            )
        self.paths = Paths(location)
        self.graph = Graph()

    def log(self, name: str, body_type: Any = Any, *, url: str | None = None) -> LogRef:
        """Name a log, the type of its bodies, and where it is.

        Without a URL it is kept in the pipeline's own directory. A mailbox's history can be an
        input: `url="file:./data/orders"`.
        """
        made = LogRef(name, url or self.paths.log_url(name), body_type)
        self.graph.logs.append(made)
        return made

    def errors(self, processor_id: str) -> LogRef:
        """The log of what failed in a processor, to be read in the pipeline like any other."""
        url = self.paths.errors_url(processor_id)
        return self.log(f"{ERRORS_OF}{processor_id}", Failure, url=url)

    def directory(self, log: str) -> str:
        """Where a log is: a directory, or the URL of an object store; PipelineError if it is a
        mailbox on some server."""
        location = location_of(self.graph.log(log).url)
        if location is None:
            raise PipelineError(f"the log {log!r} ({self.graph.log(log).url}) has no directory")
        return location

    def errors_directory(self, processor_id: str) -> str:
        """Where what failed in a processor is kept."""
        return self.paths.errors(processor_id)

    # -- declaring -------------------------------------------------------------------------

    def source(self, *, outputs: Logs, id: str | None = None) -> Callable[[F], F]:
        """Bring records into a log: a generator of bodies, or a function from a SparkSession
        to a streaming DataFrame.

        What a generator yields is appended plainly: after a crash it begins anew, and where
        it goes on is up to its own code. A list that is yielded is appended all or none.
        """
        return self._add("source", id, outputs=_listed(outputs))

    def stream(
        self,
        *,
        inputs: Logs,
        outputs: Logs,
        id: str | None = None,
        strategy: Strategy = "exactly-once",
        mode: OutputMode = "append",
        each: bool = False,
    ) -> Callable[[F], F]:
        """Read logs and write logs. The function gets a DataFrame for each input, and answers
        with one, or with a dict of them by the names of its outputs.

        With `each=True` it gets one body at a time, as the input's type, and answers with a
        body, a list of them, None, or a dict of these by the names of its outputs; if it
        raises, that record goes to the error log and the rest goes on.
        """
        options = {"strategy": strategy, "mode": mode, "each": each}
        return self._add("stream", id, inputs=_listed(inputs), outputs=_listed(outputs), **options)

    def sink(
        self,
        *,
        inputs: Logs,
        id: str | None = None,
        mode: OutputMode = "append",
    ) -> Callable[[F], F]:
        """Take records from logs to the outside, at least once.

        The function gets a batch as a DataFrame for each input, and a `Step` whose hash is the
        same whenever the same records are handed over again. `pillarbox.pipeline.sinks` has
        functions that use it to write each batch once.
        """
        return self._add("sink", id, inputs=_listed(inputs), mode=mode, strategy="at-least-once")

    def _add(self, kind: Kind, id: str | None, **options: Any) -> Callable[[F], F]:
        def add(function: F) -> F:
            name = id if id is not None else str(getattr(function, "__name__", type(function)))
            self.graph.processors.append(Processor(name, kind, function, **options))
            return function

        return add

    # -- looking -----------------------------------------------------------------------------

    def check(self, *, on_disk: bool = False) -> None:
        """Raise a PipelineError that lists everything that is wrong; nothing is started."""
        checks.check(self.graph, on_disk=on_disk)

    def mermaid(self) -> str:
        """The graph as Mermaid text, as GitHub and many editors show it."""
        return drawing.mermaid(self.graph)

    def svg(self) -> str:
        """The graph as a picture of its own."""
        return drawing.svg(self.graph)

    def _repr_html_(self) -> str:
        return self.svg()

    # -- running -----------------------------------------------------------------------------

    def run(self, spark: SparkSession | None = None, **options: Any) -> Run:
        """Check it and start it; the answer stops it, or waits for it. Options are those of
        `pillarbox.pipeline.runner.start`."""
        with extra("spark", "a pipeline"):
            from pillarbox.pipeline.runner import start  # noqa: PLC0415 - behind an extra

        return start(self, spark, **options)


def _listed(logs: Logs) -> tuple[LogRef | str, ...]:
    return (logs,) if isinstance(logs, LogRef | str) else tuple(logs)
