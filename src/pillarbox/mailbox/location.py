"""Where a message lies in its store's log, in one int of the small form."""

from __future__ import annotations

from collections.abc import Iterable

_UNIT_BYTES = 64  # in which a location counts the room that a message takes
INDEX_SHIFT = 20
_UNITS_MAX = (1 << INDEX_SHIFT) - 1


def location(index: int, length: int) -> int:
    """Where a message lies in the log, and about how much room it takes, in one small int."""
    return index << INDEX_SHIFT | min(-(-length // _UNIT_BYTES), _UNITS_MAX)


def locations(index: int, lengths: Iterable[int]) -> list[int]:
    """Where messages lie that follow each other in the log."""
    most = _UNITS_MAX * _UNIT_BYTES
    return [
        place << INDEX_SHIFT | (min(length, most) + _UNIT_BYTES - 1) // _UNIT_BYTES
        for place, length in enumerate(lengths, index)
    ]


def index_of(place: int) -> int:
    return place >> INDEX_SHIFT


def bytes_of(place: int) -> int:
    return (place & _UNITS_MAX) * _UNIT_BYTES
