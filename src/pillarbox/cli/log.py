"""`pillarbox log`: inspect, check, repair and compact the log of a store."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter
from rich.text import Text

from pillarbox.cli import output, repair
from pillarbox.cli.backends import QueueInfo, find_log, stored_queues
from pillarbox.cli.entries import line
from pillarbox.cli.log_filter import LogFilter, index_of, kinds_of, seconds_of
from pillarbox.cli.options import Json, JsonLines, Yes, check_least, confirmed, group
from pillarbox.cli.output import FAILED, OK, UsageError
from pillarbox.cli.queue import dead_letter_target, queue_table
from pillarbox.cli.replica import read_replica
from pillarbox.cli.segments import durability_of, list_segments
from pillarbox.cli.tables import info_of, rows_of, table_of
from pillarbox.log import LogError, LogReader, RealDisk, Retention
from pillarbox.log.directory import ASIDE
from pillarbox.log.errors import holder_of_lock
from pillarbox.mailbox.data_directory import DataDirectory
from pillarbox.mailbox.durable_store import DurableStore
from pillarbox.mailbox.store_files import read_snapshot

app = group(
    "log",
    "Inspect, check, repair and compact the log of a store.\n\n"
    "PATH is the directory of a store, of its log or of any other log, or the URL of a mailbox "
    "(file:./data/orders). All commands but repair and compact work while another process "
    "writes to the log.",
    "Example: pillarbox log cat ./data --queue orders --follow",
)

PathText = Annotated[
    str, Parameter(help="A store, its log, or the URL of a mailbox (file:./data/orders).")
]
_WIDTH_FOR_YEARS = 100


@app.command(help_epilogue="Example: pillarbox log ls ./data")
def ls(path: PathText, /, *, json: Json = False) -> int:
    """List the segment files with their indices, sizes and times."""
    data = find_log(path)
    segments = list_segments(data.log, data.segment_files())
    right = ("first", "records", "bytes")
    narrow = output.console().width < _WIDTH_FOR_YEARS
    rows: list[tuple[str | Text, ...]] = []
    for each in segments:
        times = [output.brief_time(at) for at in (each.from_ns, each.to_ns)]
        numbers = str(each.first_index), str(each.records), output.size(each.bytes)
        state = Text(each.state, style="red" if each.state == "damaged" else "")
        rows.append((each.name, *numbers, *(x[5:16] if narrow else x for x in times), state))
    names = ("segment", *right, "from (UTC)", "to (UTC)", "state")
    shown = output.table(names, rows, right=right) if segments else "the log is empty"
    document = {"log": data.log, "segments": [each.as_json() for each in segments]}
    return output.show(document, shown, json=json)


@app.command(help_epilogue="Example: pillarbox log info file:./data/orders")
def info(path: PathText, /, *, json: Json = False) -> int:
    """Show indices, size, durability and queues, and which readers hold back deletion."""
    if (table := table_of(path)) is not None:
        return _table_info(info_of(table), json=json)
    data = find_log(path)
    fields, queues, misfits = _info(data), [], 0
    if data.store is not None:
        with output.progress("replaying") as advance:
            replica = read_replica(data.store, data.log, advance)
        queues, misfits = stored_queues(replica, data.queue), len(replica.misfits)
        fields["queues"] = [each.as_json() for each in queues]
        fields["message_id_prefix"] = replica.names.prefix
        fields["entries_that_do_not_fit"] = misfits
    if json:
        output.print_json(fields)
        return OK
    _print_info(fields, queues)
    if misfits:
        output.complain(f"{misfits} entries refer to records that are lost, so counts may be wrong")
    return OK


def _table_info(document: dict[str, Any], *, json: bool) -> int:
    shown = document | {
        "columns": ", ".join(f"{name} {kind}" for name, kind in document["columns"].items()),
        "steps": ", ".join(f"{name} {x['step']}" for name, x in document["steps"].items()) or "-",
    }
    rows = [(name, str(value)) for name, value in shown.items()]
    return output.show(document, output.facts(rows), json=json)


def _info(data: DataDirectory) -> dict[str, Any]:
    segments = list_segments(data.log, data.segment_files())
    with LogReader(data.log, RealDisk()) as reader:
        fields: dict[str, Any] = {
            "store": data.store,
            "log": data.log,
            "log_id": reader.log_id.hex() or None,
            "format": reader.format,
            "in_use_by_pid": data.writer(),
            "first_index": reader.first_index,
            "end_index": reader.end_index,
            "segments": len(segments),
            "bytes": sum(each.bytes for each in segments),
            "from": output.iso_or_none(segments[0].from_ns if segments else 0),
            "to": output.iso_or_none(segments[-1].to_ns if segments else 0),
            "durability": durability_of(reader, segments[-1] if segments else None),
            "pins": reader.pins(),
        }
    if data.store is not None:
        state = read_snapshot(RealDisk(), data.store)
        fields["snapshot"] = state and {"index": state.index, "time": output.iso(state.time)}
    return fields


def _records(first: int, end: int) -> str:
    return f"{end - first:,} (index {first} to {end - 1})" if end > first else "none"


def _print_info(fields: dict[str, Any], queues: list[QueueInfo]) -> None:
    console = output.console()
    pid = fields["in_use_by_pid"]
    rows = [
        ("store", fields["store"] or "none (a plain log)"),
        ("log", f"{fields['log_id'] or 'unknown'} (format {fields['format']})"),
        ("in use", f"by process {pid}" if pid else "no"),
        ("records", _records(fields["first_index"], fields["end_index"])),
        ("written", f"{fields['from'] or '-'} to {fields['to'] or '-'}"),
        (
            "size",
            f"{output.size(fields['bytes'])} in {output.count(fields['segments'], 'segment')}",
        ),
        ("durability", fields["durability"]),
    ]
    if fields["store"]:
        state = fields["snapshot"]
        rows.append(("snapshot", f"at {state['index']}, {state['time']}" if state else "none"))
    pins = [f"{name} at {index}" for name, index in sorted(fields["pins"].items())]
    rows.append(("pinned by", ", ".join(pins) or "nothing"))
    console.print(output.facts(rows))
    if queues:
        console.print()
        console.print(queue_table(queues, "dead letters go to", dead_letter_target))


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
        str | None, Parameter(name="--to", help="End, exclusive, in the same forms.")
    ] = None,
    queue: Annotated[str | None, Parameter(help="Only entries of this queue.")] = None,
    kind: Annotated[
        list[str] | None, Parameter(help="Only entries of these kinds, such as sent,leased.")
    ] = None,
    follow: Annotated[
        bool, Parameter(name=["--follow", "-f"], help="Wait for new entries.")
    ] = False,
    limit: Annotated[int | None, Parameter(help="Stop after this many entries.")] = None,
    json: JsonLines = False,
) -> int:
    """Print the entries of a log, decoded. Only a terminal truncates long lines."""
    check_least("--limit", limit, 1)
    if (table := table_of(path)) is not None:
        first = 0 if start is None else index_of(table, "--from", start)
        end = None if stop is None else index_of(table, "--to", stop)
        for row in islice(rows_of(table, first, end), limit):
            output.print_json(row)
        return OK
    data = find_log(path)
    with LogReader(data.log, RealDisk()) as reader, contextlib.suppress(KeyboardInterrupt):
        chosen = LogFilter(data, reader, queue or data.queue, kinds_of(kind or ()))
        first = reader.first_index if start is None else index_of(reader, "--from", start)
        end = None if stop is None else index_of(reader, "--to", stop)
        write = output.print_json if json else _line_writer()
        for entry in islice(chosen.read(first, end, follow=follow), limit):
            write(entry)
            if follow:
                sys.stdout.flush()
        sys.stdout.flush()
    return OK


def _line_writer() -> Callable[[dict[str, Any]], object]:
    """Return a function that prints entries; on a terminal in colour, and the date only once."""
    console, print_line = output.console(), output.line_printer()
    if not console.is_terminal:
        return lambda entry: print_line(line(entry, None))
    day = ""

    def write(entry: dict[str, Any]) -> None:
        nonlocal day
        if entry["time"][:10] != day:
            day = entry["time"][:10]
            console.print(f"{day} (UTC)", style="dim")
        print_line(line(entry, console.width))

    return write


@app.command(help_epilogue="Example: pillarbox log verify ./data && echo intact")
def verify(path: PathText, /, *, json: Json = False) -> int:
    """Check every record. List the damage and exit with code 1 if there is any."""
    data = find_log(path)
    with output.progress("checking") as advance:
        checked = repair.check(data, advance)
    if json:
        output.print_json(repair.check_as_json(data, checked))
    else:
        repair.show_check(data, checked)
    return OK if checked.healthy else FAILED


@app.command(name="repair", help_epilogue="Example: pillarbox log repair ./data --dry-run")
def repair_(
    path: PathText,
    /,
    *,
    yes: Yes = False,
    dry_run: Annotated[
        bool, Parameter(help="Report what would be lost without changing anything.")
    ] = False,
    json: Json = False,
) -> int:
    """List the records and messages lost to damage, then rewrite the log without them.

    Nothing is deleted: damaged files move to the directory 'aside' of the log.
    """
    data = find_log(path)
    if not dry_run:
        _refuse_if_in_use(data)
    with output.progress("checking") as advance:
        checked = repair.check(data, advance)
    with output.progress("looking for lost messages") as advance:
        lost = None if checked.healthy else repair.losses_of(data, checked, advance)
    if not json:
        repair.show_check(data, checked)
        repair.show_losses(lost)
    refused = repair.not_repairable_because(checked)
    repaired = False
    refusal = "repair asks before it changes anything; give --yes or --dry-run."
    if not (refused or checked.healthy or dry_run) and (
        yes or confirmed("Repair?", json=json, refusal=refusal)
    ):
        with output.progress("repairing") as advance:
            checked.report.kept_aside = repair.repair_store(data, checked, advance)
        repaired = True
    if json:
        document = repair.check_as_json(data, checked) | {"lost": lost and asdict(lost)}
        output.print_json(document | {"repaired": repaired, "not_repairable": refused})
    else:
        repair.show_end(data, checked, repaired=repaired, refused=refused)
    return OK if repaired or checked.healthy else FAILED


@app.command(help_epilogue="Example: pillarbox log compact ./data --keep 7d")
def compact(
    path: PathText,
    /,
    *,
    keep: Annotated[
        str | None,
        Parameter(help="Keep history this long, such as 7d (default: the setting of the store)."),
    ] = None,
    json: Json = False,
) -> int:
    """Take a snapshot, then delete the history that is no longer needed.

    Messages, pins, named tailers and --keep retain history. A running store compacts itself.
    """
    data = find_log(path)
    if data.store is None:
        raise UsageError(f"{data.log} is a plain log; only a store can be compacted.")
    age = None if keep is None else seconds_of(keep)
    if keep is not None and age is None:
        raise UsageError(f"--keep must be a duration such as 12h or 7d; got {keep!r}.")
    _refuse_if_in_use(data)
    before, started = _bytes_on_disk(data.store), time.monotonic()
    with contextlib.closing(DurableStore(data.store)) as store:
        if age is not None:
            store.compactor.history = Retention(age_seconds=age)
        with output.progress("compacting") as advance:
            store.compactor.compact(advance)
    after, seconds = _bytes_on_disk(data.store), time.monotonic() - started
    sizes = f"{output.size(before)} before, {output.size(after)} after ({seconds:.1f} s)"
    document = {"store": data.store, "bytes_before": before, "bytes_after": after}
    return output.show(document, f"{data.store}: {sizes}", json=json)


def _bytes_on_disk(store: str) -> int:
    """Return the size of a store on disk, without the files that repairs have set aside."""
    total = 0
    for directory, inside, files in os.walk(store):
        inside[:] = [name for name in inside if name != ASIDE]
        total += sum((Path(directory) / name).stat().st_size for name in files)
    return total


def _refuse_if_in_use(data: DataDirectory) -> None:
    pid = data.writer()
    if pid is not None:
        raise LogError(f"{data.name} is in use by {holder_of_lock(pid)}; stop that process first")
