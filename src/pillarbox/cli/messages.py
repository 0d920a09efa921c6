"""`pillarbox send`, `receive`, `peek`, `redrive` and `tail`, on any mailbox's URL."""

from __future__ import annotations

import contextlib
import sys
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Annotated, Any, Literal

from cyclopts import Parameter
from rich.text import Text

from pillarbox import Message, Undecodable
from pillarbox.cli import output
from pillarbox.cli.backends import open_box, open_existing, open_read_only, queue_at
from pillarbox.cli.entries import body_fields, safe
from pillarbox.cli.options import Json, JsonLines, Limit, Url, app, check_least, key_and_value
from pillarbox.cli.output import FAILED, OK, UsageError
from pillarbox.cli.replica import ReadOnlyMailbox
from pillarbox.mailbox.protocol import Mailbox, State
from pillarbox.mailbox.url import without_password

Max = Annotated[int, Parameter(name=["--max", "-n"], help="Maximum number of messages.")]

_BATCH = 10  # the largest batch that every backend accepts
_PEEK_SECONDS = 0.5
_SEEN_MAX = 100_000


@app.command(
    help_epilogue="Example: pillarbox send http://localhost:9324/orders '{\"tea\": 2}' --priority 9"
)
def send(
    url: Url,
    body: Annotated[
        str, Parameter(help="The body; - for standard input.", allow_leading_hyphen=True)
    ] = "-",
    /,
    *,
    lines: Annotated[bool, Parameter(help="Send each line as a message.")] = False,
    delay: Annotated[float, Parameter(help="Seconds before the message can be received.")] = 0,
    priority: Annotated[int, Parameter(help="0 to 255; higher numbers first.")] = 0,
    attribute: Annotated[
        list[str] | None, Parameter(name=["--attribute", "-a"], help="name=value; may be repeated.")
    ] = None,
    group: Annotated[str | None, Parameter(help="Keep order within this group.")] = None,
    deduplication_id: Annotated[
        str | None, Parameter(help="Drop duplicates with this id for five minutes.")
    ] = None,
    json: Json = False,
) -> int:
    """Send a message and print its id. Creates the queue if it does not exist."""
    bodies = _bodies(body, lines=lines)
    if deduplication_id is not None and len(bodies) != 1:
        raise UsageError("--deduplication-id is for one message, not for --lines.")
    options: dict[str, Any] = {"delay_seconds": delay, "priority": priority, "group": group}
    if attribute:
        options["attributes"] = dict(key_and_value("--attribute", each) for each in attribute)
    kind = bytes if any(isinstance(each, bytes) for each in bodies) else str
    with open_box(url, kind, create=True) as box:
        ids: list[str] = []
        if deduplication_id is not None:
            ids.append(box.send(bodies.pop(), deduplication_id=deduplication_id, **options))
        for start in range(0, len(bodies), _BATCH):
            ids += box.send_many(bodies[start : start + _BATCH], **options)
    if json:
        output.print_json({"ids": ids})
    else:
        sys.stdout.writelines(f"{each}\n" for each in ids)
    return OK


def _bodies(body: str, *, lines: bool) -> list[Any]:
    if body.startswith("--"):
        raise UsageError(f"there is no option {body}; to send it as a body, use standard input.")
    if body == "-" and sys.stdin.isatty():
        output.remark("Type the body, then press Ctrl-D.")
    data = sys.stdin.buffer.read() if body == "-" else body.encode(errors="surrogateescape")
    parts = [line for line in data.splitlines() if line] if lines else [data]
    try:
        return [part.decode() for part in parts]
    except UnicodeDecodeError:
        return parts


@app.command(
    help_epilogue="Example: pillarbox receive http://localhost:9324/orders --wait 20 --ack"
)
def receive(
    url: Url,
    /,
    *,
    most: Max = 10,
    wait: Annotated[float, Parameter(help="Seconds to wait for the first message.")] = 0,
    visibility: Annotated[float, Parameter(help="Visibility timeout in seconds.")] = 30,
    ack: Annotated[bool, Parameter(help="Acknowledge the messages after printing them.")] = False,
    json: JsonLines = False,
) -> int:
    """Receive messages and print them. The exit code is 1 if there are none.

    Without --ack, they become visible again after the visibility timeout.
    """
    with open_existing(url) as box:
        with output.waiting(f"waiting for a message in {box.name}"):
            messages = box.receive(
                max_messages=most, visibility_timeout=visibility, wait_time_seconds=wait
            )
        _print_all(messages, json=json)
        if ack:
            box.acknowledge_many(messages)
        paused = not messages and queue_at(url).paused
        if paused:
            waiting = output.count(box.stats().ready, "ready message")
            output.remark(
                f"{box.name} is paused and delivers nothing ({waiting}); resume it with "
                f"'pillarbox queue resume {without_password(url)}'."
            )
        elif not messages:
            _report_empty(box, "ready")
    return OK if messages else FAILED


def _report_empty(box: Mailbox[Any] | ReadOnlyMailbox, state: State) -> None:
    """Print that no message is in this state, with the counts of the other states."""
    stats = box.stats()
    counts = {
        "ready": stats.ready,
        "in flight": stats.in_flight,
        "scheduled": stats.scheduled,
        "dead": stats.dead,
    }
    shown = state.replace("_", " ")
    others = [f"{count:,} {name}" for name, count in counts.items() if count and name != shown]
    rest = f" ({', '.join(others)})" if others else ""
    output.remark(f"No message in {box.name} is {shown}{rest}.")


