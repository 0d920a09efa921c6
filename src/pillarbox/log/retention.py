"""How long a log keeps its records: by age and size, in whole segments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pillarbox.log.catalog import Segment


@dataclass(frozen=True, slots=True)
class Retention:
    """Limits of a log; None means no limit. Pins and named tailers keep records longer."""

    age_seconds: float | None = None
    bytes: int | None = None


def first_to_keep(segments: Sequence[Segment], retention: Retention, now_ns: int) -> int:
    """The first index that the retention keeps."""
    total = sum(segment.size_bytes for segment in segments)
    for segment in segments:
        too_old = retention.age_seconds is not None and (
            segment.max_time_ns < now_ns - int(retention.age_seconds * 1e9)
        )
        too_large = retention.bytes is not None and total > retention.bytes
        if not segment.sealed or not (too_old or too_large):
            return segment.base_index
        total -= segment.size_bytes
    return segments[-1].end_index if segments else 0
