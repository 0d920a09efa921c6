"""`pillarbox log`: look at the log of a store, check it, mend it, make it smaller."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Annotated, Any

from cyclopts import App, Parameter
from rich.console import Console
from rich.prompt import Confirm
from rich.text import Text

from pillarbox.cli import damage, findings, output
from pillarbox.cli.entries import line
from pillarbox.cli.output import FAILED, OK, UsageError
from pillarbox.cli.place import bytes_on_disk, place_of
from pillarbox.cli.replica import replica_of
from pillarbox.cli.segments import durability_of, identity_of, list_segments
from pillarbox.cli.selection import Selection, index_of, kinds_of, seconds_of
from pillarbox.core.errors import MailboxError
from pillarbox.core.queue import Queue
from pillarbox.log import LogError, LogLockedError, LogReader, RealDisk, Retention
from pillarbox.log.errors import holder_of_lock
from pillarbox.mailbox.compactor import read_snapshot
from pillarbox.mailbox.ledger import DurableStore
from pillarbox.mailbox.place import Place

app = App(
    name="log",
    help=(
        "Look at the log of a store, check it, mend it, make it smaller.\n\n"
        "PATH is the directory of a store, of its log or of any other log, or the URL of a "
        "mailbox (file:./data/orders). All but repair and compact work beside a running writer."
    ),
    help_epilogue="Example: pillarbox log cat ./data --queue orders --follow",
    help_format="plaintext",
    default_parameter=Parameter(negative=(), show_default=False),
)

PathText = Annotated[
    str, Parameter(help="A store, its log, or a mailbox's URL (file:./data/orders).")
]
Json = Annotated[bool, Parameter(name="--json", help="Print one JSON document.")]
_WIDTH_FOR_YEARS = 100


@app.command(help_epilogue="Example: pillarbox log ls ./data")
def ls(path: PathText, /, *, json: Json = False) -> int:
    """List the segment files: first index, records, bytes, times."""
    place = place_of(path)
    found = list_segments(place.log, place.segment_files())
    if json:
        output.print_json({"log": place.log, "segments": [each.as_json() for each in found]})
        return OK
    console = output.console()
    right = ("first", "records", "bytes")
    table = output.columns("segment", *right, "from (UTC)", "to (UTC)", "state", right=right)
    narrow = console.width < _WIDTH_FOR_YEARS
    for each in found:
        times = [output.brief_time(at) for at in (each.from_ns, each.to_ns)]
        table.add_row(
            each.name,
            str(each.first_index),
            str(each.records),
            output.size(each.bytes),
            *(at[5:16] if narrow else at for at in times),
            Text(each.state, style="red" if each.state == "damaged" else ""),
        )
    console.print(table if found else "the log is empty")
    return OK


@app.command(help_epilogue="Example: pillarbox log info file:./data/orders")
def info(path: PathText, /, *, json: Json = False) -> int:
    """Tell what it holds: indices, bytes, durability, queues, pins, tailers."""
    place = place_of(path)
    known = _info(place)
    if place.store is not None:
        with output.progress("replaying") as advance:
            replica = replica_of(place.store, place.log, advance)
        queues = [each for each in replica.queues.values() if place.queue in (None, each.name)]
        known["queues"] = [_queue_info(each) for each in queues]
        known["message_id_prefix"] = replica.names.prefix
        known["entries_that_do_not_fit"] = len(replica.misfits)
    if json:
        output.print_json(known)
    else:
        _show_info(known)
    return OK


def _info(place: Place) -> dict[str, Any]:
    names = place.segment_files()
    segments = list_segments(place.log, names)
    log_id, version = identity_of(place.log, names)
    known: dict[str, Any] = {"store": place.store, "log": place.log, "log_id": log_id}
    known |= {"format": version, "in_use_by_pid": place.writer()}
    with LogReader(place.log, RealDisk()) as reader:
        known |= {
            "first_index": reader.first_index,
            "end_index": reader.end_index,
            "segments": len(segments),
            "bytes": sum(each.bytes for each in segments),
            "from": output.iso_or_none(segments[0].from_ns if segments else 0),
            "to": output.iso_or_none(segments[-1].to_ns if segments else 0),
            "durability": durability_of(reader, segments[-1] if segments else None),
            "pins": reader.pins(),
        }
    if place.store is not None:
        state = read_snapshot(RealDisk(), place.store)
        known["snapshot"] = state and {"index": state.index, "time": output.iso(state.time)}
    return known


def _queue_info(queue: Queue) -> dict[str, Any]:
    return {
        "name": queue.name,
        "ready": queue.ready,
        "scheduled": queue.scheduled,
        "in_flight": queue.in_flight,
        "dead_letters": queue.dead_letters.name if queue.dead_letters is not None else None,
        "max_deliveries": queue.settings.max_deliveries or None,
    }


def _show_info(known: dict[str, Any]) -> None:
    console = output.console()
    pid = known["in_use_by_pid"]
    rows = [
        ("store", known["store"] or "none: a plain log"),
        ("log", f"{known['log_id'] or 'unknown'} (format {known['format']})"),
        ("in use", f"by process {pid}" if pid else "no"),
        ("records", f"{known['first_index']} up to {known['end_index']}"),
        ("written", f"{known['from'] or '-'} to {known['to'] or '-'}"),
        ("size", f"{output.size(known['bytes'])} in {known['segments']} segments"),
        ("durability", known["durability"]),
    ]
    if known["store"]:
        state = known["snapshot"]
        rows.append(("snapshot", f"at {state['index']}, {state['time']}" if state else "none"))
    held = [f"{name} at {index}" for name, index in sorted(known["pins"].items())]
    rows.append(("held back by", ", ".join(held) or "nothing"))
    console.print(output.facts(rows))
    if known.get("queues"):
        right = ("ready", "scheduled", "in flight")
        table = output.columns("queue", *right, "dead letters go to", right=right)
        for each in known["queues"]:
            counts = (str(each[name]) for name in ("ready", "scheduled", "in_flight"))
            dead = each["dead_letters"]
            after = f"{dead} after {each['max_deliveries']} deliveries" if dead else "-"
            table.add_row(Text(each["name"]), *counts, Text(after))
        console.print()
        console.print(table)
    if known.get("entries_that_do_not_fit"):
        count = known["entries_that_do_not_fit"]
        output.complain(f"{count} entries do not fit: records before them are lost; counts may err")


@app.command(help_epilogue="Example: pillarbox log cat ./data --kind sent,died --from 10m")
def cat(
    path: PathText,
    /,
    *,
    start: Annotated[
        str | None,
        Parameter(name="--from", help="First index, time (UTC), or how long ago (90s, 10m, 2h)."),
    ] = None,
    stop: Annotated[
        str | None, Parameter(name="--to", help="Where to end: likewise, not included.")
    ] = None,
    queue: Annotated[str | None, Parameter(help="Entries of this queue only.")] = None,
    kind: Annotated[
        list[str] | None, Parameter(help="Entries of these kinds only, as sent,leased.")
    ] = None,
    follow: Annotated[bool, Parameter(name=["--follow", "-f"], help="Wait for more.")] = False,
    limit: Annotated[int | None, Parameter(help="Stop after so many.")] = None,
    json: Annotated[bool, Parameter(name="--json", help="Print a JSON object a line.")] = False,
) -> int:
    """Print the entries, decoded. A terminal cuts long lines, a pipe gets all."""
    if limit is not None and limit < 1:
        raise UsageError(f"--limit must be 1 or more; got {limit}.")
    place = place_of(path)
    with LogReader(place.log, RealDisk()) as reader, contextlib.suppress(KeyboardInterrupt):
        chosen = Selection(place, reader, queue or place.queue, kinds_of(kind or ()))
        first = reader.first_index if start is None else index_of(reader, "--from", start)
        end = None if stop is None else index_of(reader, "--to", stop)
        write = output.print_json if json else _line_writer()
        for known in islice(chosen.read(first, end, follow=follow), limit):
            write(known)
            if follow:
                sys.stdout.flush()
        sys.stdout.flush()
    return OK


def _line_writer() -> Callable[[dict[str, Any]], object]:
    """Prints entries for people: in colour and cut to the width on a terminal only."""
    console = output.console()
    if not console.is_terminal:
        return lambda known: sys.stdout.write(line(known, None).plain + "\n")
    day = [""]

    def write(known: dict[str, Any]) -> None:
        if known["time"][:10] != day[0]:
            day[0] = known["time"][:10]
            console.print(f"{day[0]} (UTC)", style="dim")
        console.print(line(known, console.width), no_wrap=True, overflow="ellipsis")

    return write


@app.command(help_epilogue="Example: pillarbox log verify ./data && echo whole")
def verify(path: PathText, /, *, json: Json = False) -> int:
    """Read and check everything; list damage, and exit with 1 if there is any."""
    place = place_of(path)
    with output.progress("checking") as advance:
        checked = damage.check(place, advance)
    if json:
        output.print_json(findings.as_json(place, checked))
    else:
        findings.show(place, checked)
    return OK if checked.healthy else FAILED


@app.command(name="repair", help_epilogue="Example: pillarbox log repair ./data --dry-run")
def repair_(
    path: PathText,
    /,
    *,
    yes: Annotated[bool, Parameter(name=["--yes", "-y"], help="Do not ask.")] = False,
    dry_run: Annotated[bool, Parameter(help="List what is lost, and change nothing.")] = False,
    json: Json = False,
) -> int:
    """List what damage took, then rewrite the log without it.

    Nothing is deleted: damaged files are kept in the log's directory 'aside'.
    """
    place = place_of(path)
    if not dry_run:
        _refuse_if_in_use(place, place.writer())
    with output.progress("checking") as advance:
        checked = damage.check(place, advance)
    with output.progress("looking for lost messages") as advance:
        lost = None if checked.healthy else damage.losses_of(place, checked, advance)
    if not json:
        findings.show(place, checked)
        findings.show_losses(lost)
    refused = damage.not_mendable(checked)
    repaired = False
    if refused is None and not checked.healthy and not dry_run and (yes or _agreed(json=json)):
        with output.progress("repairing") as advance, _in_use_is_told(place):
            checked.report.kept_aside = damage.mend(place, checked, advance)
        repaired = True
    if json:
        known = findings.as_json(place, checked) | {"lost": lost.as_json() if lost else None}
        output.print_json(known | {"repaired": repaired, "not_repairable": refused})
    else:
        findings.show_end(place, checked, repaired=repaired, refused=refused)
    return OK if repaired or checked.healthy else FAILED


def _agreed(*, json: bool) -> bool:
    if json or not sys.stdin.isatty():
        raise UsageError("repair asks before it changes anything; give --yes or --dry-run.")
    return Confirm.ask("Repair?", default=False, console=Console(stderr=True))


@app.command(help_epilogue="Example: pillarbox log compact ./data --keep 7d")
def compact(
    path: PathText,
    /,
    *,
    keep: Annotated[
        str | None, Parameter(help="Keep history this long (12h, 7d); default as the store does.")
    ] = None,
    json: Json = False,
) -> int:
    """Take a snapshot, and drop the history that nothing holds back.

    Messages, pins, named tailers and --keep hold it back. A store in use compacts itself.
    """
    place = place_of(path)
    if place.store is None:
        raise UsageError(f"{place.log} is the log of no store; only a store can be compacted.")
    age = None if keep is None else seconds_of(keep)
    if keep is not None and age is None:
        raise UsageError(f"--keep must be a time as 12h or 7d; got {keep!r}.")
    _refuse_if_in_use(place, place.writer())
    before, started = bytes_on_disk(place.store), time.monotonic()
    store = _open(place)
    try:
        if age is not None:
            store.compactor.history = Retention(age_seconds=age)
        with output.progress("compacting") as advance:
            store.compactor.compact(advance)
    finally:
        store.close()
    after, seconds = bytes_on_disk(place.store), time.monotonic() - started
    if json:
        output.print_json({"store": place.store, "bytes_before": before, "bytes_after": after})
    else:
        sizes = f"{output.size(before)} before, {output.size(after)} after"
        output.console().print(f"{place.store}: {sizes} ({seconds:.1f} s)")
    return OK


def _open(place: Place) -> DurableStore:
    """The store, with this process as its writer."""
    assert place.store is not None
    with _in_use_is_told(place):
        return DurableStore(place.store)


def _refuse_if_in_use(place: Place, pid: int | None) -> None:
    if pid is not None:
        raise LogError(f"{place.name} is in use by {holder_of_lock(pid)}; stop that process first")


@contextlib.contextmanager
def _in_use_is_told(place: Place) -> Iterator[None]:
    """The same words, should a writer have come between."""
    try:
        yield
    except (LogLockedError, MailboxError) as error:
        locked = error if isinstance(error, LogLockedError) else error.__cause__
        if isinstance(locked, LogLockedError):
            _refuse_if_in_use(place, locked.pid)
        raise
