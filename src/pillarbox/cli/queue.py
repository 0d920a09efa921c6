"""`pillarbox queue`: list, make, look at, change, empty and delete queues."""

from __future__ import annotations

import sys
from typing import Annotated, Any, Literal

from cyclopts import App, Parameter
from rich.console import Console
from rich.prompt import Confirm
from rich.table import Table
from rich.text import Text

from pillarbox import DeadLetterPolicy
from pillarbox.cli import output
from pillarbox.cli.output import OK, UsageError
from pillarbox.cli.survey import (
    QueueInfo,
    delete,
    name_in,
    open_box,
    open_existing,
    queue_at,
    queues_at,
)

app = App(
    name="queue",
    help=(
        "List, make, look at, change, empty and delete queues.\n\n"
        "URL is that of a mailbox: http://localhost:9324/orders on a broker, file:./data/orders "
        "in a store, redis://host/orders, sqs://region/orders. Without the name it means the "
        "broker or the store."
    ),
    help_epilogue=(
        "Exit codes: 0 done; 1 it failed, or there is no such queue; 2 the command line is "
        "wrong.\n\nExample: pillarbox queue ls http://localhost:9324"
    ),
    help_format="plaintext",
    default_parameter=Parameter(negative=(), show_default=False),
)

Url = Annotated[str, Parameter(help="The queue, as http://localhost:9324/orders.")]
Urls = Annotated[list[str], Parameter(help="One queue or more.", negative=())]
Json = Annotated[bool, Parameter(name="--json", help="Print one JSON document.")]
Yes = Annotated[bool, Parameter(name=["--yes", "-y"], help="Do not ask.")]
MaxDeliveries = Annotated[
    int | None, Parameter(help="A message that failed so often is a dead letter.")
]
DeadLetters = Annotated[
    str | None, Parameter(help="The queue for its dead letters; else its name and _dlq.")
]


@app.command(help_epilogue="Example: pillarbox queue ls file:./data --json")
def ls(
    url: Annotated[str, Parameter(help="A broker, a store, or a queue in it.")],
    /,
    *,
    json: Json = False,
) -> int:
    """List the queues of a broker or a store, with what they hold."""
    found = queues_at(url)
    if json:
        output.print_json({"queues": [each.as_json() for each in found]})
        return OK
    output.console().print(table_of(found) if found else "there are no queues")
    return OK


def table_of(found: list[QueueInfo]) -> Table:
    """Queues for people."""
    right = ("ready", "scheduled", "in flight", "dead", "oldest")
    table = output.columns("queue", *right, "dead letters go to", right=right)
    for each in found:
        stats = each.stats
        counts = (stats.ready, stats.scheduled, stats.in_flight, stats.dead)
        table.add_row(
            Text(each.name), *map(str, counts), age_of(stats.oldest_age_seconds), _fate(each)
        )
    return table


def age_of(seconds: float | None) -> str:
    """How long ago, as people say it."""
    if seconds is None:
        return "-"
    for unit, length in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f}{unit}"
    return f"{seconds:.0f}s"


def _fate(info: QueueInfo) -> Text:
    if info.dead_letters is None:
        return Text("-")
    after = f" after {info.max_deliveries} deliveries" if info.max_deliveries else ""
    return Text(f"{info.dead_letters}{after}")


@app.command(help_epilogue="Example: pillarbox queue create http://localhost:9324/orders")
def create(
    url: Url,
    /,
    *,
    max_deliveries: MaxDeliveries = None,
    dead_letters: DeadLetters = None,
    no_dead_letters: Annotated[bool, Parameter(help="What fails is tried for ever.")] = False,
    redelivery: Annotated[
        Literal["tail", "original"] | None,
        Parameter(help="Where what failed goes: to the tail, or to its original place."),
    ] = None,
    capacity: Annotated[int | None, Parameter(help="The most messages it may hold.")] = None,
    json: Json = False,
) -> int:
    """Make a queue. One that exists is left as it is, but for its dead letters."""
    options: dict[str, Any] = {}
    if no_dead_letters:
        options["dead_letters"] = None
    if max_deliveries is not None or dead_letters is not None:
        if no_dead_letters:
            raise UsageError("--no-dead-letters contradicts --max-deliveries and --dead-letters.")
        options["dead_letters"] = DeadLetterPolicy(max_deliveries or 5, dead_letters)
    if redelivery is not None:
        options["redelivery"] = redelivery
    if capacity is not None:
        options["capacity"] = capacity
    if url.startswith("sqs"):
        options["create"] = True
    with open_box(url, **options):
        pass
    return _tell(queue_at(url), "made", json=json)


