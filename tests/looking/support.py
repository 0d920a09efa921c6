"""What is compared before and after a look: every byte that a backend keeps."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from pillarbox import DeadLetterPolicy
from pillarbox.core.queue import Record, waiting
from pillarbox.mailbox.queue_session import QueueSession
from pillarbox.mailbox.store import Store
from pillarbox.testing.redis import RedisServer
from tests.broker.support import Client

POLICY = DeadLetterPolicy(2)
STATES = ("ready", "scheduled", "in_flight")
_LINK = re.compile(rb'(?:href|src|hx-get|data-[a-z]+)="(/[^"#]*)')


def bytes_in(directory: Path) -> dict[str, bytes]:
    """Every file below a directory, with what is in it."""
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


_READ = {
    b"hash": ("HGETALL", "{key}"),
    b"zset": ("ZRANGE", "{key}", 0, -1, "WITHSCORES"),
    b"list": ("LRANGE", "{key}", 0, -1),
    b"string": ("GET", "{key}"),
    b"stream": ("XRANGE", "{key}", "-", "+"),
}


def keys_of(server: RedisServer) -> dict[bytes, Any]:
    """Every key with its value, and whether it ends by itself.

    Not as DUMP tells it: the order in which a hash lies in memory changes when it is read.
    """
    return {
        key: (_value(server, key), server.ask("TTL", key) >= 0)
        for key in sorted(server.ask("KEYS", "*"))
    }


def _value(server: RedisServer, key: bytes) -> Any:
    kind = server.ask("TYPE", key)
    command = _READ[kind if isinstance(kind, bytes) else kind.encode()]
    value = server.ask(*(key if word == "{key}" else word for word in command))
    if command[0] == "HGETALL" and not isinstance(value, dict):
        value = dict(zip(value[::2], value[1::2], strict=True))
    return value


def state_of(store: Store) -> dict[str, Any]:
    """Every queue of a store, with all that it knows; equal for equal queues."""
    with store.lock:
        return {name: _known(session) for name, session in store.sessions.items()}


def _known(session: QueueSession) -> list[Any]:
    queue = session.queue
    return [
        msgspec.to_builtins(queue.settings),
        session.notes,
        None if session.dead is None else session.dead.queue.name,
        [_seen(record) for record in waiting(queue)],
        [(at, _seen(record)) for at, _, record in queue.schedule],
        {x.record.key: (x.number, x.leased_at, x.deadline, _seen(x.record)) for x in queue.leases},
        list(queue.duplicates.items()),
    ]


def _seen(record: Record) -> tuple[Any, ...]:
    extra = None if record.extra is None else msgspec.to_builtins(record.extra)
    return record.key, record.body, record.priority, record.deliveries, record.attributes, extra


def in_every_state(box: Any, pass_time: Callable[[float], None]) -> list[str]:
    """Messages that time has done something to, which nobody has noticed yet; their ids."""
    dead = box.send("dead")
    for _ in range(2):
        box.receive()[0].nack()
    about_to_die = box.send("about to die")
    box.receive()[0].nack()
    box.receive(visibility_timeout=1)
    back = box.send("back")
    box.receive(visibility_timeout=1)
    held = box.send("held")
    box.receive(visibility_timeout=3_600)
    due = box.send("due", delay_seconds=1)
    later = box.send("later", delay_seconds=3_600)
    grouped = box.send("grouped", group="g")
    urgent = box.send("urgent", priority=9, attributes={"colour": "red"}, reply_to="answers")
    pass_time(1.1)
    return [dead, about_to_die, back, held, due, later, grouped, urgent]


def check_looks(box: Any) -> None:
    """What a look must tell of them; on a backend that can tell."""
    stats = box.stats()
    counts = stats.ready, stats.scheduled, stats.in_flight, stats.dead
    assert counts == (4, 1, 1, 2)
    assert box.approximate_count() == 6
    seen = {state: [each.body for each in box.peek(state=state)] for state in STATES}
    assert sorted(map(_text, seen["ready"])) == ["back", "due", "grouped", "urgent"]
    assert _text(seen["ready"][0]) == "urgent"
    assert list(map(_text, seen["scheduled"])) == ["later"]
    assert list(map(_text, seen["in_flight"])) == ["held"]
    numbers = {_text(each.body): each.delivery_count for each in box.peek()}
    assert numbers == {"back": 1, "due": 0, "grouped": 0, "urgent": 0}
    dead = box.dead_letters
    assert (dead.stats().ready, dead.stats().total) == (2, 2)
    letters = {_text(each.body): each for each in dead.peek()}
    assert sorted(letters) == ["about to die", "dead"]
    for letter in letters.values():
        assert letter.delivery_count == 2
        assert letter.dead_letter is not None
        assert letter.dead_letter.source == box.name
        assert len(letter.dead_letter.history) == 2
    assert letters["about to die"].dead_letter.reason == "expired after 2 deliveries"


def _text(body: Any) -> str:
    return body.decode() if isinstance(body, bytes) else str(body)


def crawl(sqs: Client, first: str = "/") -> set[str]:
    """Get a page, and all that its links lead to."""
    seen: set[str] = set()
    todo = [first]
    while todo:
        path = todo.pop()
        if path in seen or path.rstrip("/").endswith("/stream"):  # which has no end
            continue
        seen.add(path)
        status, headers, data = sqs.raw("GET", path)
        assert status in (200, 303, 404), path
        if "html" in headers.get("content-type", ""):
            todo += [link.decode().replace("&amp;", "&") for link in _LINK.findall(data)]
    return seen


def wait_until(condition: Callable[[], Any], what: str, seconds: float = 30) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, what
        time.sleep(0.005)