@app.command(help_epilogue="Example: pillarbox peek http://localhost:9324/orders_dlq --json")
def peek(
    url: Url,
    /,
    *,
    most: Max = 10,
    state: Annotated[
        Literal["ready", "scheduled", "in_flight"], Parameter(help="State of the messages.")
    ] = "ready",
    json: JsonLines = False,
) -> int:
    """Print messages without receiving them."""
    with open_read_only(url) as box:
        messages = box.peek(most, state=state)
        _print_all(messages, json=json)
        if not messages:
            _report_empty(box, state)
    return OK


@app.command(
    help_epilogue="Example: pillarbox redrive http://localhost:9324/orders_dlq --reason timeout"
)
def redrive(
    url: Annotated[str, Parameter(help="URL of the dead-letter queue.")],
    ids: Annotated[list[str] | None, Parameter(help="Message ids (default: all).")] = None,
    /,
    *,
    to: Annotated[
        str | None,
        Parameter(help="Existing queue to move them to (default: the queues they came from)."),
    ] = None,
    reason: Annotated[
        str | None, Parameter(help="Only messages whose reason contains this text.")
    ] = None,
    json: Json = False,
) -> int:
    """Move dead letters back to their source queues, or to another queue."""

    def has_reason(message: Message[Any]) -> bool:
        letter = message.dead_letter
        return letter is not None and reason is not None and reason in letter.reason

    with open_existing(url) as box:
        count = box.redrive(ids or None, where=has_reason if reason is not None else None, to=to)
    done = output.success(f"{output.count(count, 'message')} redriven")
    return output.show({"redriven": count}, done, json=json)


@app.command(help_epilogue="Example: pillarbox tail http://localhost:9324/orders --take --json")
def tail(
    url: Url,
    /,
    *,
    take: Annotated[bool, Parameter(help="Receive and acknowledge each message.")] = False,
    limit: Limit = None,
    json: JsonLines = False,
) -> int:
    """Print messages as they arrive, until Ctrl-C.

    Without --take it peeks twice a second: consumers are not disturbed, but a message that is
    received and acknowledged quickly may be missed.
    """
    check_least("--limit", limit, 1)
    mailbox: Any = open_existing(url) if take else open_read_only(url)
    with mailbox as box, contextlib.suppress(KeyboardInterrupt):
        write = _writer(json=json)
        for message in islice(box.messages() if take else _peeked(box), limit):
            write(message)
            sys.stdout.flush()
            if take:
                message.acknowledge()
    return OK


def _peeked(box: Mailbox[Any]) -> Iterator[Message[Any]]:
    """Yield each message once, regardless of its state."""
    seen: OrderedDict[str, None] = OrderedDict()
    states: tuple[State, ...] = ("in_flight", "ready", "scheduled")
    while True:
        for state in states:
            for message in box.peek(1_000, state=state):
                if message.id not in seen:
                    seen[message.id] = None
                    yield message
        while len(seen) > _SEEN_MAX:
            seen.popitem(last=False)
        time.sleep(_PEEK_SECONDS)


def _print_all(messages: Any, *, json: bool) -> None:
    write = _writer(json=json)
    for message in messages:
        write(message)
    sys.stdout.flush()


def _writer(*, json: bool) -> Callable[[Message[Any]], object]:
    if json:
        return lambda message: output.print_json(_document(message))
    print_line = output.line_printer()
    return lambda message: print_line(_line(message))


def _document(message: Message[Any]) -> dict[str, Any]:
    letter = message.dead_letter
    fields: dict[str, Any] = {
        "id": message.id,
        "delivery_count": message.delivery_count,
        "enqueued_at": message.enqueued_at.isoformat(timespec="milliseconds"),
        "priority": message.priority,
        "attributes": dict(message.attributes),
        "group": message.group,
        "reply_to": message.reply_to,
        "in_reply_to": message.in_reply_to,
        "receipt_handle": message.receipt_handle or None,
        "dead_letter": letter
        and {
            "source": letter.source,
            "reason": letter.reason,
            "died_at": letter.died_at.isoformat(timespec="milliseconds"),
        },
    }
    present = {name: value for name, value in fields.items() if value not in (None, {})}
    return present | body_fields(_data(message))


def _line(message: Message[Any]) -> Text:
    fields = body_fields(_data(message))
    body = (
        fields["body"]
        if fields["body_format"] == "text"
        else _data(message).decode("utf-8", "backslashreplace")
    )
    text = Text(message.enqueued_at.strftime("%H:%M:%S"), style="dim")
    text.append(f"  {message.id}", style="dim")
    if message.delivery_count > 1:
        text.append(f"  delivery {message.delivery_count}", style="not dim yellow")
    if message.priority:
        text.append(f"  priority {message.priority}", style="not dim cyan")
    for name, value in message.attributes.items():
        text.append(f"  {safe(name)}={safe(value)}", style="not dim cyan")
    if message.dead_letter is not None:
        text.append(f"  {safe(message.dead_letter.reason)}", style="not dim red")
    return text.append(f"  {safe(body)}", style="not dim default")


def _data(message: Message[Any]) -> bytes:
    body = message.body
    if isinstance(body, Undecodable):
        return body.data
    return body.encode() if isinstance(body, str) else bytes(body)
