"""What verify and repair can still read, and which files make up the log, in which order.

A header names its log and its first index; a commit names the files that it adopted. Files of
another log, or that contradict the rest, are rejected. Among contradictory files, the larger
part wins: the most files, then the most that link to each other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from pillarbox.log.commits import Commit, decode_commit
from pillarbox.log.directory import (
    MOVED_SUFFIX,
    LogDirectory,
    base_of_name,
    is_segment_name,
    segment_name,
)
from pillarbox.log.disk import Mapping
from pillarbox.log.frame import COMMIT, DATA, FOOTER, HEADER_BYTES, FrameHeader
from pillarbox.log.layout import (
    BLOCK_BYTES,
    STAGED,
    SegmentHeader,
    decode_segment_header,
    guess_segment_header,
)
from pillarbox.log.segment_links import NO_ID, contradicts
from pillarbox.log.segments import valid_frames

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
    #: Its first index in the log: from its name, until a better source is found.
    base: int = 0
    #: Whether the header block fails its checksum; then `header` is inferred from the frames.
    guessed: bool = False
    #: Whether it must be rewritten, with LOST frames up to this index and with this commit.
    damaged: bool = False
    lost_to: int = 0
    lost_commit: Commit | None = None

    @property
    def staged(self) -> bool:
        return self.header.staged

    @property
    def shift(self) -> int:
        """The difference between an index of the log and one in this file."""
        return self.base - self.header.base_index

    @property
    def end(self) -> int:
        """The index after its last valid record."""
        return self.frames[-1].end_index + self.shift if self.frames else self.base

    @property
    def full_end(self) -> int:
        """The index after its last record, including lost ones."""
        return max(self.end, self.lost_to)

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
        return segment_name(self.base, adopted=self.staged)

    @property
    def records(self) -> int:
        return sum(frame.count for frame in self.frames if frame.kind == DATA)

    def payload(self, frame: FrameHeader) -> bytes:
        return self.image[frame.offset + HEADER_BYTES : frame.end_offset]

    def adoptions(self) -> Iterator[Commit]:
        """The commits that name adopted segments."""
        for frame in self.frames:
            if frame.kind == COMMIT:
                commit = decode_commit(frame, self.payload(frame))
                if commit.files:
                    yield commit


def load_all(directory: LogDirectory, progress: Progress | None) -> list[SalvagedSegment]:
    """Read every segment file, including those that a killed repair was renaming."""
    names = [(file, file.removesuffix(MOVED_SUFFIX)) for file in directory.names()]
    names = [(file, name) for file, name in names if is_segment_name(name)]
    files = []
    for at, (file, name) in enumerate(names):
        files.append(_load(directory, file, name))
        if progress is not None:
            progress(at + 1, len(names))
    return files


def _load(directory: LogDirectory, file: str, name: str) -> SalvagedSegment:
    """Read the segment in `file`, whose segment name is `name`."""
    image = directory.map(file)
    block = image[:BLOCK_BYTES]
    base = base_of_name(name)
    header = decode_segment_header(block, directory.path_of(file))
    if header is not None:
        frames = list(valid_frames(image, header))
        return SalvagedSegment(file, image, header, frames, base)
    found = SalvagedSegment(file, image, _UNKNOWN, base=base, guessed=True, damaged=True)
    _try_headers(found, guess_segment_header(block), adopted=name != segment_name(base))
    return found


def _try_headers(
    found: SalvagedSegment, guesses: Iterable[SegmentHeader], *, adopted: bool
) -> None:
    """Use the first of these headers under which the file has a valid frame."""
    for guess in guesses:
        frames = list(valid_frames(found.image, guess))
        if frames:
            base = 0 if adopted else _base(frames[0], found.base, guess.base_index)
            # Trust the name for what the checksum of a frame does not cover.
            flags = STAGED if adopted else 0
            found.header = guess._replace(base_index=base, flags=flags, previous_epoch=None)
            found.frames = frames
            return


def _base(first: FrameHeader, *guesses: int) -> int:
    """The first index of a segment, given its first frame that is left."""
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

    def adoptions(self) -> Iterator[Commit]:
        """The commits of the log that name adopted segments."""
        for each in self.order:
            if not each.staged:
                yield from each.adoptions()


def order_segments(files: Sequence[SalvagedSegment], log_id: bytes) -> SegmentOrder:
    """Find the segments of one log: the one with this id, if there is any of it."""
    result = SegmentOrder()
    _choose_log(files, log_id, result)
    _try_neighbours(files, result.log_id)
    candidates, adopted = [], []
    for each in files:
        if each.header is _UNKNOWN or (each.staged and not each.frames):
            result.rejected.append((each, _UNREADABLE))
        elif each.staged:
            adopted.append(each)
        elif each.header.log_id not in (result.log_id, NO_ID):
            result.rejected.append((each, "it belongs to another log"))
        else:
            each.base = each.header.base_index
            candidates.append(each)
    _add_adopted(adopted, candidates, result)
    result.order = _best_chain(candidates)
    chosen = set(map(id, result.order))
    result.rejected.extend(
        (each, _why_not(each, result.order)) for each in candidates if id(each) not in chosen
    )
    return result


def _add_adopted(
    adopted: list[SalvagedSegment], candidates: list[SalvagedSegment], result: SegmentOrder
) -> None:
    """Add the adopted segments that belong to the log to the candidates."""
    commits = [commit for each in candidates for commit in each.adoptions()]
    named = {epoch for commit in commits for epoch in commit.epochs}
    followed = {(each.base, each.header.previous_epoch) for each in candidates}
    bases: dict[int, set[int]] = defaultdict(set)
    for each in adopted:
        bases[each.header.epoch].add(each.base)
    for each in adopted:
        epoch = each.header.epoch
        what = _why_not_adopted(each, commits)
        known = epoch in named or (each.end, epoch) in followed
        if what is None and not known and len(bases[epoch]) > 1:
            what = "there are several copies of it, and no commit says where it belongs"
        if what is None:
            candidates.append(each)
        else:
            result.rejected.append((each, what))


def _choose_log(files: Sequence[SalvagedSegment], log_id: bytes, result: SegmentOrder) -> None:
    sizes: dict[bytes, list[int]] = defaultdict(lambda: [0, 0])
    for each in files:
        if not each.staged and each.header.log_id != NO_ID:
            sizes[each.header.log_id][0] += 1
            sizes[each.header.log_id][1] += each.records
    if log_id in sizes or (log_id and not sizes):
        result.log_id = log_id
    elif sizes:
        result.log_id = max(sizes, key=sizes.__getitem__)
        result.unsure = list(sizes.values()).count(sizes[result.log_id]) > 1


def _try_neighbours(files: Sequence[SalvagedSegment], log_id: bytes) -> None:
    """A file without a header may be the predecessor that another header names."""
    known = [each.header for each in files if each.header is not _UNKNOWN]
    named = {header.previous_epoch for header in known} - {header.epoch for header in known}
    guesses = [SegmentHeader(log_id, epoch, 0, 0, 0) for epoch in named if epoch]
    for each in files:
        if each.header is _UNKNOWN:
            _try_headers(each, guesses, adopted=False)


def _why_not_adopted(found: SalvagedSegment, commits: Iterable[Commit]) -> str | None:
    """Set the first index of an adopted segment by its commit; or why it has none."""
    named = covering = None
    for commit in commits:
        if found.header.epoch in commit.epochs:
            found.base = base_of_name(commit.files[commit.epochs.index(found.header.epoch)])
            return None
        if found.right_name in commit.files:
            named = commit
        if commit.first_index <= found.base < commit.end_index:
            covering = commit
    if named is None:  # its commit may be dropped or damaged
        fits = covering is None and found.name.startswith(found.right_name)
        return None if fits else "no commit names it"
    if named.epochs:
        return "another file was committed under its name"
    ends = [*map(base_of_name, named.files[1:]), named.end_index]
    if found.sealed and found.end != ends[named.files.index(found.right_name)]:
        return "it does not contain as many records as the file committed under its name"
    return None


def _best_chain(candidates: list[SalvagedSegment]) -> list[SalvagedSegment]:
    """The consistent sequence of segments with the best score."""
    line = sorted(candidates, key=lambda each: (each.base, each.staged, each.name))
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
    return found.staged or not adjacent or not contradicts(found.header, before.header)


def _is_linked(found: SalvagedSegment, before: SalvagedSegment) -> bool:
    return not found.staged and found.header.previous_epoch == before.header.epoch


def _why_not(found: SalvagedSegment, order: Iterable[SalvagedSegment]) -> str:
    for each in order:
        if each.header.epoch == found.header.epoch:
            return f"it is another copy of {each.right_name}"
    return "it contradicts the segments around it"
