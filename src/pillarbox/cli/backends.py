"""Queue operations by URL, the same for every backend: list, look up, open, delete.

For a broker, they send requests. A store on disk is read without locking it, even while another
process writes to it. Other backends have `list_queues(url)` and `delete_queue(url)` in their
modules, and optionally `describe_queue(url)` and `pause_queue(url)`.
"""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, closing
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import msgspec

from pillarbox import open_mailbox
from pillarbox.cli import output
from pillarbox.cli.output import UsageError
from pillarbox.cli.replica import ReadOnlyMailbox, read_replica
from pillarbox.core.errors import InvalidParameterError, MailboxError
from pillarbox.core.limits import SECOND_NS
from pillarbox.core.queue import oldest_key
from pillarbox.log import LogError
from pillarbox.mailbox.broker import admin
from pillarbox.mailbox.broker.address import address_of
from pillarbox.mailbox.data_directory import (
    DataDirectory,
    data_directory_at,
    data_directory_in,
    file_path,
)
from pillarbox.mailbox.durable_store import DurableStore
from pillarbox.mailbox.protocol import Mailbox, Stats
from pillarbox.mailbox.replay import Replay
from pillarbox.mailbox.url import opener_of, without_password

PATIENCE_SECONDS = 2.0
_BROKER = ("http", "https")


class QueueInfo(NamedTuple):
    """One queue: its statistics, and where its dead letters go."""

    name: str
    stats: Stats
    dead_letters: str | None = None
    max_deliveries: int | None = None
    paused: bool = False

    def as_json(self) -> dict[str, Any]:
        fields = self._asdict()
        return {
            "name": fields.pop("name"),
            **msgspec.structs.asdict(fields.pop("stats")),
            **fields,
        }


def queues_at(url: str) -> list[QueueInfo]:
    """Return the queues of a broker, store, server or account, or the one that a URL names."""
    scheme = _scheme(url)
    if scheme == "file":
        return _stored_queues(url)
    if scheme in _BROKER:
        return _broker_queues(url)
    queues = map(_queue_info, opener_of(url).list_queues(url))
    return [each for each in queues if each is not None]


def queue_at(url: str) -> QueueInfo:
    """Return the queue that a URL names; raise MailboxError if it does not exist."""
    with waiting_for(url):
        queues = queues_at(url)
    if not name_in(url):
        raise _no_queue_in(url)
    if not queues:
        raise _missing(url)
    return queues[0]


def open_existing(url: str, body_type: Any = None) -> Mailbox[Any]:
    """Open the mailbox of an existing queue; never create one."""
    if _scheme(url) == "file":
        _stored_queue(url)
    try:
        return open_box(url, body_type, create=False)
    except InvalidParameterError as error:
        if error.parameter not in ("name", "path"):
            raise
        raise _missing(url) from error


def open_read_only(url: str) -> Mailbox[Any] | ReadOnlyMailbox:
    """Open an existing queue only to peek, which works on disk while another process writes."""
    if _scheme(url) != "file":
        return open_existing(url)
    queue_at(url)
    return ReadOnlyMailbox(*_stored_queue(url))


def open_box(url: str, body_type: Any = None, **options: Any) -> Mailbox[Any]:
    """Open a mailbox for one command, without waiting long for a broker that is down."""
    if _scheme(url) in _BROKER:
        if not name_in(url):
            raise _no_queue_in(url)
        options["patience_seconds"] = PATIENCE_SECONDS
    if body_type is None:  # show bodies as they are; SQS supports only text
        body_type = str if _scheme(url).startswith("sqs") else bytes
    with waiting_for(url):
        return open_mailbox(url, body_type, **options)


def waiting_for(url: str) -> AbstractContextManager[None]:
    """Show that a server has not responded yet, without the credentials in its URL."""
    return output.waiting(f"waiting for {urlsplit(url).netloc.rpartition('@')[2] or url}")


def delete(url: str) -> None:
    """Delete an existing queue."""
    scheme = _scheme(url)
    if scheme in _BROKER:
        admin.delete_queue(url)
    elif scheme == "file":
        directory, _, queue = _stored_queue(url)
        with closing(DurableStore(directory)) as store:
            store.drop(queue)
    else:
        opener_of(url).delete_queue(url)


