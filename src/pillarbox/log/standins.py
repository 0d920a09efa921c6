"""What a repair puts in the place of segments that are gone: segments of lost records.

Each is what its neighbours expect: it has the epoch by which the next segment, or a commit,
knows the one that is gone. So a log that was repaired is checked as strictly as any other.
"""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Iterator, Sequence

from pillarbox.log.commits import Commit
from pillarbox.log.layout import STAGED, SegmentHeader, base_of_name, segment_name
from pillarbox.log.placement import Placement
from pillarbox.log.salvage import Found
from pillarbox.log.segment import new_epoch

StandIn = tuple[SegmentHeader, int, int]  # the header, and the range of indices


def stand_ins(
    placement: Placement, first: int, end: int, commits: dict[str, Commit]
) -> Iterator[StandIn]:
    """What stands for the records `first` up to `end`; adds the commits that it needs."""
    order = placement.order
    before = next((each for each in reversed(order) if each.end <= first and each.base < end), None)
    following = order[order.index(before) + 1 :] if before is not None else order
    after = following[0] if following else None
    wanted = after.known.previous_epoch if after is not None and not after.staged else None
    previous = before.known.epoch if before is not None else None
    for name, epoch, file_end in _committed(order, first, end):
        known = wanted if wanted and file_end == end else epoch or new_epoch()
        header = SegmentHeader(secrets.token_bytes(16), known, 0, 0, 0, STAGED)
        yield header, base_of_name(name), file_end
        first, previous = file_end, known
    if first == end:
        return
    epoch = wanted or new_epoch()
    if before is not None and not before.staged and before.base == first:
        # Its name is taken by an empty segment, whose commit is gone as well.
        name = segment_name(first, adopted=True)
        commits[before.right_name] = lost_commit(following, (name, first, epoch), end)
        before.damaged = True
        yield SegmentHeader(secrets.token_bytes(16), epoch, 0, 0, 0, STAGED), first, end
        return
    if after is not None and after.staged:
        commits[segment_name(first)] = lost_commit(following)
    yield SegmentHeader(placement.log_id, epoch, first, 0, 0, previous_epoch=previous), first, end


def _committed(
    order: Sequence[Found], first: int, end: int
) -> Iterator[tuple[str, int | None, int]]:
    """The adopted segments that begin at `first` and one after another, up to `end` at most."""
    for commit in (commit for each in order if not each.staged for commit in each.adoptions()):
        ends = [*map(base_of_name, commit.files[1:]), commit.end_index]
        epochs: list[int | None] = [*commit.epochs] or [None] * len(ends)
        for name, epoch, file_end in zip(commit.files, epochs, ends, strict=True):
            if base_of_name(name) == first and file_end <= end:
                yield name, epoch, file_end
                first = file_end


def lost_commit(
    following: Sequence[Found], also: tuple[str, int, int] | None = None, end: int = 0
) -> Commit:
    """What stands for the commit of the adopted segments that come next."""
    run = list(itertools.takewhile(lambda each: each.staged, following))
    named = [(each.right_name, each.base, each.known.epoch) for each in run]
    if also is not None:
        named.insert(0, also)
    end = run[-1].end if run else end
    names, bases, epochs = map(list, zip(*named, strict=True))
    return Commit(bases[0], end, names, b"", 0, epochs=epochs, lost=True)
