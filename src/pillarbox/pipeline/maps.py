"""What is recorded about steps: recovery and attempt maps, resets and renames.

A recovery map is written before a step and says what the step reads; an attempt map follows
and says under which hash, and from which index on, its outputs would be found.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from pillarbox.closing import Closing

#: First index that was not read yet, and first index that is not read in this step.
Range = tuple[int | None, int]


class _Map(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    processor: str
    time: datetime.datetime


class Recovery(_Map, frozen=True, kw_only=True, tag="recover"):
    """What a step is about to read."""

    step: int
    inputs: dict[str, Range]


class Attempt(_Map, frozen=True, kw_only=True, tag="attempt"):
    """Under which hash the step's outputs are committed, each at this index or after it."""

    step: int
    hash: str
    outputs: dict[str, int]


class Reset(_Map, frozen=True, kw_only=True, tag="reset"):
    """A processor was moved to other offsets; it starts there as a new generation."""

    generation: int
    inputs: dict[str, int]


class Renamed(_Map, frozen=True, kw_only=True, tag="renamed"):
    """The processor has another id now; its state was moved there."""

    to: str


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
        """All maps, in the order in which a replay yields this state."""
        known = (self.reset, self.recovery, self.attempt, self.renamed)
        return [map_ for map_ in known if map_ is not None]

    @property
    def generation(self) -> int:
        return self.reset.generation if self.reset else 0

    @property
    def tried(self) -> Attempt | None:
        """The attempt at the step of the recovery map, if there was one."""
        if self.attempt and self.recovery and self.attempt.step == self.recovery.step:
            return self.attempt
        return None


class LastMaps(Closing):
    """The newest maps of every processor, as far as they were read or written here."""

    def __init__(self) -> None:
        self._states: dict[str, ProcessorState] = {}

    def last(self, processor: str) -> ProcessorState:
        """Its newest maps; what other processes wrote is known from the next `write` on."""
        return self._states.setdefault(processor, ProcessorState())

    def known(self) -> dict[str, ProcessorState]:
        """The newest maps of every processor that has some."""
        return {name: state for name, state in self._states.items() if state.maps()}

    def take(self, maps: Iterable[Map]) -> None:
        for map_ in maps:
            self.last(map_.processor).take(map_)

    def newest(self) -> list[Map]:
        return [map_ for state in self._states.values() for map_ in state.maps()]

    def close(self) -> None:
        """Nothing is held open, unless a class says otherwise."""
