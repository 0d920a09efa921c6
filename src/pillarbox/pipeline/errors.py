"""What can be wrong with a pipeline as a whole; what is wrong with a record is in `failures`."""

from __future__ import annotations

from pillarbox.log.errors import holder_of_lock


class PipelineError(Exception):
    """A pipeline can't start, or had to stop. The text says what to do."""

    def __init__(self, message: str, *, problems: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.problems = problems or (message,)


class PipelineRunningError(PipelineError):
    """Another process runs this pipeline."""

    def __init__(self, path: str, pid: int | None) -> None:
        super().__init__(
            f"the pipeline in {path} runs in {holder_of_lock(pid)}; stop that first: its steps and"
            " this one's would be in each other's way"
        )


class OffsetsChangedError(PipelineError):
    """Another run has replaced the offsets of the batch that is running. Nothing was written."""
