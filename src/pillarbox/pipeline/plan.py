"""Inspects Spark's plan of a stream: which inputs it reads, and whether it is stateful."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pillarbox.pipeline.errors import OffsetsChangedError
from pillarbox.pipeline.graph import LogRef
from pillarbox.pipeline.schema import shape_of
from pillarbox.spark.steps import Step

INPUT = "input"  # our own reader option, to identify an input in Spark's plan
_NODE = re.compile(r"^[ :+|-]*[~*]?(\w+)")
#: Plan nodes that may be stateless. A stream with any other node runs as a streaming query.
_ROW_BY_ROW = frozenset(
    (
        *("Project", "Filter", "SubqueryAlias", "Join", "Union", "Generate", "View"),
        *("StreamingRelation", "StreamingRelationV2", "Relation", "LocalRelation"),
        *("OneRowRelation", "LogicalRDD", "LogicalRelation", "Range"),
        *("Repartition", "RepartitionByExpression", "ResolvedHint"),
        *("MapInArrow", "PythonMapInArrow", "MapInPandas"),
    )
)
#: Plan nodes that use no columns but those in their expressions. Others may use all of their input,
#: as Distinct does, or give it other names, as Union does.
_NAMES_ITS_COLUMNS = frozenset(
    (
        *("Project", "Filter", "SubqueryAlias", "Join", "Generate", "ResolvedHint", "View"),
        *("Aggregate", "EventTimeWatermark", "Deduplicate", "DeduplicateWithinWatermark"),
        *("Repartition", "RepartitionByExpression"),
    )
)
#: Join types that look up each row of the stream independently, by the side of the stream.
_LOOKS_UP_LEFT = ("INNER", "CROSS", "LEFT OUTER", "LEFT SEMI", "LEFT ANTI")
_LOOKS_UP_RIGHT = ("INNER", "CROSS", "RIGHT OUTER")


def probe(spark: Any, log: LogRef) -> DataFrame:
    """Return a dummy stream with the columns of an input, to analyze a function's plan."""
    columns = [F.lit(None).cast(x.type).alias(x.name) for x in shape_of(log.body_type).columns]
    metadata = [F.col("value").alias("_index"), F.col("timestamp").alias("_time")]
    rows: DataFrame = spark.readStream.format("rate").load().select(*columns, *metadata)
    return rows.where(log.condition) if log.condition else rows


def keeps_state(frames: Iterable[DataFrame]) -> bool:
    """Return whether the result of a step may depend on other steps.

    Also True for a plan that does not stream at all: as a streaming query, Spark rejects it with
    an error that says why.
    """
    for frame in frames:
        plan = frame._jdf.queryExecution().analyzed()
        lines = plan.toString().splitlines()
        nodes = [match[1] for line in lines if (match := _NODE.match(line))]
        if not _ROW_BY_ROW.issuperset(nodes) or not plan.isStreaming() or _mixes(plan):
            return True
    return False


def _mixes(plan: Any) -> bool:
    """Return whether streamed rows are combined with others, except by a lookup join."""
    children = _children(plan)
    streaming = [child.isStreaming() for child in children]
    if plan.nodeName() == "Join" and any(streaming):
        kinds = _LOOKS_UP_LEFT if streaming[0] else _LOOKS_UP_RIGHT
        independent = not all(streaming) and plan.joinType().sql() in kinds
    else:
        independent = all(streaming) or not any(streaming)
    return not independent or any(map(_mixes, children))


def _children(plan: Any) -> list[Any]:
    children = plan.children()
    return [children.apply(number) for number in range(children.size())]


def used_columns(frames: Iterable[DataFrame], names: Iterable[str]) -> set[str]:
    """Return the input columns that a function uses; may include columns that it doesn't.

    The text of a plan would not do: Spark truncates long lists of columns in it.
    """
    plans = [frame._jdf.queryExecution().analyzed() for frame in frames]
    text = " ".join(f"{plan.outputSet().toString()} {_used(plan)}" for plan in plans)
    return {
        name for name in names if not name.isidentifier() or re.search(rf"(?<!\w){name}#\d", text)
    }


def _used(plan: Any) -> str:
    """Return the attributes that the nodes of a plan use, as `{name#id, ...}`."""
    sets = [plan.references()]
    if plan.nodeName() not in _NAMES_ITS_COLUMNS:
        sets.append(plan.inputSet())
    return " ".join([each.toString() for each in sets] + [_used(each) for each in _children(plan)])


def inputs_in_plan(rows: DataFrame) -> list[str | None]:
    """Return the input that each source of a query reads, in the order of Spark's offsets.

    Spark keeps an offset for each leaf of the plan; an input that is used twice has two leaves.
    The name is None for a source that is not a Pillarbox input.
    """
    leaves = rows._jdf.queryExecution().analyzed().collectLeaves()
    names: list[str | None] = []
    for number in range(leaves.size()):
        leaf = leaves.apply(number)
        if leaf.isStreaming():
            ours = leaf.nodeName() == "StreamingRelationV2" and leaf.sourceName() == "pillarbox"
            names.append(leaf.extraOptions().get(INPUT) if ours else None)
    return names


def check_offsets(query: Any, step: Step, checkpoint: str) -> None:
    """Raise if the offsets of the running batch are not those in its checkpoint.

    On S3, Spark can't create a file only if it is absent. A displaced run may therefore overwrite
    the offsets of a batch that the run which displaced it has written.
    """
    execution = query._jsq.streamingQuery()
    context, sources = execution.getLatestExecutionContext(), execution.sources()

    def offsets_in(progress: Any) -> list[str | None]:
        options = [progress.get(sources.apply(number)) for number in range(sources.size())]
        return [each.get().json() if each.isDefined() else None for each in options]

    running = offsets_in(context.startOffsets()), offsets_in(context.endOffsets())
    if running != (step.starts, step.ends):
        raise OffsetsChangedError(
            f"batch {step.number} of {step.processor!r} reads {running[1]}, but another run has"
            f" since written {step.ends} to {checkpoint}/offsets/{step.number}; nothing was"
            " written. Run the pipeline in only one process"
        )
