"""The segments with which a repair replaces missing ones: their records are marked as lost.

Each has the epoch by which the next segment, or a commit, refers to the missing one, so that a
repaired log passes the same checks as any other.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from itertools import takewhile, zip_longest

from pillarbox.log.commit_frames import Commit
from pillarbox.log.layout import STAGED, SegmentHeader, base_of_name, segment_name
from pillarbox.log.salvage import SalvagedSegment
from pillarbox.log.segment import new_epoch
from pillarbox.log.segment_order import SegmentOrder

Placeholder = tuple[SegmentHeader, int, int]  # header, first index, end index


def placeholders(
    segments: SegmentOrder, first: int, end: int, commits: dict[str, Commit]
) -> Iterator[Placeholder]:
    """The placeholders for the records `first` up to `end`; adds the commits they need."""
    order = segments.order
    before = next((each for each in reversed(order) if each.end <= first and each.base < end), None)
    following = order[order.index(before) + 1 :] if before is not None else order
    after = following[0] if following else None
    wanted = after.known.previous_epoch if after is not None and not after.staged else None
    previous = before.known.epoch if before is not None else None
    commit = _commit_at(order, first)
    for name, epoch, file_end in _files_of(commit, first, end):
        known = wanted if wanted and file_end == end else epoch or new_epoch()
        header = SegmentHeader(secrets.token_bytes(16), known, 0, 0, 0, STAGED)
        yield header, base_of_name(name), file_end
        first, previous = file_end, known
    named = commit.files if commit is not None else ()
    if first == end and named and (after is None or not after.staged or after.right_name in named):
        return
    epoch = wanted or new_epoch()
    if before is not None and not before.staged and before.base == first:
        # An empty segment, whose commit is lost too, has its name.
        name = segment_name(first, adopted=True)
        commits[before.right_name] = lost_commit(following, (name, first, epoch), end)
        before.damaged = True
        yield SegmentHeader(secrets.token_bytes(16), epoch, 0, 0, 0, STAGED), first, end
        return
    if after is not None and after.staged:
        commits[segment_name(first)] = lost_commit(following)
    yield SegmentHeader(segments.log_id, epoch, first, 0, 0, previous_epoch=previous), first, end


def _commit_at(order: Sequence[SalvagedSegment], first: int) -> Commit | None:
    """The commit that names an adopted segment with this first index, if any."""
    name = segment_name(first, adopted=True)
    commits = (commit for each in order if not each.staged for commit in each.adoptions())
    return next((commit for commit in commits if name in commit.files), None)


def _files_of(commit: Commit | None, first: int, end: int) -> Iterator[tuple[str, int | None, int]]:
    """The adopted segments of a commit between two indices, with epochs and ends."""
    if commit is not None:
        ends = [*map(base_of_name, commit.files[1:]), commit.end_index]
        for name, epoch, file_end in zip_longest(commit.files, commit.epochs, ends):
            if first <= base_of_name(name) and file_end <= end:
                yield name, epoch, file_end


def lost_commit(
    following: Sequence[SalvagedSegment], also: tuple[str, int, int] | None = None, end: int = 0
) -> Commit:
    """The resegments for the commit of the adopted segments that follow."""
    run = list(takewhile(lambda each: each.staged, following))
    named = [(each.right_name, each.base, each.known.epoch) for each in run]
    if also is not None:
        named.insert(0, also)
    end = run[-1].end if run else end
    names, bases, epochs = map(list, zip(*named, strict=True))
    return Commit(bases[0], end, names, b"", 0, epochs=epochs, lost=True)
