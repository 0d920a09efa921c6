"""The location of a message in its store's log, packed into one small int."""

from __future__ import annotations

from collections.abc import Iterable

_UNIT_BYTES = 64  # unit of the size in a location
INDEX_SHIFT = 20
_UNITS_MAX = (1 << INDEX_SHIFT) - 1


def location(index: int, length: int) -> int:
    """Pack the log index of a message and its approximate size into one small int."""
    return index << INDEX_SHIFT | min(-(-length // _UNIT_BYTES), _UNITS_MAX)


def locations(index: int, lengths: Iterable[int]) -> list[int]:
    """Return the locations of consecutive messages in the log."""
    most = _UNITS_MAX * _UNIT_BYTES
    return [
        at << INDEX_SHIFT | (min(length, most) + _UNIT_BYTES - 1) // _UNIT_BYTES
        for at, length in enumerate(lengths, index)
    ]


def index_of(location: int) -> int:
    return location >> INDEX_SHIFT


def bytes_of(location: int) -> int:
    return (location & _UNITS_MAX) * _UNIT_BYTES
