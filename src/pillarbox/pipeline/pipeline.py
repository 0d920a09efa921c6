"""`Pipeline`: a graph of processors over logs, declared in Python, run by Spark, exactly once.

Declaring touches neither Spark nor the disk. `check` reports problems, `mermaid` and `svg` draw
the graph, and `run` starts it (`pip install 'pillarbox[spark]'`).
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Collection, Sequence
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
from pillarbox.spark.location import location_of, spark_path, without_secret

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
        url = os.fspath(path or f"./data/pipelines/{name}")
        location = location_of(url)
        if location is None:
            raise PipelineError(
                f"a pipeline can't be stored at {url}; give a directory, or a URL such as"
                " s3a://bucket/shop or hdfs://namenode:8020/shop"
            )
        self.paths = Paths(location)
        self.graph = Graph()

    def log(self, name: str, body_type: Any = Any, *, url: str | None = None) -> LogRef:
        """Declare a log with its name, the type of its bodies and its URL.

        Without a URL it is stored in the directory of the pipeline. The history of a mailbox can be
        an input: `url="file:./data/orders"`.
        """
        log = LogRef(name, url or self.paths.log_url(name), body_type)
        self.graph.logs.append(log)
        return log

    def errors(self, processor_id: str) -> LogRef:
        """Declare the error log of a processor, as an input for other processors."""
        url = spark_path(self.paths.errors(processor_id))
        return self.log(f"{ERRORS_OF}{processor_id}", Failure, url=url)

    def directory(self, log: str) -> str:
        """Return the directory of a log, or its URL on a remote store.

        Raises PipelineError if the log is a mailbox on a server.
        """
        location = location_of(self.graph.log(log).url)
        if location is None:
            url = without_secret(self.graph.log(log).url)
            raise PipelineError(f"the log {log!r} ({url}) has no directory")
        return location

    def errors_directory(self, processor_id: str) -> str:
        """Return the directory of the error log of a processor."""
        return self.paths.errors(processor_id)

    # -- declaring -------------------------------------------------------------------------

    def source(self, *, outputs: Logs, id: str | None = None) -> Callable[[F], F]:
        """Declare a source, which brings records into a log.

        The function is a generator of bodies, or takes a SparkSession and returns a streaming
        DataFrame. A generator yields a body, or a list of bodies that is appended atomically.
        After a crash the generator starts again, and must itself know where to continue.
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
        """Declare a stream, which reads logs and writes logs.

        The function receives a DataFrame for each input and returns a DataFrame, or a dict of
        DataFrames by output name.

        With `each=True` it receives one body at a time, of the type of the input, and returns a
        body, a list of bodies, None, or a dict of these by output name; or it yields bodies. If it
        raises, that record goes to the error log, and the others continue.
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
        """Declare a sink, which delivers records to other systems, at least once.

        The function receives a batch as a DataFrame for each input, and a `Step`. If the same
        records are delivered again, the hash of the step is the same. The functions in
        `pillarbox.pipeline.sinks` use it to write each batch once.
        """
        return self._add("sink", id, inputs=_listed(inputs), mode=mode, strategy="at-least-once")

    def _add(self, kind: Kind, id: str | None, **options: Any) -> Callable[[F], F]:
        def add(function: F) -> F:
            name = id if id is not None else str(getattr(function, "__name__", type(function)))
            self.graph.processors.append(Processor(name, kind, function, **options))
            return function

        return add

    # -- checking and drawing ----------------------------------------------------------------

    def check(self, *, on_disk: bool = False, only: Collection[str] = ()) -> None:
        """Raise a PipelineError that lists every problem. Starts nothing and writes nothing.

        With `on_disk`, also check that the input logs exist and that the tables have the declared
        types. `only` names the processors to run (default: all).
        """
        checks.check(self.graph, on_disk=on_disk, only=only)

    def mermaid(self) -> str:
        """Return the graph as Mermaid text, which GitHub and many editors can draw."""
        return drawing.mermaid(self.graph)

    def svg(self) -> str:
        """Return the graph as an SVG document."""
        return drawing.svg(self.graph)

    def _repr_html_(self) -> str:
        return self.svg()

    # -- running -----------------------------------------------------------------------------

    def run(self, spark: SparkSession | None = None, **options: Any) -> Run:
        """Check the pipeline and start it; return a `Run` to wait for or to stop.

        Takes the options of `pillarbox.pipeline.runner.start`.
        """
        with extra("spark", "a pipeline"):
            from pillarbox.pipeline.runner import start  # noqa: PLC0415 - behind an extra

        return start(self, spark, **options)


def _listed(logs: Logs) -> tuple[LogRef | str, ...]:
    return (logs,) if isinstance(logs, LogRef | str) else tuple(logs)


def load(target: str) -> Pipeline:
    """Return the pipeline that `module:pipeline` on a command line names.

    Imports the module from the current directory or `sys.path`. Without a name after the colon,
    the module must have exactly one pipeline.
    """
    module_name, _, attribute = target.partition(":")
    module_name = module_name.removesuffix(".py").replace(os.sep, ".").strip(".")
    if not module_name:
        raise PipelineError(f"{target!r} names no module; name a pipeline as module:pipeline")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if not f"{module_name}.".startswith(f"{error.name}."):
            raise  # the module is there, but something that it imports is not
        raise PipelineError(
            f"there is no module {module_name!r} here or on the path; name a pipeline as"
            " module:pipeline, and run the command in the directory of the module"
        ) from error
    found = {name: value for name, value in vars(module).items() if isinstance(value, Pipeline)}
    names = ", ".join(found) or "none"
    if attribute:
        pipeline = getattr(module, attribute, None)
        if not isinstance(pipeline, Pipeline):
            raise PipelineError(
                f"there is no pipeline {attribute!r} in {module_name!r}; it has {names}"
            )
        return pipeline
    if len(set(map(id, found.values()))) != 1:
        raise PipelineError(f"give the name of a pipeline in {module_name!r}; it has {names}")
    return next(iter(found.values()))
