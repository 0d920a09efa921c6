"""R82, R83: SIGKILL in every window of the algorithm; what is there then, and after a restart.

The processes that die are real ones: the Python workers in which Spark plans, runs and commits.
Everything that the sink puts on disk is put there by them. `test_drivers.py` kills whole drivers.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle

from pillarbox import spark as on_spark
from pillarbox.log import Log
from tests.spark import killing
from tests.spark.support import contents, fill, to_the_end

SMALL = [b"%05d" % number for number in range(30)]
LARGE = [b"%05d" % number + b"." * 5000 for number in range(150)]


@pytest.fixture(scope="module")
def killer(spark: Any) -> Any:
    cloudpickle.register_pickle_by_value(killing)
    spark.dataSource.register(killing.KillingSource)
    return spark


def run(spark: Any, place: Path, rows: int, **options: str) -> None:
    """The stream until it has done everything, or was killed."""
    source = spark.readStream.format("killing").options(**options).schema("body BINARY")
    source = source.option("maxRowsPerTrigger", rows).load(str(place / "in"))
    sink = source.writeStream.format("killing").options(**options).option("processor", "copy")
    sink = sink.option("checkpointLocation", str(place / "cp")).trigger(availableNow=True)
    to_the_end(lambda: sink.start(str(place / "out")))


def killed_in(spark: Any, place: Path, window: str, records: list[bytes], **options: str) -> None:
    fill(place / "in", records)
    marker = place / "marker"
    marker.touch()
    third = len(records) // 3
    with pytest.raises(Exception, match=r"(?i)worker|terminated|exited|crash|EOF"):
        run(spark, place, third, killIn=window, killMarker=str(marker), **options)
    assert not marker.exists(), "nobody was killed"


@pytest.mark.parametrize("window", killing.WINDOWS)
def test_R83_a_kill_in_this_window_loses_and_doubles_nothing(
    killer: Any, tmp_path: Path, window: str
) -> None:
    records = SMALL if window == "torn commit frame" else LARGE
    third = len(records) // 3
    killed_in(killer, tmp_path, window, records)
    # What the kill has left: all of batch 1 or nothing of it, and the offsets of its retry.
    hashes = {
        batch: on_spark.read_step(str(tmp_path / "cp"), batch, "copy").hash for batch in (0, 1)
    }
    Log.open(tmp_path / "out").close()  # the next writer finishes, or drops, what was begun
    done = 2 if killing.WINDOWS[window] else 1
    assert contents(tmp_path / "out") == records[: done * third]
    left = list(on_spark.step_commits(str(tmp_path / "out"), "copy"))
    assert [(each.batch_id, each.hash) for each in reversed(left)] == [
        (batch, hashes[batch]) for batch in range(done)
    ]
    run(killer, tmp_path, third)
    assert contents(tmp_path / "out") == records
    after = list(on_spark.step_commits(str(tmp_path / "out"), "copy"))
    assert [each.batch_id for each in reversed(after)] == [0, 1, 2]
    assert after[-2].hash == hashes[1]


def test_R83_control_with_the_check_off_the_retry_doubles_the_batch(
    killer: Any, tmp_path: Path
) -> None:
    third = len(SMALL) // 3
    killed_in(killer, tmp_path, "after the commit", SMALL, strategy="at-least-once")
    run(killer, tmp_path, third, strategy="at-least-once")
    again = SMALL[third : 2 * third]
    assert contents(tmp_path / "out") == SMALL[: 2 * third] + again + SMALL[2 * third :]
