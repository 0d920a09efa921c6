"""Which segment files make up a log, and in which order, whatever names they stand under.

A header tells where in which log its segment begins; a commit tells which files it adopted.
What belongs to another log, or contradicts the rest, is left out. Of what contradicts each
other the larger part stays: the most files, then the most that name each other as neighbours.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from pillarbox.log.commits import Commit
from pillarbox.log.layout import SegmentHeader
from pillarbox.log.links import NO_ID, contradicts
from pillarbox.log.salvage import Found, try_headers

#: Files, neighbours that name each other, records, and files under their right names.
_Score = tuple[int, int, int, int]


_UNREADABLE = "its header can't be read, and nothing can be checked without it"


@dataclass(slots=True)
class Placement:
    """The segments of a log in order, and the files that are none of them, with the reason."""

    order: list[Found] = field(default_factory=list)
    rejected: list[tuple[Found, str]] = field(default_factory=list)
    log_id: bytes = NO_ID
    #: Whether there is as much of another log in the directory as of this one.
    unsure: bool = False


def place(files: Sequence[Found], log_id: bytes) -> Placement:
    """Find the segments of one log: that with this id, if there is any of it."""
    result = Placement()
    _choose_log(files, log_id, result)
    _try_neighbours(files, result.log_id)
    candidates, adopted = [], []
    for each in files:
        if each.header is None:
            result.rejected.append((each, _UNREADABLE))
        elif each.staged:
            adopted.append(each)
        elif each.known.log_id not in (result.log_id, NO_ID):
            result.rejected.append((each, "it belongs to another log"))
        else:
            each.base = each.known.base_index
            candidates.append(each)
    commits = [commit for each in candidates for commit in each.adoptions()]
    for each in adopted:
        what = _adopted_misfit(each, commits)
        if what is None:
            candidates.append(each)
        else:
            result.rejected.append((each, what))
    result.order = _best_chain(candidates)
    result.rejected.extend(
        (each, _why_not(each, result.order)) for each in candidates if each not in result.order
    )
    return result


def _choose_log(files: Sequence[Found], log_id: bytes, result: Placement) -> None:
    sizes: dict[bytes, list[int]] = defaultdict(lambda: [0, 0])
    for each in files:
        if each.header is not None and not each.staged and each.known.log_id != NO_ID:
            sizes[each.known.log_id][0] += 1
            sizes[each.known.log_id][1] += each.records
    if log_id in sizes or (log_id and not sizes):
        result.log_id = log_id
    elif sizes:
        result.log_id = max(sizes, key=sizes.__getitem__)
        result.unsure = list(sizes.values()).count(sizes[result.log_id]) > 1


def _try_neighbours(files: Sequence[Found], log_id: bytes) -> None:
    """A file without a header may be the one that another names as its neighbour."""
    known = [each.known for each in files if each.header is not None]
    named = {header.previous_epoch for header in known} - {header.epoch for header in known}
    guesses = [SegmentHeader(log_id, epoch, 0, 0, 0) for epoch in named if epoch]
    for each in files:
        if each.header is None:
            try_headers(each, guesses, adopted=False)


def _adopted_misfit(found: Found, commits: Iterable[Commit]) -> str | None:
    """Give an adopted segment the place that its commit says; or why it has none."""
    named = covering = None
    for commit in commits:
        if found.known.epoch in commit.epochs:
            found.base = int(commit.files[commit.epochs.index(found.known.epoch)][:20])
            return None
        if found.right_name in commit.files:
            named = commit
        if commit.first_index <= found.base < commit.end_index:
            covering = commit
    if named is None:  # its commit may have been dropped, or damaged
        fits = covering is None and found.name.startswith(found.right_name)
        return None if fits else "no commit names it"
    if named.epochs:
        return "another file than this one was committed under its name"
    ends = [*(int(file[:20]) for file in named.files[1:]), named.end_index]
    if found.sealed and found.end != ends[named.files.index(found.right_name)]:
        return "it does not hold as many records as the file that was committed under its name"
    return None


def _best_chain(candidates: list[Found]) -> list[Found]:
    """The segments that can all be true, of the ways there are the one with the most of them."""
    line = sorted(candidates, key=lambda each: (each.base, each.staged, each.name))
    if all(_can_follow(b, a) for a, b in pairwise(line)):
        return line
    best: list[tuple[_Score, int]] = []
    for place, found in enumerate(line):
        ways = [((0, 0, 0, 0), -1)]
        ways += [
            (_sum(best[i][0], (0, _is_linked(found, line[i]), 0, 0)), i)
            for i in range(place)
            if _can_follow(found, line[i])
        ]
        score, before = max(ways)
        own = (1, 0, found.records, found.name == found.right_name)
        best.append((_sum(score, own), before))
    chain: list[Found] = []
    at = max(range(len(line)), key=lambda place: best[place][0], default=-1)
    while at >= 0:
        chain.append(line[at])
        at = best[at][1]
    return chain[::-1]


def _sum(a: _Score, b: _Score) -> _Score:
    return a[0] + b[0], a[1] + b[1], a[2] + b[2], a[3] + b[3]


def _can_follow(found: Found, before: Found) -> bool:
    if found.base < before.end or found.right_name == before.right_name:
        return False
    adjacent = found.base == before.end
    return found.staged or not adjacent or not contradicts(found.known, before.known)


def _is_linked(found: Found, before: Found) -> bool:
    return not found.staged and found.known.previous_epoch == before.known.epoch


def _why_not(found: Found, order: Iterable[Found]) -> str:
    for each in order:
        if each.known.epoch == found.known.epoch:
            return f"it is another copy of {each.right_name}"
    return "it contradicts the segments around it"
