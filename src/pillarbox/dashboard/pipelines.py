"""Pipelines as the dashboard shows them, from the status files that their runs leave."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from markupsafe import Markup

_STALE_SECONDS = 60


class Processor(NamedTuple):
    """One processor and its figures."""

    id: str
    kind: str
    state: str
    step: int | None
    rows: int
    rows_per_second: float
    step_milliseconds: int
    lag: int | None
    restarts: int
    error: str | None
    reads: tuple[str, ...]
    writes: tuple[str, ...]


class Summary(NamedTuple):
    """One pipeline."""

    name: str
    master: str
    running: bool
    updated_at: datetime
    processors: list[Processor]
    drawing: str

    @property
    def lag(self) -> int | None:
        known = [p.lag for p in self.processors if p.lag is not None]
        return sum(known) if known else None

    @property
    def drawing_markup(self) -> Markup:
        """The picture that the run itself drew, names escaped."""
        return Markup(self.drawing)  # noqa: S704

    @property
    def errors(self) -> int:
        return sum(p.error is not None for p in self.processors)


class Pipelines:
    """Pipelines by the folders in which they keep their status."""

    def __init__(self, folders: Sequence[str | os.PathLike[str]]) -> None:
        self._folders = [Path(folder) for folder in folders]

    def summaries(self) -> list[Summary]:
        found = (self._read(file) for folder in self._folders for file in _status_files(folder))
        return [summary for summary in found if summary is not None]

    def find(self, name: str) -> Summary | None:
        return next((each for each in self.summaries() if each.name == name), None)

    def _read(self, file: Path) -> Summary | None:
        try:
            status: dict[str, Any] = msgspec.json.decode(file.read_bytes())
            processors = [_processor(each) for each in status["processors"].values()]
            updated = datetime.fromisoformat(status["updated_at"])
        except (OSError, msgspec.DecodeError, KeyError, TypeError, ValueError):
            return None  # not ours, or half gone
        fresh = (datetime.now(UTC) - updated).total_seconds() < _STALE_SECONDS
        drawing = file.with_suffix(".svg")
        return Summary(
            status["pipeline"],
            status["master"],
            fresh and any(p.state == "running" for p in processors),
            updated,
            processors,
            drawing.read_text("utf-8") if drawing.exists() else "",
        )


def _status_files(folder: Path) -> list[Path]:
    return sorted({*folder.glob("status.json"), *folder.glob("*/status.json")})


def _processor(raw: dict[str, Any]) -> Processor:
    lags = raw.get("lag")
    return Processor(
        raw["id"], raw["kind"], raw["state"], raw["step"], raw["rows"], raw["rows_per_second"],
        raw["step_milliseconds"], sum(lags.values()) if lags else None, raw["restarts"],
        raw["error"], tuple(raw["read"]), tuple(raw["written"]),
    )  # fmt: skip
