"""The checks of `pillarbox doctor`: the disk, the clock, and the deployment behind a URL."""

from __future__ import annotations

import ipaddress
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple
from urllib.parse import urlsplit

from pillarbox import __version__
from pillarbox.cli.backends import PATIENCE_SECONDS, find_log, name_in
from pillarbox.cli.output import UsageError
from pillarbox.cli.segments import durability_of, list_segments
from pillarbox.log import LogReader, RealDisk
from pillarbox.mailbox.broker import admin
from pillarbox.mailbox.broker.wire import Described
from pillarbox.mailbox.url import opener_of

_FULL = 0.8  # of the memory that a Redis server may use
REDIS_MIN = 7
_SYNCS = 50
_SLOW_SYNC_MS = 20.0
FREE_BYTES_MIN = 1 << 30
SKEW_SECONDS_MAX = 1.0


class Finding(NamedTuple):
    """The result of one check. `pillarbox doctor` fails only if the state is bad."""

    what: str
    state: Literal["good", "absent", "warning", "bad"]
    found: str
    advice: str = ""


_LEVELS = {
    "fsync": Finding("durability", "good", "fsync: what is confirmed is on disk"),
    "os": Finding(
        "durability", "warning", "os: a power failure loses messages", "use --durability fsync"
    ),
    "memory": Finding(
        "durability", "warning", "memory: a crash loses messages", "use --durability fsync"
    ),
    "none": Finding(
        "durability",
        "bad",
        "in memory: all messages are lost when the broker stops",
        "start it with --data",
    ),
}


def check_deployment(url: str) -> list[Finding]:
    """Run all checks; raise MailboxError if the server does not respond."""
    opener_of(url)  # raises if it is not the URL of a mailbox
    scheme = url.partition(":")[0]
    if scheme == "file":
        return list(_store(url))
    if scheme in ("http", "https"):
        return list(_broker(url))
    if scheme.startswith("redis"):
        return list(_redis(url))
    if scheme.startswith("postgres"):
        return list(_postgres(url))
    if not hasattr(opener_of(url), "list_queues"):
        raise UsageError(f"there is nothing to check behind a {scheme}: URL.")
    queues = opener_of(url).list_queues(url)
    return [Finding("connection", "good", f"answered; {len(queues)} queues are visible")]


def _broker(url: str) -> Iterator[Finding]:
    sent_at = time.time_ns()
    about = admin.describe(url, PATIENCE_SECONDS)
    received_at = time.time_ns()
    host = urlsplit(url).hostname or ""
    yield Finding("connection", "good", f"answered in {(received_at - sent_at) / 1e6:.1f} ms")
    yield _same_version(about.version)
    problem = about.problem
    if problem is not None:
        advice = "check the store, and the broker's log"
        if about.durability != "shared":
            advice = "see the broker's log; free space on its disk"
        yield Finding("health", "bad", problem, advice)
    if about.durability == "shared":
        yield from _shared(about)
    else:
        yield _LEVELS[about.durability]
    yield clock_of(host, ahead_ns(about.time_ns, sent_at, received_at) / 1e9)
    if about.free_bytes is not None:
        yield free_space(about.free_bytes, "at the broker")
    yield from _permissions(url, about.may, host, has_keys=about.has_keys)
    if about.durability not in ("none", "shared"):
        yield Finding(
            "replication",
            "warning",
            "one copy, on the disk of the broker",
            "keep --data on replicated storage, or back it up",
        )


def _shared(about: Described) -> Iterator[Finding]:
    """Check the brokers of a shared store; the store itself has to be checked separately."""
    found = f"not checked; it depends on {about.store or 'the store that the brokers share'}"
    advice = f"check it with: pillarbox doctor {about.store or 'URL-OF-THE-STORE'}"
    yield Finding("durability", "warning", found, advice)
    if not about.brokers:  # this key is not permitted to list them
        return
    named = ", ".join(about.brokers)
    if len(set(about.brokers.values())) > 1:
        named = ", ".join(f"{url} ({version})" for url, version in about.brokers.items())
        yield Finding("brokers", "warning", f"several versions: {named}", "upgrade the older")
    elif len(about.brokers) == 1:
        advice = "run a second one on another machine"
        yield Finding("brokers", "warning", f"only one uses this store: {named}", advice)
    else:
        yield Finding("brokers", "good", f"{len(about.brokers)} use this store: {named}")


