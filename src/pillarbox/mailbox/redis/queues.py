"""Which queues there are on a Redis server or cluster, and the end of one.

A queue is there if its settings are: they are written when it is first opened. All keys are
looked through for them, a page at a time, so other clients hardly notice.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from pillarbox.core.errors import InvalidParameterError
from pillarbox.mailbox.redis.keys import place_of
from pillarbox.mailbox.redis.link import Link
from pillarbox.mailbox.redis.opening import RETRY_SECONDS, site_of_url
from pillarbox.mailbox.redis.plan import Call, Plan
from pillarbox.mailbox.redis.queue import RedisQueue
from pillarbox.mailbox.redis.scripts import SCRIPTS
from pillarbox.mailbox.redis.site import Site

_PAGE = 1_000
_QUEUE = re.compile(rb"\{queue:([\w.-]+)\}((?:_dlq)*):queue")


def list_queues(url: str) -> list[str]:
    """The URL of each queue at a place; of just one, if it is there, where the URL names it.

    A place is what stands before a queue's name: `redis://host`, `redis://host/2/` for database
    2, `redis+sentinel://host/service/`.
    """
    parts = urlsplit(url)
    path, _, name = parts.path.rpartition("/")
    with _linked(url if name else parts._replace(path=f"{path}/-").geturl()) as (link, site, _):
        if name:
            place = place_of(name)
            there = link.run(_only(Call(name, place.slot, None, ["EXISTS", place.key("queue")])))
            return [url] if there else []
        names = sorted(link.run(_names(site)))
    return [parts._replace(path=f"{path}/{each}").geturl() for each in names]


def delete_queue(url: str) -> None:
    """Delete a queue with all that it holds; its dead-letter queue stays.

    A mailbox that is open on it, or is opened later, makes it anew, without its settings.
    """
    with _linked(url) as (link, _, name):
        if not link.run(delete(RedisQueue(name, SCRIPTS, 0, 0))):
            raise InvalidParameterError("url", url, "that of a queue which is there")


@contextmanager
def _linked(url: str) -> Iterator[tuple[Link, Site, str]]:
    site, name, _ = site_of_url(url, asynchronous=False)
    link = Link(site, RETRY_SECONDS)
    try:
        yield link, site, name
    finally:
        link.close()


def _only(call: Call) -> Plan[object]:
    return (yield call)


def _names(site: Site) -> Plan[set[str]]:
    yield Call("-", 0, None, ["PING"])  # then it is known who serves the slots
    found = set()
    for slot in site.slots():
        for key in (yield from _keys(slot, b"{queue:*}*:queue")):
            if match := _QUEUE.fullmatch(key):
                found.add((match[1] + match[2]).decode())
    return found


def _keys(slot: int, pattern: bytes) -> Plan[list[bytes]]:
    """The keys like this on the server that has a slot."""
    found: list[bytes] = []
    cursor = b"0"
    while True:
        command = ["SCAN", cursor, "MATCH", pattern, "COUNT", _PAGE]
        cursor, keys = yield Call("-", slot, None, command)
        found += keys
        if cursor == b"0":
            return found


def delete(queue: RedisQueue, *, all_keys: bool = True) -> Plan[bool]:
    """Whether it was there. Dead letters on their way elsewhere still get there.

    Without `all_keys` those that end by themselves within minutes are not looked for.
    """
    place = queue.place
    if not (yield queue.command("EXISTS", place.key("queue"))):
        return False
    yield from queue.carry()
    dead = yield queue.command("HGET", place.key("queue"), "dead")
    if dead is not None:
        other = queue.beside(dead.decode())
        yield from other.ask(other.call("disown", queue.name))
    yield queue.command("UNLINK", *place.keys)
    if not all_keys:
        return True
    rest = yield from _keys(place.slot, place.key("*"))  # of its senders, and deduplication ids
    for first in range(0, len(rest), _PAGE):
        yield queue.command("UNLINK", *rest[first : first + _PAGE])
    return True
