"""The records of the backing log: recovery maps, attempt maps, resets and renames.

A recovery map is written before a step and lists the offsets that the step reads. An attempt map
follows, with the hash of the step and the first index at which each output may hold it.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from pillarbox.closing import Closing

#: The offsets that a step reads of one input: start (None: the beginning) and exclusive end.
Range = tuple[int | None, int]


class _Map(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    processor: str
    time: datetime.datetime


class Recovery(_Map, frozen=True, kw_only=True, tag="recover"):
    """The offsets that a step is about to read."""

    step: int
    inputs: dict[str, Range]


class Attempt(_Map, frozen=True, kw_only=True, tag="attempt"):
    """The hash that the outputs of a step are committed with, each at or after its index."""

    step: int
    hash: str
    outputs: dict[str, int]


class Reset(_Map, frozen=True, kw_only=True, tag="reset"):
    """A processor was moved to other offsets; it starts there as a new generation."""

    generation: int
    inputs: dict[str, int]


class Renamed(_Map, frozen=True, kw_only=True, tag="renamed"):
    """The processor has a new id, and its state was moved to it."""

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
        """Return all maps, in the order in which replaying them restores this state."""
        maps = (self.reset, self.recovery, self.attempt, self.renamed)
        return [map_ for map_ in maps if map_ is not None]

    @property
    def generation(self) -> int:
        return self.reset.generation if self.reset else 0

    @property
    def tried(self) -> Attempt | None:
        """The attempt map of the step in the recovery map, or None."""
        if self.attempt and self.recovery and self.attempt.step == self.recovery.step:
            return self.attempt
        return None


class LastMaps(Closing):
    """The newest maps of every processor that this process has read or written."""

    def __init__(self) -> None:
        self._states: dict[str, ProcessorState] = {}

    def last(self, processor: str) -> ProcessorState:
        """Return the newest maps of a processor. `write` also loads what others have written."""
        return self._states.setdefault(processor, ProcessorState())

    def states(self) -> dict[str, ProcessorState]:
        """Return the state of every processor that has maps."""
        return {name: state for name, state in self._states.items() if state.maps()}

    def take(self, maps: Iterable[Map]) -> None:
        for map_ in maps:
            self.last(map_.processor).take(map_)

    def newest(self) -> list[Map]:
        return [map_ for state in self._states.values() for map_ in state.maps()]

    def close(self) -> None:
        """Do nothing; subclasses that hold a file open override this."""
