"""Checks that a segment belongs to this log, to its file name, and after the one before it.

A header names the log, the first index and (from format 2 on) the random epoch of the previous
segment. An adopted segment is identified by the commit that names it and its epoch. The link of
the first segment is not checked, as its predecessor may have been dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

from pillarbox.log.commits import read_commit
from pillarbox.log.directory import LogDirectory, segment_name
from pillarbox.log.errors import LogCorruptError
from pillarbox.log.layout import SegmentHeader
from pillarbox.log.segments import Segment

#: The log id in a segment that was repaired without its header.
NO_ID = bytes(16)


def identity_of(headers: Sequence[SegmentHeader]) -> bytes | None:
    """The id of the log that wrote these segments; None if all are adopted."""
    own = [header.log_id for header in headers if not header.staged]
    known = [log_id for log_id in own if log_id != NO_ID]
    return known[-1] if known else own[-1] if own else None


def check_link(directory: LogDirectory, before: Sequence[Segment], segment: Segment) -> None:
    """Raise `LogCorruptError` if this segment can't follow those `before` it."""
    what = _why_not_here(directory, before, segment)
    if what is not None:
        raise LogCorruptError(directory.path_of(segment.name), what, 0, segment.base_index)


def _why_not_here(
    directory: LogDirectory, before: Sequence[Segment], segment: Segment
) -> str | None:
    wrong = why_not_named(segment)
    if wrong is not None or not before:
        return wrong
    own = next((each for each in reversed(before) if not each.staged), None)
    if segment.staged:
        return _why_not_adopted(directory, own, segment) if own is not None else None
    if own is not None and NO_ID != own.header.log_id != segment.header.log_id != NO_ID:
        return f"it belongs to another log than {own.name}"
    if contradicts(segment.header, before[-1].header):
        return f"its header names another predecessor than {before[-1].name}"
    return None


def why_not_named(segment: Segment) -> str | None:
    """Why a segment can't have its name; None if it can."""
    if segment.name != segment_name(segment.base_index, adopted=segment.staged):
        kind = "an adopted segment" if segment.staged else "one of the log's own segments"
        return f"its header says that it is {kind}"
    if segment.shift and not segment.staged:
        return f"its header says that it starts at index {segment.header.base_index}"
    return None


def contradicts(header: SegmentHeader, before: SegmentHeader) -> bool:
    """Whether a header names another segment as its predecessor."""
    return header.previous_epoch is not None and header.previous_epoch != before.epoch


def _why_not_adopted(directory: LogDirectory, own: Segment, segment: Segment) -> str | None:
    """Why this is not the adopted segment that a commit in `own` names; None if it is."""
    if own.adopted is None and own.commit_offset:
        commit = read_commit(directory, own, own.commit_offset)
        own.adopted = dict(zip_longest(commit.files, commit.epochs))
    if not own.adopted:
        # Repairs of format 1 left adopted segments without a commit.
        old = own.header.previous_epoch is None or not own.sealed
        return None if old else "the commit that names it is missing"
    if segment.name not in own.adopted:
        return "the commit before it does not name it"
    if own.adopted[segment.name] not in (None, segment.header.epoch):
        return "another file was committed under its name"
    return None
