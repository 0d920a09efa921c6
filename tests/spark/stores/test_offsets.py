"""R131: a displaced run writes the offsets of a batch over those of the run that displaced it.

Spark's `s3a` can't create a file only if it is absent, so this can happen. Here it is done on
purpose, between Spark's own write and the moment in which the batch begins.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from pillarbox.pipeline import Pipeline, query
from pillarbox.pipeline.batch import BatchJob
from pillarbox.pipeline.query import Query
from pillarbox.pipeline.status import read_status
from pillarbox.spark.files import files_at
from tests.spark.pipeline.driver import ROWS_PER_STEP, TOPOLOGIES
from tests.spark.pipeline.support import crash, finish, hashes, maps
from tests.spark.stores.store import on
from tests.spark.stores.test_kills import found, send

pytestmark = on("s3")


def overwrite_first_offsets(monkeypatch: pytest.MonkeyPatch, pipeline: Pipeline) -> None:
    """Once, when the first batch is about to begin: it reads 10 rows, the file says 20."""
    original, files = Query.batch_function, files_at(pipeline.paths.checkpoint("count"))
    left = ["offsets/0"]

    def batch_function(self: Query, job: BatchJob) -> Callable[[Any, int], None]:
        take = original(self, job)

        def take_one(rows: Any, batch_id: int) -> None:
            while left:
                name = left.pop()
                text = files.read(name).decode()
                assert '{"index": 10}' in text
                files.write(name, text.replace('{"index": 10}', '{"index": 20}').encode())
            take(rows, batch_id)

        return take_one

    monkeypatch.setattr(Query, "batch_function", batch_function)


def test_R131_offsets_that_another_run_has_replaced_are_noticed_before_anything_is_written(
    store_spark: Any, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = TOPOLOGIES["aggregation"](place, "exactly-once")
    send(pipeline, 30)
    overwrite_first_offsets(monkeypatch, pipeline)
    finish(pipeline, store_spark, max_rows=ROWS_PER_STEP)
    assert found(pipeline) == Counter(range(30))
    assert all(len(each) == 1 for each in hashes(maps(pipeline)).values())
    assert read_status(pipeline.paths.status).processors["count"].restarts == 1


def test_R131_control_without_the_comparison_rows_are_lost(
    store_spark: Any, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = TOPOLOGIES["aggregation"](place, "exactly-once")
    send(pipeline, 20)
    overwrite_first_offsets(monkeypatch, pipeline)
    monkeypatch.setattr(query, "check_offsets", lambda *_: None)
    crash(pipeline, store_spark, "output", max_rows=ROWS_PER_STEP)
    finish(pipeline, store_spark, max_rows=ROWS_PER_STEP)
    assert found(pipeline) == Counter(range(10))
