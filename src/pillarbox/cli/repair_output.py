"""How `pillarbox log verify` and `repair` print what they found."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rich.text import Text

from pillarbox.cli import output
from pillarbox.cli.repair import Checked, Losses
from pillarbox.log import Report
from pillarbox.mailbox.compactor import SNAPSHOT_FILE
from pillarbox.mailbox.place import Place

_LISTED_MAX = 50  # lines about lost messages; --json has all of them


def as_json(place: Place, checked: Checked) -> dict[str, Any]:
    known = asdict(checked.report)
    torn = known.pop("torn_tail")
    known["torn_tail"] = torn and dict(zip(("file", "first_byte", "bytes"), torn, strict=True))
    known["faults"] = [asdict(fault) for fault in checked.faults]
    known["snapshot_damaged"] = any(fault.file == SNAPSHOT_FILE for fault in checked.faults)
    return {"store": place.store, "healthy": checked.healthy} | known


def show(place: Place, checked: Checked) -> None:
    console, report = output.console(), checked.report
    _show_damage(report)
    for fault in checked.faults:
        console.print(Text(f"{place.store}/{fault.file} {fault.what}", style="red"))
    verdict = "intact" if checked.healthy else "damaged"
    console.print(
        f"{place.name} is {verdict}: {output.count(report.records, 'record')} in"
        f" {output.count(report.frames, 'frame')}, {output.count(report.segments, 'segment')},"
        f" {output.size(report.bytes)}",
        style="green" if checked.healthy else "bold red",
    )


def _show_damage(report: Report) -> None:
    console = output.console()
    for each in report.damage:
        text = Text.assemble((f"{each.file}", "red"))
        if each.end_byte:
            text.append(f"  bytes {each.first_byte} to {each.end_byte}")
        text.append(f": {each.what}; ")
        count = each.end_index - each.first_index
        lost = f"{output.count(count, 'record')} lost: {each.first_index} up to {each.end_index}"
        text.append(lost if count else "no records lost", style="bold")
        console.print(text)
    for first, end in report.lost_before:
        console.print(f"lost before an earlier repair: {first} up to {end}", style="yellow")
    if report.torn_tail is not None:
        file, at, count = report.torn_tail
        console.print(
            f"{file}  byte {at}: {count} bytes were never confirmed; opening the log removes them",
            style="yellow",
        )


def show_losses(lost: Losses | None) -> None:
    if lost is None:
        return
    console = output.console()
    for each in lost.messages[:_LISTED_MAX]:
        where = f" (record {each.index})" if each.index is not None else ""
        console.print(Text(f"message {each.id} of {each.queue}: {each.what}{where}"))
    if len(lost.messages) > _LISTED_MAX:
        console.print(f"... and {len(lost.messages) - _LISTED_MAX} more; --json lists them all")
    if lost.history:
        console.print(f"{lost.history} lost records are history that no live message needs")
    if lost.unknown:
        console.print(
            f"{lost.unknown} lost records were written after the last snapshot; the messages sent,"
            " received or acknowledged in them are unknown"
        )


def show_end(place: Place, checked: Checked, *, repaired: bool, refused: str | None) -> None:
    """Print how a repair ended."""
    if repaired:
        kept = ", ".join(f"{place.log}/{each}" for each in checked.report.kept_aside)
        files = f"; the replaced files are kept: {kept}" if kept else ""
        output.console().print(output.success(f"repaired, and opened successfully{files}"))
    elif refused is not None:
        output.console().print(Text(f"not repairable: {refused}", style="bold red"))
    elif not checked.healthy:
        output.console().print("nothing was changed")
