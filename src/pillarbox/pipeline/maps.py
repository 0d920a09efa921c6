"""What is written about steps: recovery and attempt maps, and where a processor was sent.

A recovery map is written before a step and says what the step reads; an attempt map follows
and says under which hash, and from which index on, its outputs would be found.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass

import msgspec

#: First index that was not read yet, and first index that is not read in this step.
Range = tuple[int | None, int]


class Recovery(msgspec.Struct, frozen=True, kw_only=True, tag="recover", tag_field="type"):
    """What a step is about to read."""

    processor: str
    step: int
    inputs: dict[str, Range]
    time: datetime.datetime


class Attempt(msgspec.Struct, frozen=True, kw_only=True, tag="attempt", tag_field="type"):
    """Under which hash the step's outputs are committed, each at this index or after it."""

    processor: str
    step: int
    hash: str
    outputs: dict[str, int]
    time: datetime.datetime


class Reset(msgspec.Struct, frozen=True, kw_only=True, tag="reset", tag_field="type"):
    """Somebody sent a processor to another place; it begins there as a new generation."""

    processor: str
    generation: int
    inputs: dict[str, int]
    time: datetime.datetime


class Renamed(msgspec.Struct, frozen=True, kw_only=True, tag="renamed", tag_field="type"):
    """The processor has another id now; its state was moved there."""

    processor: str
    to: str
    time: datetime.datetime


Map = Recovery | Attempt | Reset | Renamed


@dataclass(slots=True)
class ProcessorState:
    """The newest maps of one processor."""

    recovery: Recovery | None = None
    attempt: Attempt | None = None
    reset: Reset | None = None
    renamed: Renamed | None = None

    def take(self, map_: Map) -> None:
        if isinstance(map_, Recovery):
            self.recovery = map_
        elif isinstance(map_, Attempt):
            self.attempt = map_
        elif isinstance(map_, Reset):
            self.reset, self.recovery, self.attempt = map_, None, None
        else:
            self.renamed = map_
        if not isinstance(map_, Renamed):
            self.renamed = None

    def maps(self) -> list[Map]:
        """In the order in which taking them leads here again."""
        known = (self.reset, self.recovery, self.attempt, self.renamed)
        return [map_ for map_ in known if map_ is not None]

    @property
    def generation(self) -> int:
        return self.reset.generation if self.reset else 0

    @property
    def tried(self) -> Attempt | None:
        """The attempt of the step that the recovery map speaks of."""
        if self.attempt and self.recovery and self.attempt.step == self.recovery.step:
            return self.attempt
        return None
