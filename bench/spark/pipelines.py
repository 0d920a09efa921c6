"""Pipelines as users write them, with typed records, each beside the same in plain Spark."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from bench.durable.place import work_directory
from bench.harness import Contender, Race, Run, Sized, Versus
from bench.spark.data import as_spark_comes, spark_session
from pillarbox.log import Log

ORDERS = 4_000_000
STEPS = 4
SMALL_STEPS = 40
TEAS = 9_973
SCHEMA = "number BIGINT, tea STRING, grams BIGINT, price DOUBLE"
FRAME = 5_000
Functions = Mapping[str, Callable[[Any], Any]]


class Order(msgspec.Struct):
    number: int
    tea: str
    grams: int
    price: float


class Total(msgspec.Struct):
    tea: str
    grams: int
    orders: int


def orders(spark: Any, count: int, parts: int) -> Any:
    return spark.range(0, count, 1, parts).selectExpr(
        "id AS number",
        f"concat('tea ', id % {TEAS}) AS tea",
        "id % 500 AS grams",
        "(id % 1000) / 7 AS price",
    )


def heavy(rows: Any) -> Any:
    return rows.where("grams > 100").selectExpr("number", "tea", "grams", "price * 2 AS price")


def dearer(rows: Any) -> Any:
    return rows.selectExpr("number", "tea", "grams", "price + 1 AS price")


def light(rows: Any) -> Any:
    return rows.where("grams < 400")


def add_up(rows: Any) -> Any:
    return (
        rows.groupBy("tea")
        .agg({"grams": "sum", "*": "count"})
        .toDF("tea", "orders", "grams")
        .selectExpr("tea", "grams", "orders")
    )


# -- inputs: the same orders as Parquet files, JSON lines, a typed log, a log of rows -------------


def write_files(kind: str, path: Path, count: int, parts: int) -> None:
    spark = spark_session()
    orders(spark, count, parts).write.format(kind).save(f"file:{path}/orders")


def write_table(path: Path, count: int, parts: int) -> None:
    """As a pipeline would have written it: one commit for each part."""
    from pillarbox.pipeline.graph import LogRef  # noqa: PLC0415 - behind an extra
    from pillarbox.pipeline.outputs import Outputs  # noqa: PLC0415
    from pillarbox.pipeline.step_result import OutputRows, StepResult  # noqa: PLC0415
    from pillarbox.pipeline.tables import prepare  # noqa: PLC0415
    from pillarbox.spark import Step  # noqa: PLC0415

    spark, table = spark_session(), f"{path}/orders"
    prepare(table, LogRef("orders", f"file:{table}", Order))
    outputs = Outputs({"orders": table}, table)
    rows = orders(spark, count, parts)
    for part in range(parts):
        low, high = count * part // parts, count * (part + 1) // parts
        made = rows.where(f"number >= {low} AND number < {high}").coalesce(1)
        outputs.write(StepResult({"orders": OutputRows(made)}), Step("", part, ""), {}, check=False)


def write_history(path: Path, count: int, _: int) -> None:
    """As a program appends them: JSON, some thousand at once."""
    encode = msgspec.json.encode
    with Log.open(f"{path}/orders", durability="os") as log:
        for start in range(0, count, FRAME):
            log.append_many(
                [
                    encode(Order(n, f"tea {n % TEAS}", n % 500, (n % 1000) / 7))
                    for n in range(start, min(start + FRAME, count))
                ]
            )


# -- contenders ------------------------------------------------------------------------------------


def pipeline_of(path: Path, target: Path, functions: Functions) -> Any:
    from pillarbox.pipeline import Pipeline  # noqa: PLC0415 - behind an extra
    from pillarbox.pipeline.graph import OutputMode  # noqa: PLC0415

    pipeline = Pipeline("bench", path=target)
    before = pipeline.log("orders", Order, url=f"file:{path}/orders")
    for name, function in functions.items():
        kind = Total if function is add_up else Order
        after = pipeline.log(name, kind)
        mode: OutputMode = "update" if function is add_up else "append"
        pipeline.stream(inputs=before, outputs=after, id=f"to-{name}", mode=mode)(function)
        before = after
    return pipeline


def by_pipeline(path: Path, target: Path, rows: int, functions: Functions) -> None:
    pipeline = pipeline_of(path, target, functions)
    pipeline.run(spark_session(), available_now=True, max_rows=rows).wait()


def by_spark(
    path: Path,
    target: Path,
    _: int,
    functions: Functions,
    kind: str = "parquet",
) -> None:
    spark = as_spark_comes()
    schema, place = SCHEMA, f"file:{path}/orders"
    for name, function in functions.items():
        reader = spark.readStream.schema(schema).format(
            kind if place.endswith("orders") else "parquet"
        )
        rows = function(reader.option("maxFilesPerTrigger", 1).load(place))
        writer = rows.writeStream.option("checkpointLocation", f"{target}/checkpoints/{name}")
        writer = writer.trigger(availableNow=True)
        if function is add_up:
            writer = writer.outputMode("update").foreachBatch(_into_files(f"{target}/{name}"))
            writer.start().awaitTermination()
        else:
            writer.format("parquet").start(f"file:{target}/{name}").awaitTermination()
        place = f"file:{target}/{name}"


def _into_files(place: str) -> Callable[[Any, int], None]:
    """Spark's files take no updates; what a user does instead."""

    def write(rows: Any, batch: int) -> None:
        rows.write.parquet(f"file:{place}/{batch}")

    return write


