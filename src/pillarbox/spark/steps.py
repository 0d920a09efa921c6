"""A step: what one micro-batch reads, and the hash that names it for ever.

Spark writes the offsets of a batch to its checkpoint before it runs the batch, and runs it
again with the same offsets after a crash: that file is the step's recovery map. Spark does not
sync it, so `make_durable` does, before any output relies on it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from dataclasses import dataclass
from typing import Any

from pillarbox.spark.errors import OptionError
from pillarbox.spark.storage import Files, files_at, location_of

_VERSIONS = ("v1", "v2")


@dataclass(frozen=True, slots=True)
class Input:
    """What a step reads of one source: from `start` (None: from its beginning) up to `end`."""

    start: str | None
    end: str | None


@dataclass(frozen=True, slots=True)
class Step:
    """One batch of one processor. The same inputs are the same step, and have the same hash."""

    processor: str
    batch_id: int
    inputs: tuple[Input, ...]
    hash: str

    @property
    def ends(self) -> list[str | None]:
        """Where each input ends, as Spark wrote it."""
        return [each.end for each in self.inputs]

    @property
    def starts(self) -> list[str | None]:
        """Where each input starts, as Spark wrote it."""
        return [each.start for each in self.inputs]


def read_step(checkpoint: str, batch_id: int, processor: str) -> Step:
    """The step that Spark has written ahead as batch `batch_id` of a checkpoint."""
    times, ends = _offsets(checkpoint, batch_id)
    starts: list[str | None] = [None] * len(ends)
    if batch_id > 0:
        before = _offsets(checkpoint, batch_id - 1)[1]
        starts[: len(before)] = before
    inputs = tuple(Input(start, end) for start, end in zip(starts, ends, strict=True))
    # A batch without new data, such as a watermark causes, is told by its times.
    idle = all(each.start == each.end for each in inputs)
    return Step(processor, batch_id, inputs, step_hash(processor, inputs, times if idle else None))


def named_step(processor: str, name: str) -> Step:
    """The step of a batch job that says itself which step it is."""
    inputs = (Input(None, name),)
    return Step(processor, -1, inputs, step_hash(processor, inputs, None))


def step_hash(processor: str, inputs: tuple[Input, ...], times: list[int] | None) -> str:
    """SHA-256 over everything that makes the step what it is, in hex."""
    parts = [processor, [[each.start, each.end] for each in inputs], times]
    return hashlib.sha256(json.dumps(parts, separators=(",", ":")).encode()).hexdigest()


def make_durable(checkpoint: str, batch_id: int) -> None:
    """Sync the offsets of a batch, and the names that lead to them."""
    files = _files(checkpoint)
    files.sync(f"offsets/{batch_id}", "offsets")
    if batch_id == 0:
        with contextlib.suppress(FileNotFoundError):
            files.sync("metadata")
        files.sync("", "..")


def query_id(checkpoint: str) -> str:
    """The id that a query keeps for as long as it keeps its checkpoint."""
    try:
        return str(json.loads(_files(checkpoint).read("metadata"))["id"])
    except (OSError, ValueError, KeyError) as error:
        raise OptionError(
            f"the checkpoint {checkpoint} has no query id; set option processor to a stable name"
        ) from error


def _files(checkpoint: str) -> Files:
    location = location_of(checkpoint)
    if location is None:
        raise OptionError(
            f"exactly-once into a log reads the checkpoint, and {checkpoint} is neither a directory"
            " nor an object store that Pillarbox knows: use one of these"
        )
    return files_at(location)


def _offsets(checkpoint: str, batch_id: int) -> tuple[list[int], list[str | None]]:
    """The times, and the end of each source, that the checkpoint has for a batch."""
    files, name = _files(checkpoint), f"offsets/{batch_id}"
    try:
        text = files.read(name).decode()
        version, head, *sources = text.rstrip("\n").split("\n")
    except (OSError, ValueError) as error:
        raise OptionError(
            f"there are no offsets of batch {batch_id} in the checkpoint {checkpoint}; is it the"
            " checkpoint of the running query?"
        ) from error
    if version not in _VERSIONS:
        raise OptionError(
            f"{checkpoint}/{name} is in a format that this Pillarbox does not know: {version}"
        )
    metadata: dict[str, Any] = json.loads(head)
    times = [int(metadata.get(key, 0)) for key in ("batchWatermarkMs", "batchTimestampMs")]
    return times, [None if source == "-" else source for source in sources]
