"""Checks that a segment belongs to this log, to its file name, and after the one before it.

A header names the log, the first index and (from format 2 on) the random epoch of the previous
segment. An adopted segment is identified by the commit that names it and its epoch. The link of
the first segment is not checked, as its predecessor may have been dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

from pillarbox.log.catalog import Segment
from pillarbox.log.commit_frames import read_commit
from pillarbox.log.disk import Disk
from pillarbox.log.layout import STAGED, SegmentHeader, base_of_name, segment_name

#: The log id in a segment that was repaired without its header.
NO_ID = bytes(16)


def identity_of(headers: Sequence[SegmentHeader]) -> bytes | None:
    """The id of the log that wrote these segments; None if all are adopted."""
    own = [header.log_id for header in headers if not header.flags & STAGED]
    known = [log_id for log_id in own if log_id != NO_ID]
    return known[-1] if known else own[-1] if own else None


def why_not_named(header: SegmentHeader, name: str) -> str | None:
    """Why a segment with this header can't have this name; None if it can."""
    adopted = bool(header.flags & STAGED)
    if name != segment_name(base_of_name(name), adopted=adopted):
        kind = "an adopted segment" if adopted else "one of the log's own segments"
        return f"its header says that it is {kind}"
    if not adopted and header.base_index != base_of_name(name):
        return f"its header says that it starts at index {header.base_index}"
    return None


def why_not_here(
    disk: Disk, directory: str, before: Sequence[Segment], header: SegmentHeader, name: str
) -> str | None:
    """Why this segment can't follow those `before` it; None if it can."""
    wrong = why_not_named(header, name)
    if wrong is not None or not before:
        return wrong
    own = next((each for each in reversed(before) if not each.staged), None)
    if header.flags & STAGED:
        return _not_committed(disk, directory, own, header, name)
    if own is not None and NO_ID != own.header.log_id != header.log_id != NO_ID:
        return f"it belongs to another log than {own.name}"
    if contradicts(header, before[-1].header):
        return f"its header names another predecessor than {before[-1].name}"
    return None


def contradicts(header: SegmentHeader, before: SegmentHeader) -> bool:
    """Whether a header names another segment as its predecessor."""
    return header.previous_epoch is not None and header.previous_epoch != before.epoch


def _not_committed(
    disk: Disk, directory: str, own: Segment | None, header: SegmentHeader, name: str
) -> str | None:
    """Why this is not the adopted segment that a commit in `own` names; None if it is."""
    if own is None:
        return None
    if own.adopted is None:
        own.adopted = _adopted(disk, directory, own)
    if not own.adopted:
        # Repairs of format 1 left adopted segments without a commit.
        old = own.header.previous_epoch is None or not own.sealed
        return None if old else "the commit that names it is missing"
    if name not in own.adopted:
        return "the commit before it does not name it"
    if own.adopted[name] not in (None, header.epoch):
        return "another file was committed under its name"
    return None


def _adopted(disk: Disk, directory: str, own: Segment) -> dict[str, int | None] | None:
    """The files and epochs that the last commit of a segment names; None if there is none."""
    if not own.commit_offset:
        return None
    commit = read_commit(disk, directory, own, own.commit_offset)
    return dict(zip_longest(commit.files, commit.epochs)) or None
