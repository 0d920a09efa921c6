"""What is behind a mailbox's URL: which queues there are, what they hold, and their end.

A broker is asked. A store on disk is read beside its writer, without touching it. The modules of
other backends have `list_queues(url)` and `delete_queue(url)`. Memory is of no use here.
"""

from __future__ import annotations

from typing import Any, NamedTuple
from urllib.parse import urlsplit

from pillarbox import open_mailbox
from pillarbox.cli import output
from pillarbox.cli.looking import StoreLook
from pillarbox.cli.output import UsageError
from pillarbox.cli.place import place_of
from pillarbox.cli.replica import replica_of
from pillarbox.core.errors import InvalidParameterError, MailboxError
from pillarbox.core.limits import SECOND_NS
from pillarbox.core.queue import Queue, oldest_key
from pillarbox.mailbox.broker import admin
from pillarbox.mailbox.broker.address import address_of
from pillarbox.mailbox.ledger import DurableStore
from pillarbox.mailbox.protocol import Mailbox, Stats
from pillarbox.mailbox.url import opener_of

_PATIENCE_SECONDS = 2.0
_BROKER = ("http", "https")


class QueueInfo(NamedTuple):
    """One queue: what it holds, and where its dead letters go."""

    name: str
    stats: Stats
    dead_letters: str | None = None
    max_deliveries: int | None = None

    def as_json(self) -> dict[str, Any]:
        stats = self.stats
        return {
            "name": self.name,
            "ready": stats.ready,
            "scheduled": stats.scheduled,
            "in_flight": stats.in_flight,
            "dead": stats.dead,
            "oldest_age_seconds": stats.oldest_age_seconds,
            "dead_letters": self.dead_letters,
            "max_deliveries": self.max_deliveries,
        }


def queues_at(url: str) -> list[QueueInfo]:
    """The queues of a broker, a store, a server or an account; just one if the URL names it."""
    scheme = _scheme(url)
    if scheme == "file":
        return _of_store(url)
    if scheme in _BROKER:
        return _of_broker(url)
    found = map(_opened, opener_of(url).list_queues(url))
    return [each for each in found if each is not None]


def queue_at(url: str) -> QueueInfo:
    """The queue that a URL names; MailboxError if it is not there."""
    found = queues_at(url)
    if not name_in(url):
        raise UsageError(f"{url} names no queue; put its name behind it.")
    if not found:
        raise _missing(url)
    return found[0]


def open_existing(url: str) -> Mailbox[Any]:
    """The mailbox of a queue that is there: a slip of the pen makes no new one."""
    if _scheme(url) in ("file", *_BROKER):
        queue_at(url)
    elif not opener_of(url).list_queues(url):
        raise _missing(url)
    return open_box(url, create=False)


def open_to_look(url: str) -> Mailbox[Any] | StoreLook:
    """The same for someone who only looks: a store on disk is read beside its writer."""
    if _scheme(url) != "file":
        return open_existing(url)
    queue_at(url)
    place = place_of(url)
    assert place.store is not None
    assert place.queue is not None
    return StoreLook(place.store, place.log, place.queue)


def _missing(url: str) -> MailboxError:
    return MailboxError(f"there is no queue {name_in(url)!r} at {_without_name(url)}")


def _opened(url: str) -> QueueInfo | None:
    """None if it has gone since it was listed."""
    try:
        box = open_box(url, str, create=False)
    except InvalidParameterError:
        return None
    with box:
        dead = box.dead_letters
        return QueueInfo(box.name, box.stats(), dead.name if dead is not None else None)


def open_box(url: str, body_type: Any = None, **options: Any) -> Mailbox[Any]:
    """A mailbox for one command: whoever typed it does not want to wait for a dead broker."""
    if _scheme(url) in _BROKER:
        options["patience_seconds"] = _PATIENCE_SECONDS
    return open_mailbox(url, body_type or body_kind(url), **options)


def body_kind(url: str) -> Any:
    """Bodies are shown as they are; SQS knows no bytes, only text."""
    return str if _scheme(url).startswith("sqs") else bytes


def delete(url: str) -> None:
    """Delete the queue that a URL names, which is there."""
    scheme = _scheme(url)
    if scheme in _BROKER:
        admin.delete_queue(url)
    elif scheme == "file":
        place = place_of(url)
        assert place.store is not None
        assert place.queue is not None
        store = DurableStore(place.store)
        try:
            store.drop(place.queue)
        finally:
            store.close()
    else:
        opener_of(url).delete_queue(url)


def name_in(url: str) -> str:
    """The queue that a URL names; empty if it names none."""
    scheme = _scheme(url)
    if scheme in _BROKER:
        return address_of(url)[1]
    if scheme == "file":
        return place_of(url).queue or ""
    return urlsplit(url).path.rpartition("/")[2]


def _of_broker(url: str) -> list[QueueInfo]:
    name = name_in(url)
    found = []
    for each in admin.survey(url, _PATIENCE_SECONDS):
        if name in ("", each.name):
            *counts, age = each.tally
            stats = _stats(*counts, age=age)
            found.append(
                QueueInfo(each.name, stats, each.dead_letters, each.max_deliveries or None)
            )
    return found


def _of_store(url: str) -> list[QueueInfo]:
    place = place_of(url)
    if place.store is None:
        raise UsageError(f"{url} is a plain log, and has no queues.")
    with output.progress("replaying") as advance:
        replica = replica_of(place.store, place.log, advance)
    queues = sorted(replica.queues.values(), key=lambda queue: queue.name)
    return [_of_queue(queue, replica.now) for queue in queues if place.queue in (None, queue.name)]


def _of_queue(queue: Queue, now: int) -> QueueInfo:
    oldest = oldest_key(queue)
    age = None if oldest is None else max(0, now - (oldest << 1))
    dead = queue.dead_letters
    stats = _stats(
        queue.ready, queue.scheduled, queue.in_flight, dead.size if dead is not None else 0, age=age
    )
    most = queue.settings.max_deliveries or None
    return QueueInfo(queue.name, stats, dead.name if dead is not None else None, most)


def _stats(ready: int, scheduled: int, in_flight: int, dead: int, *, age: int | None) -> Stats:
    return Stats(ready, scheduled, in_flight, dead, None if age is None else age / SECOND_NS)


def _scheme(url: str) -> str:
    opener_of(url)  # which refuses what is no URL of a mailbox
    scheme = url.partition(":")[0]
    if scheme == "memory":
        raise UsageError("memory: mailboxes end with their process; give another URL.")
    return scheme


def _without_name(url: str) -> str:
    return url.removesuffix(name_in(url)).rstrip("/") or url
