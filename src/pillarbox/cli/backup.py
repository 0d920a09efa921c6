"""`pillarbox backup`, `restore` and `move`: copy a store in use, and move messages."""

from __future__ import annotations

import contextlib
import os
import time
from typing import Annotated, Any

from cyclopts import Parameter

from pillarbox import backup as backups
from pillarbox.cli import output
from pillarbox.cli.backends import (
    QueueInfo,
    find_log,
    open_box,
    open_existing,
    stored_queues,
    waiting_for,
)
from pillarbox.cli.options import Json, Limit, app, check_least
from pillarbox.cli.output import UsageError
from pillarbox.cli.replica import read_replica
from pillarbox.core.errors import MailboxError
from pillarbox.log import LogError
from pillarbox.mailbox.data_directory import LOG, file_path
from pillarbox.mailbox.protocol import Mailbox
from pillarbox.mailbox.url import without_password


@app.command(help_epilogue="Example: pillarbox backup http://localhost:9324 ./backups/today")
def backup(
    url: Annotated[
        str, Parameter(help="A broker (http://localhost:9324) or a store (file:./data).")
    ],
    directory: Annotated[str, Parameter(help="A new directory for the copy.")],
    /,
    *,
    json: Json = False,
) -> int:
    """Copy a store, or the store of a running broker, while it is in use.

    The copy contains every message that was confirmed, and no message whose deletion was confirmed,
    before the command started. It is checked, and is itself a store that can be opened. A broker
    with keys requires one with full access.
    """
    began = time.monotonic()
    files: backups.Files
    if url.startswith(("http://", "https://")):
        files = backups.BrokerFiles(url)
    else:
        files = backups.StoreFiles(_store_of(url))
    with contextlib.ExitStack() as waiting, output.progress("copying") as advance:

        def note(done: int, total: int) -> None:
            waiting.close()  # it has answered
            advance(done, total)

        waiting.enter_context(waiting_for(url))
        size = backups.backup(files, directory, note)
    return _show("backed up", url, directory, size, began, json=json)


@app.command(help_epilogue="Example: pillarbox restore ./backups/today ./data")
def restore(
    directory: Annotated[str, Parameter(help="A directory that `pillarbox backup` made.")],
    store: Annotated[str, Parameter(help="A new directory for the store: ./data or file:./data.")],
    /,
    *,
    json: Json = False,
) -> int:
    """Check a backup and copy it to where a broker or a program will open it.

    Messages that were in flight when the backup was made are delivered again when their leases
    expire. Never run the restored store alongside the original: both would deliver the same
    messages.
    """
    began = time.monotonic()
    target = file_path(store)
    if target is None:
        shown = without_password(store)
        raise UsageError(f"a backup is restored into a directory; {shown} is not one.")
    _queues_of(directory)  # replay it before anything is copied
    with output.progress("copying") as advance:
        files = backups.StoreFiles(_store_of(directory), is_backup=True)
        size = backups.backup(files, target, advance)
    return _show("restored", directory, target, size, began, json=json)


@app.command(
    help_epilogue="Example: pillarbox move redis://localhost/tea http://localhost:9324/tea --create"
)
def move(
    source: Annotated[str, Parameter(help="URL of the queue to take messages from.")],
    target: Annotated[str, Parameter(help="URL of the queue to send them to.")],
    /,
    *,
    create: Annotated[bool, Parameter(help="Create the target if it does not exist.")] = False,
    limit: Limit = None,
    json: Json = False,
) -> int:
    """Move messages from one queue to another, on any two backends.

    Body, attributes, priority, group and reply address are kept; ids, send times and delivery
    counts are not. Each message is sent before it is deleted, so none is lost. If the command is
    interrupted, run it again: within five minutes, messages that were sent already are recognised
    and not sent twice (Amazon SQS: FIFO queues only).
    """
    check_least("--limit", limit, 1)
    if source.rstrip("/") == target.rstrip("/"):
        raise UsageError("source and target are the same queue.")
    with open_existing(source, bytes) as source_box, _target(target, create=create) as target_box:
        moved = _move(source_box, target_box, limit)
        left = source_box.stats()
    document = {
        "moved": moved.messages,
        "deduplicated": moved.deduplicated,
        "left": {"ready": left.ready, "scheduled": left.scheduled, "in_flight": left.in_flight},
    }
    if not moved.deduplicated and moved.messages:
        output.remark(
            "the target does not deduplicate: had this been interrupted, up to "
            f"{output.count(backups.moving.BATCH, 'message')} could have been sent twice"
        )
    if left.scheduled or left.in_flight:
        output.remark(
            f"left behind: {left.scheduled:,} scheduled, {left.in_flight:,} in flight; run the "
            "command again when they are ready"
        )
    text = output.success(f"moved {output.count(moved.messages, 'message')}")
    return output.show(document, text, json=json)


def _move(source: Mailbox[bytes], target: Mailbox[bytes], limit: int | None) -> backups.Moved:
    """Move messages; if that is interrupted or fails, report how many were moved."""
    moved = 0

    def report(done: int, total: int) -> None:
        nonlocal moved
        moved = done
        advance(done, total)

    try:
        with output.progress("moving") as advance:
            return backups.move(source, target, limit=limit, progress=report)
    except (KeyboardInterrupt, MailboxError):
        output.remark(
            f"moved {output.count(moved, 'message')} so far; run the command again for the rest"
        )
        raise


def _target(url: str, *, create: bool) -> Any:
    if create:
        return open_box(url, bytes, create=True)
    try:
        return open_existing(url, bytes)
    except (LogError, MailboxError) as error:
        raise MailboxError(f"{error}; --create creates the target") from error


def _store_of(url: str) -> str:
    path = file_path(url)
    if path is None:
        shown = without_password(url)
        raise UsageError(
            f"{shown} is neither a broker (http://host:9324) nor a store (file:./data)."
        )
    data = find_log(path)
    if data.store is None:
        raise UsageError(f"{url} is a plain log, which can be copied with cp.")
    return data.store


def _queues_of(directory: str) -> list[QueueInfo]:
    """Replay a backup and return its queues; raise if entries are inconsistent."""
    store = _store_of(directory)
    with output.progress("checking") as advance:
        replica = read_replica(store, f"{store}/{LOG}", advance)
    if replica.misfits:
        raise backups.BackupError(
            f"{directory} can't be replayed: {len(replica.misfits)} entries refer to records that "
            f"are lost; run 'pillarbox log verify {directory}'"
        )
    return stored_queues(replica, None)


def _show(done: str, source: str, to: str, size: int, began: float, *, json: bool) -> int:
    queues = _queues_of(to)
    messages = sum(each.stats.total for each in queues)
    document = {
        "directory": os.path.abspath(to),
        "bytes": size,
        "queues": len(queues),
        "messages": messages,
        "seconds": round(time.monotonic() - began, 3),
    }
    text = (
        f"{done} {output.count(messages, 'message')} in {output.count(len(queues), 'queue')} "
        f"({output.size(size)}) to {to}"
    )
    return output.show(document, output.success(text), json=json)