Do = Callable[[Path, Path, int, Functions], None]


@contextmanager
def _running(
    do: Do,
    write: Callable[[Path, int, int], None],
    count: int,
    steps: int,
    functions: Functions,
) -> Iterator[Run]:
    with work_directory() as place:
        write(place, count, steps)
        rounds = iter(range(1000))

        def run(_: int) -> None:
            target = place / f"round-{next(rounds)}"
            do(place, target, -(-count // steps), functions)
            shutil.rmtree(target)

        yield run


def _race(
    title: str,
    functions: Functions,
    bound: Versus,
    count: int,
    steps: int = STEPS,
    per: int | None = None,
) -> Race:
    ours = partial(_running, by_pipeline, write_table, count, steps, functions)
    files = partial(write_files, "parquet")
    plain = partial(_running, by_spark, files, count, steps, functions)
    return Race(
        title,
        (
            Contender("pipeline", ours, per or count, (bound,), "exactly once, synced"),
            Contender("plain Spark", plain, per or count, (), "not synced, Spark as it comes"),
        ),
        rounds=3,
    )


def stateless(sized: Sized) -> Race:
    many = sized(ORDERS)
    goal = Versus("plain Spark", speed_at_least=0.85)
    return _race(f"where + select over {many:,} typed orders", {"heavy": heavy}, goal, many)


def aggregation(sized: Sized) -> Race:
    many = sized(ORDERS)
    goal = Versus("plain Spark", speed_at_least=0.6)
    return _race(
        f"totals of {TEAS:,} teas over {many:,} typed orders", {"totals": add_up}, goal, many
    )


def chain(sized: Sized) -> Race:
    many = sized(ORDERS)
    goal = Versus("plain Spark", speed_at_least=0.7)
    functions = {"heavy": heavy, "dearer": dearer, "light": light}
    return _race(f"a chain of three over {many:,} typed orders", functions, goal, many)


def small_steps(sized: Sized) -> Race:
    steps = max(4, sized(SMALL_STEPS))
    goal = Versus("plain Spark", cost_at_most=1.5)
    title = f"{steps} steps of 10 typed orders: cost of a step"
    return _race(title, {"heavy": heavy}, goal, steps * 10, steps, per=steps)


def history(sized: Sized) -> Race:
    """The JSON bodies of a log into a typed log, beside Spark's JSON lines into Parquet."""
    many = sized(ORDERS) // 4
    functions = {"heavy": heavy}
    ours = partial(_running, by_pipeline, write_history, many, STEPS, functions)
    plain = partial(
        _running,
        partial(by_spark, kind="json"),
        partial(write_files, "json"),
        many,
        STEPS,
        functions,
    )
    goal = Versus("plain Spark", speed_at_least=0.6)
    return Race(
        f"{many:,} JSON orders into a typed log",
        (
            Contender("pipeline", ours, many, (goal,), "from a log of rows, exactly once"),
            Contender("plain Spark", plain, many, (), "from JSON lines, not synced"),
        ),
        rounds=3,
    )


def reading(sized: Sized) -> Race:
    """A typed log as a DataFrame, beside the same rows as Parquet files."""
    many = sized(ORDERS)
    goal = Versus("plain Spark", speed_at_least=0.9)
    files = partial(write_files, "parquet")
    return Race(
        f"reading {many:,} typed orders",
        (
            Contender("pillarbox", partial(_reading, _typed, write_table, many), many, (goal,)),
            Contender("plain Spark", partial(_reading, _parquet, files, many), many),
        ),
        rounds=5,
    )


def _typed(spark: Any, path: str) -> Any:
    from pillarbox.spark import read  # noqa: PLC0415 - behind an extra

    return read(spark, path)


def _parquet(spark: Any, path: str) -> Any:
    return spark.read.parquet(f"file:{path}")


@contextmanager
def _reading(
    load: Callable[[Any, str], Any], write: Callable[[Path, int, int], None], count: int
) -> Iterator[Run]:
    spark = spark_session()
    with work_directory() as place:
        write(place, count, STEPS)

        def run(_: int) -> None:
            rows = load(spark, f"{place}/orders")
            rows.select("number", "tea", "grams", "price").write.format("noop").mode(
                "overwrite"
            ).save()

        yield run
