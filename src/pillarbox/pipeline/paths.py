"""Where a pipeline stores its files: below one directory, or one URL of a remote store.

<path>/backing           the log of recovery and attempt maps; on a remote store also the claim
<path>/checkpoints/<id>  Spark's own files, one directory for each processor and generation
<path>/logs/<name>       logs declared without a URL: Delta tables; in a directory, row logs for
                         generators
<path>/errors/<id>       the error log of a processor
<path>/running           in a directory: locked by the process that runs the pipeline
<path>/working           in a directory: locked while another process executes a batch for the run
<path>/status.json       live metrics
"""

from __future__ import annotations

from dataclasses import dataclass

from pillarbox.log import Log, LogReader
from pillarbox.mailbox.data_directory import data_directory_at
from pillarbox.spark.files import files_at
from pillarbox.spark.location import is_remote_store, location_of, spark_path
from pillarbox.spark.table import TableLog, is_table, table_at


def exists(url: str) -> bool:
    """Return whether there is a log or a store at this URL; True for any server."""
    location = location_of(url)
    return location is None or is_table(location) or log_behind(url) is not None


def open_readable(url: str) -> TableLog | LogReader | None:
    """Open the log at this URL for reading; return None if there is none."""
    if (table := table_at(url)) is not None:
        return table
    directory = log_behind(url)
    return None if directory is None else Log.open(directory, readonly=True)


def log_behind(url: str) -> str | None:
    """Return the directory of the row log at this URL: for a mailbox, that of its store.

    None if it is a typed log, which may be in the directory of a store, like a mailbox.
    """
    location = location_of(url)
    if location is None or is_remote_store(location) or is_table(location):
        return None
    data = data_directory_at(location)
    return None if data is None else data.log


@dataclass(frozen=True, slots=True)
class Paths:
    """The file locations of one pipeline."""

    path: str

    @property
    def on_remote_store(self) -> bool:
        return is_remote_store(self.path)

    @property
    def backing(self) -> str:
        return f"{self.path}/backing"

    @property
    def running(self) -> str:
        return f"{self.path}/running"

    @property
    def working(self) -> str:
        return f"{self.path}/working"

    @property
    def status(self) -> str:
        return f"{self.path}/status.json"

    def log_url(self, name: str) -> str:
        return spark_path(f"{self.path}/logs/{name}")

    def errors(self, processor_id: str) -> str:
        return f"{self.path}/errors/{processor_id}"

    def checkpoint(self, processor_id: str) -> str:
        """Return Spark's checkpoint of a processor, by its id with the generation."""
        return f"{self.path}/checkpoints/{processor_id}"


def newest_batch(checkpoint: str) -> int | None:
    """Return the newest batch in Spark's offset log, or None."""
    names = files_at(checkpoint).names("offsets")
    return max((int(name) for name in names if name.isdigit()), default=None)


def is_batch_done(checkpoint: str, batch_id: int) -> bool:
    """Return whether a batch is in Spark's commit log."""
    return str(batch_id) in files_at(checkpoint).names("commits")
