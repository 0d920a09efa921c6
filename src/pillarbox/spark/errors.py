"""Errors of the data source and its sinks. Each says what happened, where, and what to do.

SparkError
├── JavaNotFoundError    no Java 17 or newer was found
├── StorageError         the remote store of a pipeline can't be used
├── OptionError          an option or a column of the data source is wrong
├── DataLossError        retention has removed records that a checkpoint still needs
├── FencedError          a later run of the same processor has taken over
└── DivergedError        the checkpoint and the output disagree about what was done
"""

from __future__ import annotations


class SparkError(Exception):
    """Something went wrong between Pillarbox and Spark."""


class JavaNotFoundError(SparkError):
    """Spark needs Java 17 or newer, and none was found."""


class StorageError(SparkError):
    """The remote store of a pipeline can't be used."""


class OptionError(SparkError, ValueError):
    """An option or a column of the data source is wrong."""


class DataLossError(SparkError):
    """Retention has removed records that a checkpoint still needs."""

    def __init__(self, url: str, start: int, first: int) -> None:
        super().__init__(
            f"the records {start} to {first} (exclusive) of {url} are gone: retention removed them"
            " before they were read. Keep more of the log, or pin it for this reader; to continue"
            " without them, set option failOnDataLoss to false"
        )
        self.url, self.start, self.first = url, start, first

    def __reduce__(self) -> tuple[type[DataLossError], tuple[str, int, int]]:
        return type(self), (self.url, self.start, self.first)


class FencedError(SparkError):
    """A later run of the same processor has taken over; this one can no longer write."""


class DivergedError(SparkError):
    """The checkpoint and the output log disagree about what was done."""
