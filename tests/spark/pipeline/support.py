"""What the tests of running pipelines share: records in, records out, maps in between."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pillarbox.log import Log
from pillarbox.pipeline import Pipeline, PipelineError
from pillarbox.pipeline.backing import read_maps
from pillarbox.pipeline.batch import InterruptedStepError
from pillarbox.spark.table import TableLog, is_table


def interrupt_at(act: str) -> Callable[[str], None]:
    def window(done: str) -> None:
        if done == act:
            raise InterruptedStepError(act)

    return window


def write(path: Path | str, records: Sequence[Any]) -> None:
    """Append records, as bytes or as JSON."""
    with Log.open(path) as log:
        log.append_many([r if isinstance(r, bytes) else msgspec.json.encode(r) for r in records])


def read(path: Path | str) -> list[bytes]:
    """The bodies of a log; rows of a typed one as JSON, or as the one value that they have."""
    if is_table(str(path)):
        return [_body(row) for _, row in TableLog(str(path)).rows()]
    with Log.open(path, readonly=True) as log:
        return [record for frame in log.frames() for record in frame.records]


def _body(row: dict[str, Any]) -> bytes:
    if list(row) == ["body"]:
        return row["body"] if isinstance(row["body"], bytes) else str(row["body"]).encode()
    return msgspec.json.encode(row)


def read_json(path: Path | str) -> list[Any]:
    return [msgspec.json.decode(record) for record in read(path)]


def finish(pipeline: Pipeline, spark: Any, **options: Any) -> None:
    """Work off everything that is there."""
    assert pipeline.run(spark, available_now=True, **options).wait(300)


def crash(pipeline: Pipeline, spark: Any, act: str, **options: Any) -> None:
    """Work, until the first step is interrupted after `act`."""
    with pytest.raises(PipelineError, match="InterruptedStepError"):
        finish(pipeline, spark, on_phase=interrupt_at(act), **options)


def maps(pipeline: Pipeline) -> list[dict[str, Any]]:
    """The backing log as a person reads it, without the times."""
    found = [json.loads(msgspec.json.encode(each)) for each in read_maps(pipeline.paths.backing)]
    return [{k: v for k, v in each.items() if k != "time"} for each in found]


def hashes(found: list[dict[str, Any]]) -> dict[tuple[str, int], set[str]]:
    """The hashes under which each step was ever attempted."""
    known: dict[tuple[str, int], set[str]] = {}
    for each in found:
        if each["type"] == "attempt":
            known.setdefault((each["processor"], each["step"]), set()).add(each["hash"])
    return known