@app.command(help_epilogue="Example: pillarbox queue info http://localhost:9324/orders")
def info(url: Url, /, *, json: Json = False) -> int:
    """Tell what a queue holds, by state, and what becomes of what fails."""
    return _tell(queue_at(url), None, json=json)


@app.command(
    name="set",
    help_epilogue="Example: pillarbox queue set http://localhost:9324/orders --max-deliveries 3",
)
def set_(
    url: Url,
    /,
    *,
    max_deliveries: MaxDeliveries = None,
    dead_letters: DeadLetters = None,
    json: Json = False,
) -> int:
    """Change how often a message may fail, and where it goes then."""
    before = queue_at(url)
    if max_deliveries is None and dead_letters is None:
        raise UsageError("give --max-deliveries, --dead-letters, or both.")
    if before.dead_letters and not (max_deliveries or before.max_deliveries):
        raise UsageError("how many deliveries it has now can't be told: give --max-deliveries too.")
    policy = DeadLetterPolicy(
        max_deliveries or before.max_deliveries or 5, dead_letters or before.dead_letters
    )
    with open_box(url, dead_letters=policy):
        pass
    return _tell(queue_at(url), "changed", json=json)


def _tell(found: QueueInfo, verb: str | None, *, json: bool) -> int:
    if json:
        output.print_json(found.as_json())
        return OK
    stats = found.stats
    console = output.console()
    if verb is not None:
        console.print(f"{found.name} is {verb}", style="green")
    oldest = "-" if stats.oldest_age_seconds is None else f"{age_of(stats.oldest_age_seconds)} ago"
    rows = [
        ("queue", found.name),
        ("ready", f"{stats.ready:,}"),
        ("scheduled", f"{stats.scheduled:,}"),
        ("in flight", f"{stats.in_flight:,}"),
        ("oldest", oldest),
        ("dead letters", f"{stats.dead:,} in {_fate(found)}" if found.dead_letters else "none"),
    ]
    console.print(output.facts(rows))
    return OK


@app.command(help_epilogue="Example: pillarbox queue rm http://localhost:9324/orders --yes")
def rm(urls: Urls, /, *, yes: Yes = False, json: Json = False) -> int:
    """Delete queues and all that is in them."""
    found = [queue_at(url) for url in urls]
    _agree("delete", found, yes=yes, json=json)
    for url in urls:
        delete(url)
    return _tell_all("deleted", [(each.name, each.stats.total) for each in found], json=json)


@app.command(help_epilogue="Example: pillarbox queue purge http://localhost:9324/orders_dlq --yes")
def purge(urls: Urls, /, *, yes: Yes = False, json: Json = False) -> int:
    """Delete all messages: ready, scheduled and in flight. The queues stay."""
    found = [queue_at(url) for url in urls]
    _agree("purge", found, yes=yes, json=json)
    purged = []
    for url in urls:
        with open_existing(url) as box:
            purged.append((name_in(url), box.purge()))
    return _tell_all("purged", purged, json=json)


def _agree(verb: str, found: list[QueueInfo], *, yes: bool, json: bool) -> None:
    """Ask before anything is lost; where nobody can answer, --yes must have been given."""
    if yes:
        return
    if json or not sys.stdin.isatty():
        raise UsageError(f"{verb} asks before it deletes anything; give --yes.")
    names = ", ".join(f"{each.name} ({each.stats.total:,} messages)" for each in found)
    question = Text(f"{verb.capitalize()} {names}?")
    if not Confirm.ask(question, default=False, console=Console(stderr=True)):
        raise UsageError("nothing was changed.")


def _tell_all(verb: str, done: list[tuple[str, int]], *, json: bool) -> int:
    if json:
        output.print_json({verb: [{"name": name, "messages": count} for name, count in done]})
    else:
        for name, count in done:
            output.console().print(Text(f"{name} is {verb}: {count:,} messages"), style="green")
    return OK
