"""Steps: the input offsets of a micro-batch, and the hash that identifies it.

Spark writes the offsets of a batch to its checkpoint before it runs the batch, and repeats the
batch with the same offsets after a crash: that file is the step's recovery map. Spark does not
sync it, so `make_durable` does, before any output relies on it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pillarbox.spark.errors import OptionError
from pillarbox.spark.files import Files, files_at
from pillarbox.spark.location import location_of

_VERSIONS = ("v1", "v2")


@dataclass(frozen=True, slots=True)
class Input:
    """The range that a step reads from one source: `start` (None: from the beginning) to `end`."""

    start: str | None
    end: str | None


@dataclass(frozen=True, slots=True)
class Step:
    """One batch of one processor. A batch with the same inputs has the same hash."""

    processor: str
    number: int
    hash: str
    #: Start and end index (exclusive) of each input, by its name in a pipeline.
    inputs: Mapping[str, tuple[int | None, int]] = field(default_factory=dict)
    #: The number of times the processor was reset. Step numbers restart at 0 with each reset.
    generation: int = 0
    #: The offsets of each source of the query, as Spark wrote them.
    offsets: tuple[Input, ...] = ()

    @property
    def writer(self) -> str:
        """The id that the step is committed under; a reset processor gets a new one."""
        return writer_id(self.processor, self.generation)

    @property
    def starts(self) -> list[str | None]:
        """The start offset of each source, as Spark wrote it."""
        return [each.start for each in self.offsets]

    @property
    def ends(self) -> list[str | None]:
        """The end offset of each source, as Spark wrote it."""
        return [each.end for each in self.offsets]


def writer_id(processor: str, generation: int) -> str:
    return f"{processor}@{generation}" if generation else processor


def read_step(checkpoint: str, batch_id: int, processor: str, generation: int = 0) -> Step:
    """Return the step of a batch, from the offsets in Spark's checkpoint."""
    times, ends = _offsets(checkpoint, batch_id)
    starts: list[str | None] = [None] * len(ends)
    if batch_id > 0:
        before = _offsets(checkpoint, batch_id - 1)[1]
        starts[: len(before)] = before
    offsets = tuple(Input(start, end) for start, end in zip(starts, ends, strict=True))
    # A batch without new data (caused by a watermark, for example) is identified by its times.
    idle = all(each.start == each.end for each in offsets)
    hash_ = step_hash(writer_id(processor, generation), offsets, times if idle else None)
    return Step(processor, batch_id, hash_, generation=generation, offsets=offsets)


def named_step(processor: str, name: str) -> Step:
    """Return the step of a batch job that names its step."""
    offsets = (Input(None, name),)
    return Step(processor, -1, step_hash(processor, offsets, None), offsets=offsets)


def step_hash(writer: str, offsets: tuple[Input, ...], times: list[int] | None) -> str:
    """Return the SHA-256 of everything that identifies a step, in hex."""
    parts = [writer, [[each.start, each.end] for each in offsets], times]
    return hashlib.sha256(json.dumps(parts, separators=(",", ":")).encode()).hexdigest()


def make_durable(checkpoint: str, batch_id: int) -> None:
    """Sync the offsets of a batch to disk, with the directories that contain them."""
    files = _files(checkpoint)
    files.sync(f"offsets/{batch_id}", "offsets")
    if batch_id == 0:
        with contextlib.suppress(FileNotFoundError):
            files.sync("metadata")
        files.sync("", "..")


def query_id(checkpoint: str) -> str:
    """Return the id of a query, which is stored in its checkpoint."""
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
            f"an exactly-once write to a log needs its checkpoint, but {checkpoint} is neither a"
            " directory nor a remote store that Pillarbox supports; use one of those"
        )
    return files_at(location)


def _offsets(checkpoint: str, batch_id: int) -> tuple[list[int], list[str | None]]:
    """Return the times and the end offset of each source of a batch, from the checkpoint."""
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
            f"{checkpoint}/{name} has a format that this version of Pillarbox can't read:"
            f" {version}; upgrade Pillarbox"
        )
    metadata: dict[str, Any] = json.loads(head)
    times = [int(metadata.get(key, 0)) for key in ("batchWatermarkMs", "batchTimestampMs")]
    return times, [None if source == "-" else source for source in sources]
