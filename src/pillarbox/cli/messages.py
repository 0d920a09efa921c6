"""`pillarbox send`, `receive`, `peek`, `redrive` and `tail`, on any mailbox's URL."""

from __future__ import annotations

import contextlib
import sys
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Annotated, Any, Literal

from cyclopts import App, Parameter
from rich.text import Text

from pillarbox import Message, Undecodable
from pillarbox.cli import output
from pillarbox.cli.entries import body_fields, safe
from pillarbox.cli.output import FAILED, OK, UsageError
from pillarbox.cli.survey import open_box, open_existing, open_to_look
from pillarbox.core import limits
from pillarbox.mailbox.protocol import Mailbox, State

Url = Annotated[str, Parameter(help="The queue, as http://localhost:9324/orders.")]
Json = Annotated[bool, Parameter(name="--json", help="Print one JSON document.")]
JsonLines = Annotated[bool, Parameter(name="--json", help="Print a JSON object a line.")]
Most = Annotated[int, Parameter(name=["--max", "-n"], help="At most so many; 10 if not given.")]

_BATCH = 10  # what every backend takes at a time
_POLL_SECONDS = 20  # what every backend can wait at a time
_LOOK_SECONDS = 0.5
_SEEN_MAX = 100_000


def send(
    url: Url,
    body: Annotated[
        str, Parameter(help="The message; - reads standard input.", allow_leading_hyphen=True)
    ] = "-",
    /,
    *,
    lines: Annotated[bool, Parameter(help="Each line is a message.")] = False,
    delay: Annotated[float, Parameter(help="Seconds before it can be received.")] = 0,
    priority: Annotated[int, Parameter(help="0 to 255; the higher goes first.")] = 0,
    attribute: Annotated[
        list[str] | None,
        Parameter(name=["--attribute", "-a"], help="name=value; as often as wanted."),
    ] = None,
    group: Annotated[str | None, Parameter(help="Order is kept within a group.")] = None,
    deduplication_id: Annotated[
        str | None, Parameter(help="Sent again within five minutes, it is one message.")
    ] = None,
    json: Json = False,
) -> int:
    """Send a message; its id is printed. A queue that is not there is made."""
    bodies = _bodies(body, lines=lines)
    if deduplication_id is not None and len(bodies) != 1:
        raise UsageError("--deduplication-id is for one message, not for --lines.")
    options: dict[str, Any] = {"delay_seconds": delay, "priority": priority, "group": group}
    if attribute:
        options["attributes"] = dict(_pair(each) for each in attribute)
    with _open_for(url, bodies) as box:
        ids: list[str] = []
        if deduplication_id is not None:
            ids.append(box.send(bodies[0], deduplication_id=deduplication_id, **options))
        for start in range(0, len(bodies) if deduplication_id is None else 0, _BATCH):
            ids += box.send_many(bodies[start : start + _BATCH], **options)
    if json:
        output.print_json({"ids": ids})
    else:
        sys.stdout.writelines(f"{each}\n" for each in ids)
    return OK


def _bodies(body: str, *, lines: bool) -> list[Any]:
    data = sys.stdin.buffer.read() if body == "-" else body.encode(errors="surrogateescape")
    parts = [line for line in data.splitlines() if line] if lines else [data]
    try:
        return [part.decode() for part in parts]
    except UnicodeDecodeError:
        return parts


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise UsageError(f"--attribute must be name=value; got {text!r}.")
    return name, value


def _open_for(url: str, bodies: list[Any]) -> Mailbox[Any]:
    options = {"create": True} if url.startswith("sqs") else {}  # others make it by themselves
    kind = bytes if any(isinstance(body, bytes) for body in bodies) else str
    return open_box(url, kind, **options)


def receive(
    url: Url,
    /,
    *,
    most: Most = 10,
    wait: Annotated[float, Parameter(help="Seconds to wait for the first one.")] = 0,
    visibility: Annotated[
        float, Parameter(help="Seconds until they come back; 30 if not given.")
    ] = limits.VISIBILITY_SECONDS_DEFAULT,
    ack: Annotated[bool, Parameter(help="Acknowledge them once they are printed.")] = False,
    json: JsonLines = False,
) -> int:
    """Receive messages. Without --ack they come back after a while; exit code 1 if none came."""
    with open_existing(url) as box:
        messages = box.receive(
            max_messages=most, visibility_timeout=visibility, wait_time_seconds=wait
        )
        _print_all(messages, json=json)
        if ack:
            box.acknowledge_many(messages)
    return OK if messages else FAILED


