"""Where Spark finds `format("pillarbox")` by itself: it looks into modules called `pyspark_...`."""

from pillarbox.spark.source import PillarboxSource as DefaultSource

__all__ = ["DefaultSource"]