def _same_version(version: str) -> Finding:
    if version == __version__:
        return Finding("version", "good", f"{version}, the same as here")
    return Finding(
        "version", "warning", f"{version}; this one is {__version__}", "upgrade the older one"
    )


def _permissions(url: str, may: list[str], host: str, *, has_keys: bool) -> Iterator[Finding]:
    """Check what this key may do, and whether the broker is open to everyone."""
    queue = name_in(url) or "any queue"
    if not may:
        advice = "grant this key permissions, or use another key in the URL"
        yield Finding("permissions", "bad", f"this key may do nothing with {queue}", advice)
    else:
        yield Finding("permissions", "good", f"{queue}: {', '.join(may)}")
    if _is_this_machine(host):
        return
    if not has_keys:
        advice = "configure access keys (see `Keys and TLS for the broker`)"
        yield Finding("access", "bad", "anyone who can connect may do everything", advice)
    if not url.startswith("https:"):
        advice = "use TLS: --tls-certificate, or a proxy in front of the broker"
        yield Finding("encryption", "warning", "messages travel unencrypted", advice)


def _is_this_machine(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _store(url: str) -> Iterator[Finding]:
    data = find_log(url)
    directory, pid = Path(data.store or data.log), data.writer()
    yield Finding("in use", "good", f"by process {pid}" if pid is not None else "no")
    with LogReader(data.log, RealDisk()) as reader:
        segments = list_segments(data.log, data.segment_files())
        level = durability_of(reader, segments[-1] if segments else None)
        damaged = [each.name for each in segments if each.state == "damaged"]
    if damaged:
        advice = f"pillarbox log repair {directory} --dry-run"
        yield Finding("log", "bad", f"damaged: {', '.join(damaged)}", advice)
    weak = level.startswith("os")
    advice = "open the store with durability=fsync" if weak else ""
    yield Finding("durability", "warning" if weak else "good", level, advice)
    if os.access(directory, os.W_OK):
        yield Finding("permissions", "good", f"this user may write to {directory}")
        yield sync_speed(directory)
    else:
        advice = "run as the user that owns it"
        yield Finding("permissions", "bad", f"this user may not write to {directory}", advice)
    yield free_space(shutil.disk_usage(directory).free, f"in {directory}")
    yield clock()
    advice = "keep it on replicated storage, or back it up"
    yield Finding("replication", "warning", "one copy, on this disk", advice)


def _redis(url: str) -> Iterator[Finding]:
    from pillarbox.mailbox.redis.queues import server_facts  # noqa: PLC0415 - behind an extra

    for facts in server_facts(url):
        version = facts.get("redis_version", "?")
        old = version.partition(".")[0].isdecimal() and int(version.partition(".")[0]) < REDIS_MIN
        advice = f"install Redis {REDIS_MIN} or newer" if old else ""
        yield Finding("version", "bad" if old else "good", f"Redis {version}", advice)
        yield _redis_durability(facts)
        yield _redis_memory(facts)
        yield clock_of("Redis", (int(facts["time_ns"]) - time.time_ns()) / 1e9)
        replicas, needed = int(facts.get("connected_slaves", 0)), facts.get("min-replicas-to-write")
        found = f"{replicas} replicas, {needed or 'unknown'} needed for a write"
        if facts.get("role") != "master":
            yield Finding("replication", "bad", "this is a replica", "give the URL of the primary")
        elif not replicas:
            yield Finding("replication", "warning", found, "add a replica")
        elif needed in (None, "0"):
            advice = "open mailboxes with durability=replicated, or set min-replicas-to-write"
            yield Finding("replication", "warning", found, advice)
        else:
            yield Finding("replication", "good", found)


def _redis_durability(facts: dict[str, str]) -> Finding:
    if facts.get("aof_enabled") != "1":
        advice = "set appendonly yes"
        return Finding("durability", "bad", "no append-only file: a crash loses messages", advice)
    how = facts.get("appendfsync", "unknown")
    if how == "always":
        return Finding("durability", "good", "append-only file, synced with every write")
    found = f"append-only file, appendfsync {how}: a power failure loses the last second"
    return Finding("durability", "warning", found, "set appendfsync always")


def _redis_memory(facts: dict[str, str]) -> Finding:
    used, most = int(facts.get("used_memory", 0)), int(facts.get("maxmemory", 0))
    policy = facts.get("maxmemory_policy", "noeviction")
    found = f"{used / 1e6:,.0f} MB used of {f'{most / 1e6:,.0f} MB' if most else 'no limit'}"
    if most and policy != "noeviction":
        advice = "set maxmemory-policy noeviction"
        return Finding("memory", "bad", f"{found}; {policy} deletes messages", advice)
    if most and used > _FULL * most:
        return Finding("memory", "warning", found, "raise maxmemory, or consume messages")
    return Finding("memory", "good", found)


def _postgres(url: str) -> Iterator[Finding]:
    from pillarbox.mailbox.postgres.queues import server_facts  # noqa: PLC0415 - behind an extra

    facts = server_facts(url)
    yield Finding("version", "good", f"PostgreSQL {facts['version']}")
    if facts["schema"] == facts["known_schema"]:
        yield Finding("schema", "good", f"version {facts['schema']}")
    else:
        found = f"version {facts['schema']}; this Pillarbox has {facts['known_schema']}"
        yield Finding("schema", "bad", found, "pillarbox postgres init URL")
    if facts["is_standby"]:
        yield Finding("role", "bad", "this is a standby", "give the URL of the primary")
    if facts["fsync"] != "on":
        yield Finding("durability", "bad", "fsync is off", "set fsync = on")
    elif facts["synchronous_commit"] == "off":
        advice = "set synchronous_commit = on"
        yield Finding("durability", "warning", "a crash loses the last commits", advice)
    else:
        found = f"fsync, synchronous_commit {facts['synchronous_commit']}"
        yield Finding("durability", "good", found)
    yield clock_of("PostgreSQL", (facts["time_ns"] - time.time_ns()) / 1e9)
    yield Finding("permissions", "good", f"connected as {facts['role']}")
    replicas = facts["replicas"]
    if replicas and facts["synchronous_standby_names"]:
        yield Finding("replication", "good", f"{replicas} replicas, synchronous")
    else:
        advice = "add a standby, and name it in synchronous_standby_names"
        yield Finding("replication", "warning", f"{replicas} replicas, none synchronous", advice)


def sync_speed(directory: Path) -> Finding:
    """Measure how long a sync takes: the shortest time for a confirmed send."""
    try:
        with tempfile.TemporaryFile(dir=directory) as file:
            handle = file.fileno()
            os.pwrite(handle, b"\0" * 4096 * _SYNCS, 0)
            os.fsync(handle)
            times = []
            for i in range(_SYNCS):
                started = time.perf_counter()
                os.pwrite(handle, b"\1" * 512, i * 4096)
                os.fdatasync(handle)
                times.append((time.perf_counter() - started) * 1_000)
    except OSError as error:
        return Finding(
            "disk sync", "bad", str(error), f"make {directory} writable, or give another --data"
        )
    median = sorted(times)[_SYNCS // 2]
    found = f"{median:.2f} ms, about {1_000 / median:,.0f} single confirmed sends per second"
    if median > _SLOW_SYNC_MS:
        return Finding("disk sync", "bad", found, "use another disk, batches, or durability=os")
    return Finding("disk sync", "good", found)


def free_space(free: int, where: str) -> Finding:
    found = f"{free / (1 << 30):,.1f} GiB free {where}"
    if free < FREE_BYTES_MIN:
        return Finding("free space", "bad", found, "free some space: a store needs at least 1 GiB")
    return Finding("free space", "good", found)


def clock() -> Finding:
    """Compare the wall clock with the monotonic clock, to detect jumps."""
    wall, steady = time.time(), time.monotonic()
    time.sleep(0.1)
    drift = abs((time.time() - wall) - (time.monotonic() - steady))
    if drift > SKEW_SECONDS_MAX or time.gmtime().tm_year < 2024:
        return Finding("clock", "bad", time.ctime(), "set the clock, and synchronise it with NTP")
    return Finding("clock", "good", f"{time.strftime('%Y-%m-%d %H:%M:%S %Z')}, steady")


def ahead_ns(theirs: int, asked: int, answered: int) -> int:
    """Return how far a server's clock is ahead at least, given the times around a request."""
    return theirs - min(max(theirs, asked), answered)


def clock_of(server: str, seconds_ahead: float) -> Finding:
    """Check the clock of a server, which is `seconds_ahead` of the clock here."""
    found = f"{abs(seconds_ahead):.1f} s {'ahead of' if seconds_ahead > 0 else 'behind'} this one"
    if abs(seconds_ahead) <= SKEW_SECONDS_MAX:
        return Finding("clock", "good", f"agrees with this one to {abs(seconds_ahead):.1f} s")
    return Finding("clock", "bad", found, f"synchronise the clocks here and at {server} with NTP")
