"""`pillarbox queue`: list, create, inspect, change, pause, purge and delete queues."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

from cyclopts import Parameter
from rich.table import Table
from rich.text import Text

from pillarbox import DeadLetterPolicy
from pillarbox.cli import output
from pillarbox.cli.backends import (
    QueueInfo,
    delete,
    name_in,
    open_box,
    open_existing,
    pause,
    queue_at,
    queues_at,
    waiting_for,
)
from pillarbox.cli.options import Json, Url, Yes, confirmed, group
from pillarbox.cli.output import UsageError
from pillarbox.core.errors import MailboxError
from pillarbox.core.limits import queue_name
from pillarbox.mailbox.url import opener_of

app = group(
    "queue",
    "List, create, inspect, change, pause, purge and delete queues.\n\n"
    "URL names a queue: http://localhost:9324/orders on a broker, file:./data/orders in a store, "
    "redis://host/orders, postgresql://host/shop/orders, sqs://region/orders. Without a queue "
    "name it means the whole broker or store.",
    "Exit codes: 0 success; 1 failure, or the queue does not exist; 2 wrong usage.\n\n"
    "Example: pillarbox queue ls http://localhost:9324",
)

Urls = Annotated[list[str], Parameter(help="URLs of one or more queues.", negative=())]
MaxDeliveries = Annotated[
    int | None, Parameter(help="Dead-letter a message after this many failed deliveries.")
]
DeadLetters = Annotated[
    str | None, Parameter(help="Name of the dead-letter queue (default: QUEUE_dlq).")
]


@app.command(help_epilogue="Example: pillarbox queue ls file:./data --json")
def ls(
    url: Annotated[str, Parameter(help="URL of a broker, a store, or a single queue.")],
    /,
    *,
    json: Json = False,
) -> int:
    """List the queues of a broker or a store with their message counts."""
    with waiting_for(url):
        queues = queues_at(url)
    table = queue_table(queues, "dead letters go to", dead_letter_target)
    document = {"queues": [each.as_json() for each in queues]}
    return output.show(document, table if queues else "there are no queues", json=json)


def queue_table(
    queues: list[QueueInfo], last_column: str, last: Callable[[QueueInfo], str]
) -> Table:
    """Return a table of queues with their counts and one additional column."""
    right = ("ready", "scheduled", "in flight", "dead", "oldest", "rate")
    rows = [
        (
            f"{each.name} (paused)" if each.paused else each.name,
            Text(f"{each.stats.ready:,}", style="bold" if each.stats.ready else "dim"),
            f"{each.stats.scheduled:,}",
            f"{each.stats.in_flight:,}",
            Text(f"{each.stats.dead:,}", style="red" if each.stats.dead else "dim"),
            age_of(each.stats.oldest_age_seconds),
            last(each),
        )
        for each in queues
    ]
    return output.table(("queue", *right[:5], last_column), rows, right=right)


def age_of(seconds: float | None) -> str:
    """Format an age."""
    if seconds is None:
        return "-"
    for unit, length in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f}{unit}"
    return f"{seconds:.0f}s"


def dead_letter_target(info: QueueInfo) -> str:
    if info.dead_letters is None:
        return "-"
    most = info.max_deliveries
    after = f" after {most} {'delivery' if most == 1 else 'deliveries'}" if most else ""
    return f"{info.dead_letters}{after}"


@app.command(help_epilogue="Example: pillarbox queue create http://localhost:9324/orders")
def create(
    url: Url,
    /,
    *,
    max_deliveries: MaxDeliveries = None,
    dead_letters: DeadLetters = None,
    no_dead_letters: Annotated[
        bool, Parameter(help="Never dead-letter; retry indefinitely.")
    ] = False,
    redelivery: Annotated[
        Literal["tail", "original"] | None,
        Parameter(help="Return a failed message to the tail or to its original position."),
    ] = None,
    capacity: Annotated[int | None, Parameter(help="Maximum number of messages.")] = None,
    json: Json = False,
) -> int:
    """Create a queue. If it exists, only its dead-letter policy changes."""
    options: dict[str, Any] = {}
    if no_dead_letters:
        options["dead_letters"] = None
    if max_deliveries is not None or dead_letters is not None:
        if no_dead_letters:
            raise UsageError(
                "--no-dead-letters can't be combined with --max-deliveries or --dead-letters."
            )
        most = 5 if max_deliveries is None else max_deliveries
        options["dead_letters"] = _policy(most, dead_letters)
    if redelivery is not None:
        options["redelivery"] = redelivery
    if capacity is not None:
        options["capacity"] = capacity
    with open_box(url, create=True, **options):
        pass
    return _print_queue(queue_at(url), "created", json=json)


@app.command(help_epilogue="Example: pillarbox queue info http://localhost:9324/orders")
def info(url: Url, /, *, json: Json = False) -> int:
    """Show the message counts of a queue and its dead-letter policy.

    On PostgreSQL, also show the size of the table that all queues of the database share.
    """
    queue = queue_at(url)
    storage = getattr(opener_of(url), "storage", None)
    return _print_queue(queue, None, json=json, storage=storage and storage(url))


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
    """Change the dead-letter policy of a queue."""
    before = queue_at(url)
    if max_deliveries is None and dead_letters is None:
        raise UsageError("give --max-deliveries, --dead-letters, or both.")
    if max_deliveries is None:
        if before.dead_letters and not before.max_deliveries:
            raise UsageError("the current maximum is unknown; give --max-deliveries too.")
        max_deliveries = before.max_deliveries or 5
    dead_letters = before.dead_letters if dead_letters is None else dead_letters
    policy = _policy(max_deliveries, dead_letters)
    with open_box(url, dead_letters=policy):
        pass
    return _print_queue(queue_at(url), "changed", json=json)


def _policy(max_deliveries: int, dead_letters: str | None) -> DeadLetterPolicy:
    if dead_letters is not None:
        queue_name(dead_letters, "dead_letters")
    return DeadLetterPolicy(max_deliveries, dead_letters)


def _print_queue(
    queue: QueueInfo, verb: str | None, *, json: bool, storage: dict[str, int] | None = None
) -> int:
    stats = queue.stats
    oldest = "-" if stats.oldest_age_seconds is None else f"{age_of(stats.oldest_age_seconds)} ago"
    rows = [
        ("queue", f"{queue.name} (paused)" if queue.paused else queue.name),
        ("ready", f"{stats.ready:,}"),
        ("scheduled", f"{stats.scheduled:,}"),
        ("in flight", f"{stats.in_flight:,}"),
        ("oldest", oldest),
        (
            "dead letters",
            f"{stats.dead:,} in {dead_letter_target(queue)}" if queue.dead_letters else "none",
        ),
    ]
    document = queue.as_json()
    if storage is not None:
        document["storage"] = storage
        rows += [
            ("table", f"{storage['table_bytes']:,} bytes, {storage['index_bytes']:,} of indexes"),
            ("dead rows", f"{storage['dead_rows']:,} beside {storage['live_rows']:,} live"),
        ]
    done = [] if verb is None else [output.success(f"{queue.name} was {verb}")]
    return output.show(document, *done, output.facts(rows), json=json)


@app.command(name="pause", help_epilogue="Example: pillarbox queue pause http://localhost:9324/a")
def pause_(urls: Urls, /, *, json: Json = False) -> int:
    """Stop delivering messages. The queues still accept sends; see resume."""
    return _pause(urls, paused=True, json=json)


@app.command(help_epilogue="Example: pillarbox queue resume http://localhost:9324/a")
def resume(urls: Urls, /, *, json: Json = False) -> int:
    """Deliver the messages of paused queues again."""
    return _pause(urls, paused=False, json=json)


def _pause(urls: list[str], *, paused: bool, json: bool) -> int:
    names = [queue_at(url).name for url in urls]
    for url in urls:
        pause(url, paused=paused)
    verb = "paused" if paused else "resumed"
    return output.show(
        {verb: names}, *(output.success(f"{x} was {verb}") for x in names), json=json
    )


@app.command(help_epilogue="Example: pillarbox queue rm http://localhost:9324/orders --yes")
def rm(urls: Urls, /, *, yes: Yes = False, json: Json = False) -> int:
    """Delete queues and all their messages."""
    queues = [queue_at(url) for url in urls]
    _confirm("delete", queues, yes=yes, json=json)
    for url in urls:
        delete(url)
    return _print_counts("deleted", [(each.name, each.stats.total) for each in queues], json=json)


@app.command(help_epilogue="Example: pillarbox queue purge http://localhost:9324/orders_dlq --yes")
def purge(urls: Urls, /, *, yes: Yes = False, json: Json = False) -> int:
    """Delete all messages of queues: ready, scheduled and in flight. The queues stay."""
    queues = [queue_at(url) for url in urls]
    _confirm("purge", queues, yes=yes, json=json)
    purged = []
    for url in urls:
        with open_existing(url) as box:
            purged.append((name_in(url), box.purge()))
    return _print_counts("purged", purged, json=json)


def _confirm(verb: str, queues: list[QueueInfo], *, yes: bool, json: bool) -> None:
    """Ask before deleting; without a terminal, require --yes."""
    names = ", ".join(
        f"{each.name} ({output.count(each.stats.total, 'message')})" for each in queues
    )
    question = f"{verb.capitalize()} {names}?"
    refusal = f"confirm with --yes that you want to {verb} {names}."
    if not yes and not confirmed(question, json=json, refusal=refusal):
        raise MailboxError("nothing was changed")


def _print_counts(verb: str, done: list[tuple[str, int]], *, json: bool) -> int:
    document = {verb: [{"name": name, "messages": count} for name, count in done]}
    text = (f"{name} was {verb}: {output.count(count, 'message')}" for name, count in done)
    return output.show(document, *map(output.success, text), json=json)
