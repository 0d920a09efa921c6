"""The files and directories of a simulated disk, and their state after a power loss."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

SECTOR_BYTES = 512

#: Selects one of n outcomes, 0 <= outcome < n, such as `random.Random(seed).randrange`.
Choose = Callable[[int], int]

WRITE, TRUNCATE, ALLOCATE = "write", "truncate", "allocate"


@dataclass(slots=True, eq=False)
class Inode:
    """A file: the content that programs see, the durable content, and the changes in between."""

    data: bytearray = field(default_factory=bytearray)
    durable: bytes = b""
    changes: list[tuple[str, int, bytes]] = field(default_factory=list)
    doubtful: list[tuple[str, int, bytes]] = field(default_factory=list)
    locks: dict[int, bool] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class SimDirectory:
    entries: dict[str, Inode] = field(default_factory=dict)
    durable: dict[str, Inode] = field(default_factory=dict)
    changes: list[tuple[str, str, str, Inode]] = field(default_factory=list)
    on_disk: bool = True


def apply_change(data: bytearray, change: tuple[str, int, bytes]) -> None:
    kind, offset, content = change
    size = offset + len(content)
    if kind == TRUNCATE:
        del data[size:]
    if len(data) < size:
        data.extend(bytes(size - len(data)))
    if kind == WRITE:
        data[offset:size] = content


def apply_entry(entries: dict[str, Inode], change: tuple[str, str, str, Inode]) -> None:
    kind, name, new_name, inode = change
    if kind != "set":
        entries.pop(name, None)
    if kind != "del":
        entries[new_name or name] = inode


def survivor(inode: Inode, choose: Choose) -> bytes:
    """Return the content of a file after a crash: the durable part and some of the rest."""
    if not inode.changes and not inode.doubtful:
        return inode.durable
    data = bytearray(inode.durable)
    for change in (*inode.doubtful, *inode.changes):
        for part in _torn(change, choose):
            apply_change(data, part)
    return bytes(data)


def _torn(change: tuple[str, int, bytes], choose: Choose) -> Iterable[tuple[str, int, bytes]]:
    """Return none, all or a part of one change: cut at a byte, or a subset of its sectors."""
    kind, offset, content = change
    if kind != WRITE or len(content) < 2:
        return [change] if choose(2) else []
    outcome = choose(6)
    if outcome == 0:
        return []
    if outcome == 1:
        return [change]
    if outcome == 2:
        cut = 1 + choose(len(content) - 1)
        return [(kind, offset, content[:cut])]
    if outcome == 3:
        cut = 1 + choose(len(content) - 1)
        return [(kind, offset + cut, content[cut:])]
    if outcome == 4:
        # Only the header of a frame, where a torn write is most harmful.
        cut = min(64, len(content) - 1)
        return [(kind, offset, content[:cut])]
    return _some_sectors(change, choose)


def _some_sectors(
    change: tuple[str, int, bytes], choose: Choose
) -> Iterable[tuple[str, int, bytes]]:
    kind, offset, content = change
    position = 0
    while position < len(content):
        length = min(SECTOR_BYTES - (offset + position) % SECTOR_BYTES, len(content) - position)
        if choose(2):
            yield kind, offset + position, content[position : position + length]
        position += length
