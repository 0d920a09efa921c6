"""A segment file as verify and repair see it: everything that can still be read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from pillarbox.log.commit_frames import Commit, decode_commit
from pillarbox.log.disk import Disk, Mapping, opened
from pillarbox.log.frame import COMMIT, DATA, FOOTER, HEADER_BYTES, FrameHeader
from pillarbox.log.layout import (
    BLOCK_BYTES,
    STAGED,
    SegmentHeader,
    base_of_name,
    decode_segment_header,
    guess_segment_header,
    segment_name,
)
from pillarbox.log.scan import frames_after


@dataclass(slots=True, eq=False)
class SalvagedSegment:
    """A segment file: its header, if known, and its valid frames in order."""

    name: str
    image: Mapping
    header: SegmentHeader | None
    frames: list[FrameHeader] = field(default_factory=list)
    #: Its first index in the log: from its name, until a better source is found.
    base: int = 0
    #: Whether the header block fails its checksum and `header` was inferred from the frames.
    guessed: bool = False
    #: Whether it must be rewritten.
    damaged: bool = False

    @property
    def known(self) -> SegmentHeader:
        assert self.header is not None
        return self.header

    @property
    def staged(self) -> bool:
        return bool(self.known.flags & STAGED)

    @property
    def shift(self) -> int:
        """The difference between an index of the log and one in this file."""
        return self.base - self.known.base_index

    @property
    def end(self) -> int:
        """The index after its last valid record."""
        return self.frames[-1].end_index + self.shift if self.frames else self.base

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


def load(disk: Disk, directory: str, file: str, name: str) -> SalvagedSegment:
    """Read the segment in `file`, whose segment name is `name`."""
    path = f"{directory}/{file}"
    with opened(disk, path) as handle:
        image = disk.map(handle, disk.size(handle))
    block = image[:BLOCK_BYTES]
    base = base_of_name(name)
    header = decode_segment_header(block, path)
    if header is not None:
        frames = list(frames_after(image, header, BLOCK_BYTES))
        return SalvagedSegment(file, image, header, frames, base)
    found = SalvagedSegment(file, image, None, base=base, guessed=True, damaged=True)
    try_headers(found, guess_segment_header(block), adopted=name != segment_name(base))
    return found


def try_headers(found: SalvagedSegment, guesses: Iterable[SegmentHeader], *, adopted: bool) -> None:
    """Use the first of these headers under which the file has a valid frame."""
    for guess in guesses:
        frames = list(frames_after(found.image, guess, BLOCK_BYTES))
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
