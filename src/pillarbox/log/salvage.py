"""What verify and repair can still read, and which files make up the log, in which order.

A header names its log and its first index. Files of another log, or that contradict the rest, are
rejected. Among contradictory files, the larger part wins: the most files, then the most that link
to each other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from pillarbox.log.directory import MOVED_SUFFIX, LogDirectory, base_of_name, segment_name
from pillarbox.log.disk import Mapping
from pillarbox.log.frame import DATA, FOOTER, HEADER_BYTES, FrameHeader
from pillarbox.log.layout import (
    BLOCK_BYTES,
    SegmentHeader,
    decode_segment_header,
    guess_segment_header,
)
from pillarbox.log.segments import NO_ID, contradicts, valid_frames

Progress = Callable[[int, int], None]
#: Number of files, of links between them, of records, and of files with the right name.
_Score = tuple[int, int, int, int]
_UNKNOWN = SegmentHeader(NO_ID, 0, 0, 0, 0)
_UNREADABLE = "its header can't be read, so nothing in it can be checked"


@dataclass(slots=True, eq=False)
class SalvagedSegment:
    """A segment file: its header, if known, and its valid frames in order."""

    name: str
    image: Mapping
    header: SegmentHeader
    frames: list[FrameHeader] = field(default_factory=list)
    #: Whether the header block fails its checksum; then `header` is inferred from the frames.
    guessed: bool = False
    #: Whether it must be rewritten, with LOST frames up to this index.
    damaged: bool = False
    lost_to: int = 0

    @property
    def base(self) -> int:
        """Its first index."""
        return self.header.base_index

    @property
    def end(self) -> int:
        """The index after its last valid record."""
        return self.frames[-1].end_index if self.frames else self.base

    @property
    def end_offset(self) -> int:
        return self.frames[-1].end_offset if self.frames else BLOCK_BYTES

    @property
    def time_ns(self) -> int:
        return self.frames[-1].time_ns if self.frames else 0

    @property
    def sealed(self) -> bool:
        return bool(self.frames) and self.frames[-1].kind == FOOTER

    @property
    def right_name(self) -> str:
        return segment_name(self.base)

    @property
    def records(self) -> int:
        return sum(frame.count for frame in self.frames if frame.kind == DATA)

    def payload(self, frame: FrameHeader) -> bytes:
        return self.image[frame.offset + HEADER_BYTES : frame.end_offset]


def load_all(directory: LogDirectory, progress: Progress | None) -> list[SalvagedSegment]:
    """Read every segment file, including those that a killed repair was renaming."""
    names = directory.segment_names(MOVED_SUFFIX)
    files = []
    for at, name in enumerate(names):
        files.append(_load(directory, name))
        if progress is not None:
            progress(at + 1, len(names))
    return files


def _load(directory: LogDirectory, name: str) -> SalvagedSegment:
    image = directory.map(name)
    block = image[:BLOCK_BYTES]
    header = decode_segment_header(block, directory.path_of(name))
    if header is not None:
        return SalvagedSegment(name, image, header, list(valid_frames(image, header)))
    found = SalvagedSegment(name, image, _UNKNOWN, guessed=True, damaged=True)
    _try_headers(found, guess_segment_header(block))
    return found


def _try_headers(found: SalvagedSegment, guesses: Iterable[SegmentHeader]) -> None:
    """Use the first of these headers under which the file has a valid frame."""
    for guess in guesses:
        frames = list(valid_frames(found.image, guess))
        if frames:
            base = _base(frames[0], base_of_name(found.name), guess.base_index)
            found.header = guess._replace(base_index=base, previous_epoch=None)
            found.frames = frames
            return


def _base(first: FrameHeader, *guesses: int) -> int:
    """Return the first index of a segment, given its first frame that is left."""
    if first.offset == BLOCK_BYTES:
        return first.first_index
    return max((base for base in guesses if base <= first.first_index), default=first.first_index)


@dataclass(slots=True)
class SegmentOrder:
    """The segments of a log in order, and the rejected files with reasons."""

    order: list[SalvagedSegment] = field(default_factory=list)
    rejected: list[tuple[SalvagedSegment, str]] = field(default_factory=list)
    log_id: bytes = NO_ID
    #: Whether the directory contains as much of another log.
    unsure: bool = False


def order_segments(files: Sequence[SalvagedSegment], log_id: bytes) -> SegmentOrder:
    """Find the segments of one log: the one with this id, if there is any of it."""
    result = SegmentOrder()
    _choose_log(files, log_id, result)
    _try_neighbours(files, result.log_id)
    candidates = []
    for each in files:
        if each.header is _UNKNOWN:
            result.rejected.append((each, _UNREADABLE))
        elif each.header.log_id not in (result.log_id, NO_ID):
            result.rejected.append((each, "it belongs to another log"))
        else:
            candidates.append(each)
    result.order = _best_chain(candidates)
    chosen = set(map(id, result.order))
    result.rejected.extend(
        (each, _why_not(each, result.order)) for each in candidates if id(each) not in chosen
    )
    return result


def _choose_log(files: Sequence[SalvagedSegment], log_id: bytes, result: SegmentOrder) -> None:
    sizes: dict[bytes, list[int]] = defaultdict(lambda: [0, 0])
    for each in files:
        if each.header.log_id != NO_ID:
            sizes[each.header.log_id][0] += 1
            sizes[each.header.log_id][1] += each.records
    if log_id in sizes or (log_id and not sizes):
        result.log_id = log_id
    elif sizes:
        result.log_id = max(sizes, key=sizes.__getitem__)
        result.unsure = list(sizes.values()).count(sizes[result.log_id]) > 1


def _try_neighbours(files: Sequence[SalvagedSegment], log_id: bytes) -> None:
    """Identify files without a header as the predecessor that another header names."""
    known = [each.header for each in files if each.header is not _UNKNOWN]
    named = {header.previous_epoch for header in known} - {header.epoch for header in known}
    guesses = [SegmentHeader(log_id, epoch, 0, 0, 0) for epoch in named if epoch]
    for each in files:
        if each.header is _UNKNOWN:
            _try_headers(each, guesses)


def _best_chain(candidates: list[SalvagedSegment]) -> list[SalvagedSegment]:
    """Return the consistent sequence of segments with the best score."""
    line = sorted(candidates, key=lambda each: (each.base, each.name))
    if all(_can_follow(b, a) for a, b in pairwise(line)):
        return line
    best: list[tuple[_Score, int]] = []
    for position, found in enumerate(line):
        ways = [((0, 0, 0, 0), -1)]
        ways += [
            (_sum(best[i][0], (0, _is_linked(found, line[i]), 0, 0)), i)
            for i in range(position)
            if _can_follow(found, line[i])
        ]
        score, before = max(ways)
        own = (1, 0, found.records, found.name == found.right_name)
        best.append((_sum(score, own), before))
    chain: list[SalvagedSegment] = []
    at = max(range(len(line)), key=lambda position: best[position][0], default=-1)
    while at >= 0:
        chain.append(line[at])
        at = best[at][1]
    return chain[::-1]


def _sum(a: _Score, b: _Score) -> _Score:
    return a[0] + b[0], a[1] + b[1], a[2] + b[2], a[3] + b[3]


def _can_follow(found: SalvagedSegment, before: SalvagedSegment) -> bool:
    if found.base < before.end or found.right_name == before.right_name:
        return False
    adjacent = found.base == before.end
    return not adjacent or not contradicts(found.header, before.header)


def _is_linked(found: SalvagedSegment, before: SalvagedSegment) -> bool:
    return found.header.previous_epoch == before.header.epoch


def _why_not(found: SalvagedSegment, order: Iterable[SalvagedSegment]) -> str:
    for each in order:
        if each.header.epoch == found.header.epoch:
            return f"it is another copy of {each.right_name}"
    return "it contradicts the segments around it"
