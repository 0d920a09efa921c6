"""The append-only log on disk: `Log`, its readers, tailers and errors."""

from pillarbox.log.commits import Commit
from pillarbox.log.disk import Disk, RealDisk
from pillarbox.log.errors import (
    LogClosedError,
    LogCorruptError,
    LogError,
    LogFormatError,
    LogFullError,
    LogIndexError,
    LogLockedError,
    LogPoisonedError,
    RecordLostError,
    RecordTooLargeError,
)
from pillarbox.log.frame_reader import Frame
from pillarbox.log.group_commit import Ticket
from pillarbox.log.log import Durability, Log
from pillarbox.log.log_reader import LogReader
from pillarbox.log.repair import Damage, Report, repair, verify
from pillarbox.log.segments import Retention
from pillarbox.log.tailer import Record, Tailer, alts

__all__ = [
    "Commit",
    "Damage",
    "Disk",
    "Durability",
    "Frame",
    "Log",
    "LogClosedError",
    "LogCorruptError",
    "LogError",
    "LogFormatError",
    "LogFullError",
    "LogIndexError",
    "LogLockedError",
    "LogPoisonedError",
    "LogReader",
    "RealDisk",
    "Record",
    "RecordLostError",
    "RecordTooLargeError",
    "Report",
    "Retention",
    "Tailer",
    "Ticket",
    "alts",
    "repair",
    "verify",
]
