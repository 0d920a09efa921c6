"""Runs a pipeline: a Spark query for each stream and sink, a thread for each generator.

Each batch of a query is a `Step` (see `batch`). `Run.stop` lets running batches finish. A query
that fails is restarted a few times; then the whole pipeline stops with an error that names the
processor.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

import pillarbox.spark as ps
from pillarbox.codec import codec_for
from pillarbox.log import Log
from pillarbox.logger import logger
from pillarbox.mailbox.data_directory import is_log
from pillarbox.pipeline.backing import BackingLog
from pillarbox.pipeline.batch import InterruptedStepError, OnPhase
from pillarbox.pipeline.checks import is_generator, writes_table
from pillarbox.pipeline.connect import ConnectQuery
from pillarbox.pipeline.errors import (
    OffsetsChangedError,
    PipelineError,
    TooManyFailedError,
    one_line,
)
from pillarbox.pipeline.failures import Failure
from pillarbox.pipeline.graph import ERRORS_OF, LogRef, Processor
from pillarbox.pipeline.inspection import position
from pillarbox.pipeline.query import ProgressListener, Query, Settings
from pillarbox.pipeline.references import files_of, modules_of
from pillarbox.pipeline.rename import check_renamed
from pillarbox.pipeline.rows import open_to_append
from pillarbox.pipeline.running import RunClaim, RunLock, acquire_run
from pillarbox.pipeline.status import Status, StatusFile, first_status
from pillarbox.pipeline.tables import prepare
from pillarbox.spark.files import remote_files_at
from pillarbox.spark.location import is_remote_store, location_of
from pillarbox.spark.remote_store import check_session, give_settings
from pillarbox.spark.shipping import OWN, is_connect, is_remote, master_of, ship
from pillarbox.spark.table import table_at

if TYPE_CHECKING:
    from pillarbox.pipeline.pipeline import Pipeline

RETRIES = 3
_BACKOFF_SECONDS, _BACKOFF_SECONDS_MAX = 0.5, 30.0
_STOP_SECONDS = 10.0
_START_TIMED_OUT = "Python worker failed to connect back"
_START_RETRIES = 15
#: Errors that Spark Connect reports only by name, in the text of its own errors.
_FINAL = (
    *("FencedError", "DivergedError", "DataLossError", "AnalysisException"),
    *(each.__name__ for each in (InterruptedStepError, TooManyFailedError)),
)


def start(
    pipeline: Pipeline,
    spark: SparkSession | None = None,
    *,
    master: str = "local[*]",
    conf: Mapping[str, str] | None = None,
    available_now: bool = False,
    interval: str = "0 seconds",
    max_rows: int | None = None,
    retries: int = RETRIES,
    only: Iterable[str] = (),
    max_failed: int | None = None,
    on_phase: OnPhase = lambda _: None,
) -> Run:
    """Check a pipeline and start it.

    Args:
        pipeline: The pipeline to run.
        spark: The session to run it on (default: a new one for `master`).
        master: `local[*]`, `local-cluster[...]`, `spark://...`, `sc://...`.
        conf: Spark settings for the new session, such as `spark.executor.memory`.
        available_now: Process the available records, upstream first, and end.
        interval: Time between steps (default: start a step as soon as there are records).
        max_rows: Maximum rows per step from each input.
        retries: Number of restarts after failures without a successful step in between.
        only: The processors to run (default: all).
        max_failed: Stop if more than this many records of a processor fail in this run.
        on_phase: Called after each phase of a step, for tests.
    """
    stores = _remote_stores(pipeline)
    for store in stores:
        remote_files_at(store).check()
    chosen = tuple(only)
    for processor_id in chosen:
        pipeline.graph.processor(processor_id)
    pipeline.check(on_disk=True, only=chosen)
    with contextlib.ExitStack() as held:
        shared = is_connect(master) if spark is None else is_remote(spark)
        running = acquire_run(pipeline.paths, shared=shared)
        held.enter_context(running)
        own = spark is None and SparkSession.getActiveSession() is None
        session = spark or ps.session(master, app_name=pipeline.name, conf=conf)
        if own:
            held.callback(session.stop)
        for store in stores:
            give_settings(session, store)
            check_session(session, store)
        running.claim()
        backing = running.backing()
        held.enter_context(backing)
        check_renamed(pipeline, backing.states())
        trigger: dict[str, Any] = {"availableNow": True} if available_now else {}
        settings = Settings(trigger or {"processingTime": interval}, max_rows, on_phase, max_failed)
        run = Run(
            pipeline, session, running, backing, settings=settings, retries=retries, only=chosen
        )
        run.begin(held, by_rank=available_now)
    return run


class Run:
    """A running pipeline: `wait` for its end, or `stop` it."""

    def __init__(
        self,
        pipeline: Pipeline,
        spark: SparkSession,
        running: RunLock | RunClaim,
        backing: BackingLog,
        *,
        settings: Settings,
        retries: int,
        only: tuple[str, ...],
    ) -> None:
        self.pipeline = pipeline
        self.spark = spark
        self.error: PipelineError | None = None
        self._running = running
        self._retries = retries
        self._held = contextlib.ExitStack()
        self._stopping = threading.Event()
        self._stopping_queries: list[threading.Thread] = []
        self._ended = threading.Event()
        chosen = [each for each in pipeline.graph.in_order() if not only or each.id in only]
        self._processors = chosen
        ids = {each.id for each in chosen}
        remote = is_remote(spark)
        started = first_status(pipeline.name, master_of(spark), pipeline.graph, ids)
        for each in chosen:
            started.processors[each.id].read |= position(pipeline, each, backing.last(each.id))
        _check_tables(pipeline, chosen, started)
        self.status = StatusFile(pipeline.paths.status, started)
        self._modules = modules_of(pipeline.graph)
        query: Callable[..., Query] = Query
        if remote:
            files = files_of(self._modules - {OWN})
            query = functools.partial(ConnectQuery, token=running.token, files=files)
        self._queries = {
            each.id: query(pipeline, each, spark, backing, status=self.status, settings=settings)
            for each in chosen
            if not is_generator(each)
        }
        self._listener = None if remote else ProgressListener(pipeline.name, self.status)

    # -- starting --------------------------------------------------------------------------

    def begin(self, held: contextlib.ExitStack, *, by_rank: bool) -> None:
        """Start all processors at once, or rank by rank as the earlier ranks finish.

        The run takes over the resources in `held`, and releases them when it ends.
        """
        for each in self._processors:
            self._make_logs(each)
        ship(self.spark, {OWN} | self._modules)
        if self._listener is not None:
            self.spark.streams.addListener(self._listener)
        rank = self.pipeline.graph.ranks()
        groups: dict[int, list[Processor]] = {}
        for each in self._processors:
            groups.setdefault(rank[f"processor:{each.id}"] if by_rank else 0, []).append(each)
        work = [groups[number] for number in sorted(groups)]
        self._held = held.pop_all()
        threading.Thread(target=self._supervise, args=[work], name="pipeline", daemon=True).start()

    def _make_logs(self, processor: Processor) -> None:
        """Create the outputs before the first record, so that their readers can start."""
        for name in processor.output_names:
            path = self.pipeline.directory(name)
            if writes_table(processor, path):
                prepare(path, self.pipeline.graph.log(name))
            elif not is_log(path):
                Log.open(path).close()
        if not is_generator(processor):
            errors = self.pipeline.errors_directory(processor.id)
            prepare(errors, LogRef(f"{ERRORS_OF}{processor.id}", errors, Failure))

    def _supervise(self, groups: list[list[Processor]]) -> None:
        try:
            for processors in groups:
                threads = [
                    threading.Thread(
                        target=self._run_with_restarts, args=[each], name=each.id, daemon=True
                    )
                    for each in processors
                ]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
                if self._stopping.is_set():
                    break
        finally:
            self._end()

    def _end(self) -> None:
        """Release all resources, even if that partly fails, and wake those who `wait`."""
        try:
            with contextlib.ExitStack() as ending:
                ending.callback(self._ended.set)
                ending.enter_context(self._held)
                if self._listener is not None:
                    ending.callback(self.spark.streams.removeListener, self._listener)
                for thread in self._stopping_queries:
                    thread.join(_STOP_SECONDS)
                self.status.save()
        except Exception as error:  # noqa: BLE001 - any error of Spark, the disk or the store
            logger.warning("a run did not shut down cleanly", error=one_line(error))

    # -- one processor -----------------------------------------------------------------------

    def _run_with_restarts(self, processor: Processor) -> None:
        """Run one processor until it ends; restart it when it fails."""
        status = self.status.of(processor.id)
        failed_in_a_row = 0
        while not self._stopping.is_set():
            status.state, steps_before = "running", status.steps
            try:
                self._run_once(processor)
                break
            except Exception as error:  # noqa: BLE001 - any error of Spark or the function
                if self._stopping.is_set():
                    break
                failed_in_a_row = 1 if status.steps > steps_before else failed_in_a_row + 1
                status.error = one_line(error)
                if _is_final(error) or failed_in_a_row > self._retries_for(error):
                    self._fail(processor, error)
                    return
                status.restarts += 1
                self.status.save()
                pause = min(_BACKOFF_SECONDS * 2**failed_in_a_row, _BACKOFF_SECONDS_MAX)
                logger.warning(
                    "a processor failed and will be restarted",
                    processor=processor.id,
                    seconds=pause,
                    error=status.error,
                )
                self._stopping.wait(pause)
        status.state = "stopped" if self._stopping.is_set() else "done"
        self.status.save()

    def _retries_for(self, error: Exception) -> int:
        """Return how often to restart after this error: more often if a source did not start.

        Spark gives the process of a source ten seconds to start, and no setting changes that. A
        busy machine may be too slow for minutes, and the query has not done anything by then.
        """
        timed_out = _START_TIMED_OUT in str(error)
        return max(self._retries, _START_RETRIES) if timed_out else self._retries

    def _run_once(self, processor: Processor) -> None:
        if processor.id in self._queries:
            self._queries[processor.id].run()
        else:
            self._generate(processor)

    def _generate(self, processor: Processor) -> None:
        """Append the bodies that a generator yields, until it ends or the run stops.

        There is no recovery: after a restart the generator runs from its beginning, and its own
        code decides where to continue (R84).
        """
        (name,) = processor.output_names
        body_type = self.pipeline.graph.log(name).body_type
        encode = codec_for(body_type).encode
        status = self.status.of(processor.id)
        records = processor.function()
        with open_to_append(self.pipeline.directory(name), body_type) as log:
            try:
                for body in records:
                    bodies = body if isinstance(body, list) else [body]
                    log.append_many([encode(each) for each in bodies])
                    status.steps += 1
                    status.rows += len(bodies)
                    status.written[name] = log.end_index
                    if self._stopping.is_set():
                        break
            finally:
                records.close()

    def _fail(self, processor: Processor, error: Exception) -> None:
        status = self.status.of(processor.id)
        status.state = "failed"
        self.error = PipelineError(
            f"the {processor.kind} {processor.id!r} of the pipeline {self.pipeline.name!r} failed:"
            f" {status.error}; fix the cause and run the pipeline again: it resumes there"
        )
        self.error.__cause__ = error
        self.status.save()
        threading.Thread(target=self.stop, name="pipeline-stop", daemon=True).start()

    # -- ending --------------------------------------------------------------------------------

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the pipeline ends; False on timeout. Raises the error that made it fail."""
        if not self._ended.wait(timeout):
            return False
        if self.error is not None:
            raise self.error
        return True

    def stop(self, timeout: float | None = None) -> bool:
        """Finish the current steps, then stop; False on timeout."""
        deadline = None if timeout is None else time.monotonic() + timeout
        self._stopping.set()
        self._running.stop_batches()
        for query in self._queries.values():
            thread = threading.Thread(target=self._stop, args=[query, deadline], daemon=True)
            thread.start()
            self._stopping_queries.append(thread)  # only a started thread can be joined
        left = None if deadline is None else max(0.0, deadline - time.monotonic())
        return self._ended.wait(left)

    def _stop(self, query: Query, deadline: float | None) -> None:
        try:
            query.stop(deadline)
        except Exception as error:  # noqa: BLE001 - for example, the server is gone
            logger.warning(
                "a query could not be stopped",
                processor=query.processor.id,
                error=one_line(error),
            )

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def _remote_stores(pipeline: Pipeline) -> list[str]:
    """Return the remote stores of a pipeline and its logs."""
    locations = [pipeline.paths.path, *(location_of(log.url) for log in pipeline.graph.logs)]
    return sorted({each for each in locations if each is not None and is_remote_store(each)})


def _check_tables(pipeline: Pipeline, chosen: Iterable[Processor], status: Status) -> None:
    """Raise, before anything is written, if a table was replaced or truncated."""
    for each in chosen:
        read = status.processors[each.id].read
        for name in (*each.input_names, *each.output_names):
            table = table_at(pipeline.graph.log(name).url)
            if table is None:
                continue
            to_read = name in each.input_names
            try:
                table.check(read.get(name, table.first_index) if to_read else table.end_index)
            except ps.SparkError as error:
                raise PipelineError(str(error)) from error


def _is_final(error: Exception) -> bool:
    """Return whether a restart can't help, or would take the outputs from a later run."""
    if isinstance(error, OffsetsChangedError):
        return False
    final = PipelineError | ps.SparkError | AnalysisException | InterruptedStepError
    return isinstance(error, final) or any(name in str(error) for name in _FINAL)
