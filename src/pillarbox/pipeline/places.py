"""Where the parts of a pipeline are kept: what a URL means, and the files of its directory.

<path>/backing           the log of recovery and attempt maps
<path>/checkpoints/<id>  Spark's own files, one directory for each processor and generation
<path>/logs/<name>       logs that were given no URL: Delta tables, but for those of generators
<path>/errors/<id>       the log of what failed in a processor
<path>/running           locked by the process that runs it
<path>/working           locked by batches that other processes take for it
<path>/status.json       live figures
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pillarbox.log import Log, LogReader
from pillarbox.spark.errors import OptionError
from pillarbox.spark.place import has_scheme, local_directory, place_of
from pillarbox.spark.table import TableLog, is_table


def directory_of(url: str) -> str | None:
    """The absolute directory behind a `file:` URL or a plain path; None for anything else."""
    elsewhere = has_scheme(url) and not url.startswith("file:")
    return None if elsewhere else local_directory(url)


def exists(url: str) -> bool:
    """Whether there is a log, a store or a mailbox's store at this URL; others are believed."""
    directory = directory_of(url)
    return directory is None or is_table(directory) or log_behind(url) is not None


def open_readable(url: str) -> TableLog | LogReader | None:
    """The log at this URL, to see how far it goes; None if there is none in a directory."""
    directory = directory_of(url)
    if directory is not None and is_table(directory):
        return TableLog(directory)
    behind = log_behind(url)
    return None if behind is None else Log.open(behind, readonly=True)


def log_behind(url: str) -> str | None:
    """The directory of the log that is read at this URL: a store's own, for a mailbox."""
    if directory_of(url) is None:
        return None
    try:
        return place_of(url).log
    except OptionError:
        return None


@dataclass(frozen=True, slots=True)
class Places:
    """The directory of one pipeline."""

    path: str

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
        return f"file:{self.path}/logs/{name}"

    def errors_url(self, processor_id: str) -> str:
        return f"file:{self.path}/errors/{processor_id}"

    def checkpoint(self, processor_id: str) -> str:
        """Spark's checkpoint of a processor, by its id with the generation."""
        return f"{self.path}/checkpoints/{processor_id}"

    def has_checkpoint(self, processor_id: str) -> bool:
        return any(Path(self.checkpoint(processor_id), "offsets").glob("[0-9]*"))
