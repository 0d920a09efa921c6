"""Orders through a pipeline: checked, added up, and kept in a table, each exactly once."""

import sqlite3
import sys
from pathlib import Path

from msgspec import Struct

from pillarbox.log import Log
from pillarbox.pipeline import Pipeline, sinks
from pillarbox.pipeline.failures import failures

home = Path(sys.argv[1] if len(sys.argv) > 1 and __name__ == "__main__" else "./shop")


class Order(Struct):
    number: int
    tea: str
    grams: int


class Total(Struct):
    tea: str
    grams: int


pipeline = Pipeline("shop", path=home / "pipeline")
orders = pipeline.log("orders", Order, url=f"file:{home}/orders")
checked = pipeline.log("checked", Order)
totals = pipeline.log("totals", Total)


@pipeline.stream(inputs=orders, outputs=checked, each=True)
def check(order: Order) -> Order:
    if order.grams <= 0:
        raise ValueError(f"{order.grams} grams of tea are no order")
    return order


@pipeline.stream(inputs=checked, outputs=totals, mode="update")
def add_up(orders):
    return orders.groupBy("tea").sum("grams").withColumnRenamed("sum(grams)", "grams")


pipeline.sink(inputs=totals, id="table")(sinks.sqlite(home / "totals.db", "totals", key=["tea"]))


def main() -> None:
    if not (home / "orders").exists():
        home.mkdir(parents=True, exist_ok=True)
        with Log.open(home / "orders") as log:
            for record in (
                b'{"number": 1, "tea": "Assam", "grams": 100}',
                b'{"number": 2, "tea": "Ceylon", "grams": 450}',
                b'{"number": 3, "tea": "Ceylon", "grams": 0}',
                b'{"number": 4, "tea": "Assam", "grams": 200}',
            ):
                log.append(record)
    with sqlite3.connect(home / "totals.db") as table:
        table.execute("CREATE TABLE IF NOT EXISTS totals (tea TEXT PRIMARY KEY, grams INTEGER)")
    pipeline.run(available_now=True).wait()
    for tea, grams in table.execute("SELECT tea, grams FROM totals ORDER BY tea"):
        print(f"{tea}: {grams} g")
    for _, failure in failures(pipeline.errors_directory("check")):
        print(f"failed: {failure.cause}")
    table.close()


if __name__ == "__main__":
    main()