def peek(
    url: Url,
    /,
    *,
    most: Most = 10,
    state: Annotated[
        Literal["ready", "scheduled", "in_flight"], Parameter(help="ready if not given.")
    ] = "ready",
    json: JsonLines = False,
) -> int:
    """Look at messages without receiving them: nothing is leased, nothing counted."""
    with open_to_look(url) as box:
        _print_all(box.peek(most, state=state), json=json)
    return OK


def redrive(
    url: Annotated[str, Parameter(help="The queue of dead letters.")],
    ids: Annotated[list[str] | None, Parameter(help="Only these; else all.", negative=())] = None,
    /,
    *,
    to: Annotated[str | None, Parameter(help="To this queue; else where each came from.")] = None,
    reason: Annotated[str | None, Parameter(help="Only those that died of this (a part).")] = None,
    json: Json = False,
) -> int:
    """Send dead letters back where they came from, or to another queue."""

    def died_of_it(message: Message[Any]) -> bool:
        letter = message.dead_letter
        return letter is not None and reason is not None and reason in letter.reason

    with open_existing(url) as box:
        count = box.redrive(ids or None, where=died_of_it if reason is not None else None, to=to)
    if json:
        output.print_json({"redriven": count})
    else:
        output.console().print(f"{count:,} messages redriven", style="green")
    return OK


def tail(
    url: Url,
    /,
    *,
    take: Annotated[bool, Parameter(help="Receive and acknowledge each one.")] = False,
    limit: Annotated[int | None, Parameter(help="Stop after so many.")] = None,
    json: JsonLines = False,
) -> int:
    """Print messages as they come, until Ctrl-C.

    It only looks, twice a second, so it takes nothing from anyone and may miss a message that
    others are quick to receive. With --take it receives, and misses none.
    """
    if limit is not None and limit < 1:
        raise UsageError(f"--limit must be 1 or more; got {limit}.")
    opened: Any = open_existing(url) if take else open_to_look(url)
    with opened as box, contextlib.suppress(KeyboardInterrupt):
        write = _writer(json=json)
        for message in islice(_taken(box) if take else _seen(box), limit):
            write(message)
            sys.stdout.flush()
            if take:
                message.acknowledge()
    return OK


def _taken(box: Mailbox[Any]) -> Iterator[Message[Any]]:
    while True:
        yield from box.receive(wait_time_seconds=_POLL_SECONDS)


def _seen(box: Mailbox[Any]) -> Iterator[Message[Any]]:
    """Each message once, whatever its state, as far as a look now and then can tell."""
    known: OrderedDict[str, None] = OrderedDict()
    states: tuple[State, ...] = ("in_flight", "ready", "scheduled")
    while True:
        for state in states:
            for message in box.peek(1_000, state=state):
                if message.id not in known:
                    known[message.id] = None
                    yield message
        while len(known) > _SEEN_MAX:
            known.popitem(last=False)
        time.sleep(_LOOK_SECONDS)


# -- how messages are printed ------------------------------------------------------------------


def _print_all(messages: Any, *, json: bool) -> None:
    write = _writer(json=json)
    for message in messages:
        write(message)
    sys.stdout.flush()


def _writer(*, json: bool) -> Callable[[Message[Any]], object]:
    if json:
        return lambda message: output.print_json(_document(message))
    console = output.console()
    if not console.is_terminal:
        return lambda message: sys.stdout.write(_line(message).plain + "\n")
    return lambda message: console.print(_line(message), no_wrap=True, overflow="ellipsis")


def _document(message: Message[Any]) -> dict[str, Any]:
    letter = message.dead_letter
    known: dict[str, Any] = {
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
    found = {name: value for name, value in known.items() if value not in (None, {})}
    return found | body_fields(_data(message))


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


COMMANDS: dict[Callable[..., int], str] = {
    send: "Example: pillarbox send http://localhost:9324/orders '{\"tea\": 2}' --priority 9",
    receive: "Example: pillarbox receive http://localhost:9324/orders --wait 20 --ack",
    peek: "Example: pillarbox peek http://localhost:9324/orders_dlq --json",
    redrive: "Example: pillarbox redrive http://localhost:9324/orders_dlq --reason timeout",
    tail: "Example: pillarbox tail http://localhost:9324/orders --take --json",
}


def register(app: App) -> None:
    """Put these verbs beside the nouns."""
    for command, example in COMMANDS.items():
        app.command(
            command,
            help_epilogue=example,
            help_format="plaintext",
            default_parameter=Parameter(negative=(), show_default=False),
        )
