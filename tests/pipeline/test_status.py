"""The status file, and the graph that is drawn from it alone. No Spark."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pillarbox.log import Log
from pillarbox.pipeline import Pipeline, PipelineError
from pillarbox.pipeline.drawing import mermaid
from pillarbox.pipeline.query import ProgressListener, Query
from pillarbox.pipeline.status import (
    StatusFile,
    ends,
    first_status,
    graph_of,
    labels,
    read_status,
)


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    made = Pipeline("shop", path=tmp_path)
    made.log("orders", bytes, url=f"file:{tmp_path}/orders")
    made.log("large", bytes)
    made.stream(inputs="orders", outputs="large", id="s")(lambda orders: orders)
    return made


def test_R88_lag_and_rate_stand_on_the_edges_of_a_graph_from_the_file(
    pipeline: Pipeline, tmp_path: Path
) -> None:
    with Log.open(tmp_path / "orders") as log:
        log.append_many([b"x"] * 10)
    path = f"{tmp_path}/status.json"
    file = StatusFile(path, first_status("shop", "local[2]", pipeline.graph, {"s"}))
    file.of("s").read["orders"] = 4
    file.of("s").written_per_second["large"] = 1234.0
    file.save()
    status = read_status(path)
    graph = graph_of(status)
    assert mermaid(graph) == pipeline.mermaid()
    assert labels(graph, status, ends(graph)) == {
        ("log:orders", "processor:s"): "lag 6",
        ("processor:s", "log:large"): "1,234/s",
    }


def test_R88_a_reader_never_sees_half_a_file(pipeline: Pipeline, tmp_path: Path) -> None:
    path = f"{tmp_path}/status.json"
    file = StatusFile(path, first_status("shop", "local[2]", pipeline.graph, {"s"}))
    threads = [threading.Thread(target=lambda: [file.save() for _ in range(100)]) for _ in range(3)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        assert read_status(path).pipeline == "shop"
    assert [each.name for each in tmp_path.glob("status*")] == ["status.json"]


def test_R88_no_status_before_the_first_run(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="has never run"):
        read_status(f"{tmp_path}/status.json")


@pytest.mark.parametrize("content", [b"", b"{", b"{}"])
def test_R88_a_file_that_a_power_cut_has_left_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "status.json").write_bytes(content)
    with pytest.raises(PipelineError, match="the next run of the pipeline replaces it"):
        read_status(f"{tmp_path}/status.json")


def test_R88_the_file_shows_no_secret_of_a_mailbox(tmp_path: Path) -> None:
    pipeline = Pipeline("shop", path=tmp_path)
    pipeline.log("orders", bytes, url="http://key:hidden@here:9324/orders")
    pipeline.log("box", bytes, url="abfss://box@account.example/orders")
    path = f"{tmp_path}/status.json"
    StatusFile(path, first_status("shop", "local[2]", pipeline.graph, ()))
    assert read_status(path).logs == {
        "orders": "http://here:9324/orders",
        "box": "abfss://box@account.example/orders",
    }


def test_R88_the_file_is_read_from_any_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    pipeline = Pipeline("shop", path="state")
    pipeline.log("orders", bytes, url="file:./data/orders")
    found = first_status("shop", "local[2]", pipeline.graph, ()).logs
    assert found == {"orders": f"file:{tmp_path}/data/orders"}


def test_R88_a_status_that_can_not_be_written_is_no_reason_to_stop(
    pipeline: Pipeline, tmp_path: Path
) -> None:
    path = f"{tmp_path}/gone/status.json"
    file = StatusFile(path, first_status("shop", "local[2]", pipeline.graph, {"s"}))
    file.note_duration("s", 0, 5)
    assert not (tmp_path / "gone").exists()


def test_R88_durations_of_a_pipeline_with_a_dot_in_its_name(
    pipeline: Pipeline, tmp_path: Path
) -> None:
    first = first_status("shop.v2", "local[2]", pipeline.graph, {"s"})
    file = StatusFile(f"{tmp_path}/status.json", first)
    listener = ProgressListener("shop.v2", file)
    for name, milliseconds in (("shop.v2.s", 7), ("shop.s", 8), (None, 9)):
        progress = SimpleNamespace(name=name, batchId=0, batchDuration=milliseconds)
        listener.onQueryProgress(SimpleNamespace(progress=progress))
    assert file.of("s").durations == [7]


def test_R88_the_duration_of_the_last_batch_is_noted_once(
    pipeline: Pipeline, tmp_path: Path
) -> None:
    """By the listener and at the end of the query, whichever comes first."""
    first = first_status("shop", "local[2]", pipeline.graph, {"s"})
    file = StatusFile(f"{tmp_path}/status.json", first)
    query: Any = SimpleNamespace(status=file, processor=pipeline.graph.processor("s"))
    listener = ProgressListener("shop", file)
    for batch in (0, 1):
        progress = SimpleNamespace(name="shop.s", batchId=batch, batchDuration=7)
        listener.onQueryProgress(SimpleNamespace(progress=progress))
    last: Any = {"batchId": 1, "batchDuration": 7, "durationMs": {"addBatch": 5}}
    idle: Any = {"batchId": 2, "batchDuration": 1, "durationMs": {"latestOffset": 1}}
    for each in (last, idle):
        ended = SimpleNamespace(awaitTermination=lambda: True, lastProgress=each)
        Query.wait_for_end(query, ended)
    assert file.of("s").durations == [7, 7]