def pause(url: str, *, paused: bool) -> None:
    """Pause an existing queue, or resume it."""
    scheme = _scheme(url)
    if scheme in _BROKER:
        admin.pause_queue(url, paused=paused)
    elif scheme == "file":
        directory, _, queue = _stored_queue(url)
        with closing(DurableStore(directory)) as store:
            store.pause(store.sessions[queue], paused=paused)
    else:
        backend = opener_of(url)
        if not hasattr(backend, "pause_queue"):
            raise MailboxError(f"a queue at {scheme}: can't be paused")
        backend.pause_queue(url, paused=paused)


def name_in(url: str) -> str:
    """Return the name of the queue in a URL; empty if there is none."""
    scheme = _scheme(url)
    if scheme in _BROKER:
        return address_of(url)[1]
    if scheme == "file":
        return find_log(url).queue or ""
    return urlsplit(url).path.rpartition("/")[2]


def find_log(text: str) -> DataDirectory:
    """Find the log of PATH; raise LogError if there is none."""
    path, is_url = file_path(text) or text, text.startswith("file:")
    data = data_directory_at(path) if is_url else data_directory_in(path)
    if data is not None:
        return data
    if is_url:
        parent, queue = os.path.split(path)
        raise LogError(
            f"{path} contains neither a store nor a log, and {parent or '.'} contains no store"
            f" with a queue {queue!r}; give the directory of a store or of a log"
        )
    if not os.path.isdir(path):
        shown = without_password(path)
        raise LogError(
            f"there is no directory {shown}; give the directory of a store or of a log, or the URL"
            f" of a mailbox (file:{shown})"
        )
    raise LogError(f"{path} contains neither a store nor a log; give the directory of one")


def stored_queues(replica: Replay, name: str | None) -> list[QueueInfo]:
    """Return the queues of a store on disk, or only the one with this name."""
    infos = []
    for queue in sorted(replica.queues.values(), key=lambda queue: queue.name):
        if name in (None, queue.name):
            oldest, dead = oldest_key(queue), queue.dead_letters
            age = None if oldest is None else max(0, replica.now - (oldest << 1))
            counts = queue.ready, queue.scheduled, queue.in_flight, dead.size if dead else 0
            stats = _stats(*counts, age=age)
            most, paused = queue.settings.max_deliveries or None, queue.settings.paused
            infos.append(QueueInfo(queue.name, stats, dead.name if dead else None, most, paused))
    return infos


def _stored_queues(url: str) -> list[QueueInfo]:
    data = find_log(url)
    if data.store is None:
        raise UsageError(f"{url} is a plain log, which has no queues.")
    with output.progress("replaying") as advance:
        replica = read_replica(data.store, data.log, advance)
    return stored_queues(replica, data.queue)


def _broker_queues(url: str) -> list[QueueInfo]:
    name = name_in(url)
    return [
        QueueInfo(
            each.name,
            _stats(*each.tally[:-1], age=each.tally[-1]),
            each.dead_letters,
            each.max_deliveries or None,
            each.paused,
        )
        for each in admin.list_queues(url, PATIENCE_SECONDS)
        if name in ("", each.name)
    ]


def _queue_info(url: str) -> QueueInfo | None:
    """Describe a queue of another backend; None if it was deleted after it was listed."""
    try:
        box = open_box(url, str, create=False)
    except InvalidParameterError:
        return None
    with box:
        dead, stats = box.dead_letters, box.stats()
    describe = getattr(opener_of(url), "describe_queue", None)
    described = describe(url) if describe is not None else None
    if described is None:
        return QueueInfo(box.name, stats, dead.name if dead is not None else None)
    most, paused = described.max_deliveries or None, described.paused
    return QueueInfo(box.name, stats, described.dead, most, paused)


def _stored_queue(url: str) -> tuple[str, str, str]:
    """Return the store, the log and the name of a queue on disk."""
    data = find_log(url)
    if data.store is None or data.queue is None:
        raise _no_queue_in(url)
    return data.store, data.log, data.queue


def _stats(ready: int, scheduled: int, in_flight: int, dead: int, *, age: int | None) -> Stats:
    return Stats(ready, scheduled, in_flight, dead, None if age is None else age / SECOND_NS)


def _no_queue_in(url: str) -> UsageError:
    return UsageError(f"{without_password(url)} names no queue; add its name to the URL.")


def _missing(url: str) -> MailboxError:
    name = name_in(url)
    server = without_password(url).removesuffix(name).rstrip("/") or url
    return MailboxError(f"there is no queue {name!r} at {server}")


def _scheme(url: str) -> str:
    opener_of(url)  # raises if it is not the URL of a mailbox
    scheme = url.partition(":")[0]
    if scheme == "memory":
        raise UsageError("a memory: mailbox exists only in its own process; give another URL.")
    return scheme
