"""What Spark's plan of a stream tells: which inputs it reads, and whether it keeps state."""

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

INPUT = "input"  # an option of our own, to know an input again in Spark's plan
_NODE = re.compile(r"^[ :+|-]*[~*]?(\w+)")
#: Nodes of a plan that may treat each row by itself. With any other, a stream is run as one.
_ROW_BY_ROW = frozenset(
    (
        *("Project", "Filter", "SubqueryAlias", "Join", "Union", "Generate", "View"),
        "ResolvedHint",
        *("StreamingRelation", "StreamingRelationV2", "Relation", "LocalRelation"),
        *("OneRowRelation", "LogicalRDD", "LogicalRelation", "Range"),
        *(
            "Repartition",
            "RepartitionByExpression",
            "MapInArrow",
            "PythonMapInArrow",
            "MapInPandas",
        ),
    )
)
#: The kinds of a join that take each row of the stream by itself, by the stream's side.
_LOOKS_UP_LEFT = ("INNER", "CROSS", "LEFT OUTER", "LEFT SEMI", "LEFT ANTI")
_LOOKS_UP_RIGHT = ("INNER", "CROSS", "RIGHT OUTER")


def probe(spark: Any, log: LogRef) -> DataFrame:
    """A stream with the columns of an input, to see what a function makes of it."""
    columns = [F.lit(None).cast(x.type).alias(x.name) for x in shape_of(log.body_type).columns]
    metadata = [
        F.col("value").alias("_index"),
        F.col("timestamp").alias("_time"),
    ]
    rows: DataFrame = spark.readStream.format("rate").load().select(*columns, *metadata)
    return rows.where(log.condition) if log.condition else rows


def keeps_state(frames: Iterable[DataFrame]) -> bool:
    """Whether the result of a step may depend on the steps before it, or repeat with each step.

    The latter are not possible in a stream, so that Spark says what is wrong with them.
    """
    for frame in frames:
        plan = frame._jdf.queryExecution().analyzed()
        lines = plan.toString().splitlines()
        nodes = [match[1] for line in lines if (match := _NODE.match(line))]
        if not _ROW_BY_ROW.issuperset(nodes) or not plan.isStreaming() or _mixes(plan):
            return True
    return False


def _mixes(plan: Any) -> bool:
    """Whether rows of a stream meet others, but for a join that looks up each of them."""
    found = plan.children()
    children = [found.apply(number) for number in range(found.size())]
    streaming = [child.isStreaming() for child in children]
    if plan.nodeName() == "Join" and any(streaming):
        kinds = _LOOKS_UP_LEFT if streaming[0] else _LOOKS_UP_RIGHT
        alone = not all(streaming) and plan.joinType().sql() in kinds
    else:
        alone = all(streaming) or not any(streaming)
    return not alone or any(map(_mixes, children))


def used_columns(frames: Iterable[DataFrame], names: Iterable[str]) -> set[str]:
    """Those of these columns of the inputs that a function makes use of, or rather more.

    In the text of a plan a column is `name#id`; where an input defines it, `AS name#id`.
    """
    plans = [frame._jdf.queryExecution().analyzed() for frame in frames]
    text = "\n".join(f"{plan.toString()}\n{plan.output().toString()}" for plan in plans)
    return {
        name
        for name in names
        if not name.isidentifier() or re.search(rf"(?<!AS )(?<!\w){name}#\d", text)
    }


def inputs_in_plan(rows: DataFrame) -> list[str | None]:
    """The input that each source of a query reads, in the order of Spark's offsets.

    Spark keeps an offset for each leaf of the plan, and an input that is used twice is two
    leaves. A source that is none of ours has no name.
    """
    leaves = rows._jdf.queryExecution().analyzed().collectLeaves()
    names: list[str | None] = []
    for place in range(leaves.size()):
        leaf = leaves.apply(place)
        if leaf.isStreaming():
            ours = leaf.nodeName() == "StreamingRelationV2" and leaf.sourceName() == "pillarbox"
            names.append(leaf.extraOptions().get(INPUT) if ours else None)
    return names


def check_offsets(query: Any, step: Step, checkpoint: str) -> None:
    """Raise if the batch that Spark is running is not the one that its checkpoint has.

    On S3 Spark can't create a file only if it is absent, so a run that was
    displaced may write the offsets of a batch over those of the run that displaced it.
    """
    execution = query._jsq.streamingQuery()
    context, sources = execution.getLatestExecutionContext(), execution.sources()

    def at(progress: Any) -> list[str | None]:
        found = [progress.get(sources.apply(number)) for number in range(sources.size())]
        return [each.get().json() if each.isDefined() else None for each in found]

    running = at(context.startOffsets()), at(context.endOffsets())
    if running != (step.starts, step.ends):
        raise OffsetsChangedError(
            f"batch {step.number} of {step.processor!r} reads {running[1]}, but another run has"
            f" since written {step.ends} to {checkpoint}/offsets/{step.number}; nothing was"
            " written. Run the pipeline in one place only"
        )
