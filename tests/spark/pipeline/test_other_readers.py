"""R130: another reader of Delta tables sees whole steps only, while the pipeline runs."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path
from typing import Any

import polars
from deltalake.exceptions import TableNotFoundError

from tests.spark.pipeline.driver import TOPOLOGIES, words
from tests.spark.pipeline.support import write

ROWS_PER_STEP = 10


def test_R130_polars_sees_whole_steps_of_a_running_pipeline(tmp_path: Path, spark: Any) -> None:
    write(tmp_path / "words", words(30))
    pipeline = TOPOLOGIES["chain"](f"{tmp_path}/p")
    out = pipeline.directory("middle")
    seen: list[int] = []
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(0.1):
            with contextlib.suppress(TableNotFoundError, FileNotFoundError):
                seen.append(polars.read_delta(out).height)

    def look(_: str) -> None:
        seen.append(polars.read_delta(out).height)

    reader = threading.Thread(target=watch)
    reader.start()
    try:
        options = {"max_rows": ROWS_PER_STEP, "on_phase": look, "only": ["first"]}
        assert pipeline.run(spark, available_now=True, **options).wait(300)
    finally:
        ended.set()
        reader.join()
    assert {count % ROWS_PER_STEP for count in seen} == {0}
    assert set(range(0, 31, ROWS_PER_STEP)) <= set(seen)
    assert sorted(polars.read_delta(out)["number"].to_list()) == list(range(30))
