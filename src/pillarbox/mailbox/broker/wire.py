"""The private protocol between `BrokerMailbox` and the broker: msgpack over HTTP/1.1.

`POST /pillarbox/v1/{queue}` carries a `Request`: commands, executed in order, each with its own
result. Bodies are opaque bytes. Times are microseconds, rounded up, so nothing comes early.

A request contains its channel and its number on the channel. The broker remembers the last response
of each channel, so a client whose connection broke can repeat the request safely.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self, get_args

from msgspec import Meta, Struct
from msgspec.msgpack import Decoder, Encoder

from pillarbox.core import limits
from pillarbox.core.queue import Outcome, Redelivery

PATH = "/pillarbox/v1"
SIGNED_FOR = ("us-east-1", "sqs")  # region and service; fixed, because the URL has neither
REQUEST_BYTES_MAX = 8 << 20  # limit of the broker
ANSWER_BYTES_MAX = 16 << 20  # further messages stay queued for the next receive
COMMANDS_MAX = 1_000  # per request
BATCH_MAX = 50_000  # messages per command

_SECOND_US = 1_000_000

_Count = Annotated[int, Meta(ge=1, le=limits.MESSAGES_MAX)]
_Ids = Annotated[list[str], Meta(max_length=BATCH_MAX)]
_Text = Annotated[str, Meta(min_length=1)]
_Token = Annotated[str, Meta(pattern=r"^[!-~]{1,128}\Z")]
_Visibility = Annotated[int, Meta(ge=0, le=limits.VISIBILITY_SECONDS_MAX * _SECOND_US)]
_Body = Annotated[bytes, Meta(max_length=limits.BODY_BYTES_MAX)]


def microseconds(nanoseconds: int) -> int:
    """Convert to microseconds, rounded up."""
    return -(-nanoseconds // 1_000)


class Send(Struct, array_like=True, tag="send", frozen=True):
    """Send messages, all or none; only their bodies differ."""

    bodies: Annotated[list[_Body], Meta(max_length=BATCH_MAX)]
    priority: Annotated[int, Meta(ge=0, le=limits.PRIORITY_MAX)] = 0
    delay_us: Annotated[int, Meta(ge=0, le=limits.DELAY_SECONDS_MAX * _SECOND_US)] = 0
    attributes: dict[str, str] | None = None
    group: _Token | None = None
    deduplication: _Token | None = None


class Receive(Struct, array_like=True, tag="receive", frozen=True):
    """Lease messages; may wait for the first. Must be the only command of its request."""

    count: _Count
    timeout_us: _Visibility
    wait_us: Annotated[int, Meta(ge=0, le=limits.WAIT_SECONDS_MAX * _SECOND_US)] = 0


class Acknowledge(Struct, array_like=True, tag="acknowledge", frozen=True):
    handles: _Ids


class Nack(Struct, array_like=True, tag="nack", frozen=True):
    handles: _Ids
    delay_us: _Visibility = 0


class Extend(Struct, array_like=True, tag="extend", frozen=True):
    handles: _Ids
    timeout_us: _Visibility


class Release(Struct, array_like=True, tag="release", frozen=True):
    handles: _Ids
    to_front: bool = False  # for undelivered messages


class Reject(Struct, array_like=True, tag="reject", frozen=True):
    handles: _Ids
    reason: _Text


class Purge(Struct, array_like=True, tag="purge", frozen=True):
    """Delete all messages."""


class Tally(Struct, array_like=True, tag="tally", frozen=True):
    """Count messages by state."""


class Peek(Struct, array_like=True, tag="peek", frozen=True):
    """Peek at messages in a state, after the first `skip`."""

    state: Literal["ready", "scheduled", "in_flight"]
    count: _Count
    skip: Annotated[int, Meta(ge=0)] = 0


class Delete(Struct, array_like=True, tag="delete", frozen=True):
    ids: _Ids


class Redrive(Struct, array_like=True, tag="redrive", frozen=True):
    """Redrive dead letters: all without `ids`, each to its source queue without `to`.

    With a `limit` the broker examines this many ready messages, after the first `skip`, and returns
    `Moved`.
    """

    ids: _Ids | None = None
    to: _Text | None = None
    limit: _Count | None = None
    skip: Annotated[int, Meta(ge=0)] = 0


class Policy(Struct, array_like=True, frozen=True):
    """A dead-letter policy with an explicit queue name."""

    max_deliveries: Annotated[int, Meta(ge=1, le=limits.DELIVERIES_MAX)]
    name: _Text


class Declare(Struct, array_like=True, tag="declare", frozen=True):
    """Open a queue. Settings apply to a new queue only, a policy to any.

    Without a policy a new queue gets the broker's default, unless `immortal` is set.
    """

    content_type: str | None = None  # unused: a queue has no type
    redelivery: Redelivery = "tail"
    capacity: Annotated[int, Meta(ge=1)] | None = None
    policy: Policy | None = None
    immortal: bool = False
    create: bool = True  # False: change nothing, and fail if the queue does not exist
    fair: bool = False


class Pause(Struct, array_like=True, tag="pause", frozen=True):
    """Pause or resume delivery from the queue; it still accepts messages."""

    paused: bool


class Drop(Struct, array_like=True, tag="drop", frozen=True):
    """Delete the queue and all its messages."""


class Hello(Struct, array_like=True, tag="hello", frozen=True):
    """Request a token for later requests; this request is signed."""


class Describe(Struct, array_like=True, tag="describe", frozen=True):
    """Describe the broker, and the key's permissions on the queue in the path."""


class ListQueues(Struct, array_like=True, tag="list_queues", frozen=True):
    """List all queues that the client may see; has no queue in the path."""


class Outline(Struct, array_like=True, tag="outline", frozen=True):
    """Describe a queue's history and find a time in it; for all queues without a name."""

    time_ns: int | None = None


class Recall(Struct, array_like=True, tag="recall", frozen=True):
    """Read part of a queue's history: entries of these kinds, or of all kinds."""

    start: Annotated[int, Meta(ge=0)]
    stop: Annotated[int, Meta(ge=0)]
    kinds: Annotated[bytes, Meta(max_length=256)] = b""


class ListFiles(Struct, array_like=True, tag="files", frozen=True):
    """List the current files of the broker's store, for a backup."""


class ReadFile(Struct, array_like=True, tag="file", frozen=True):
    """Read part of a segment or of the snapshot."""

    name: Annotated[str, Meta(max_length=64)]
    offset: Annotated[int, Meta(ge=0)]
    size: Annotated[int, Meta(ge=1, le=4 << 20)]


_Looks = Tally | Peek | ListQueues | Describe | Hello | Outline | Recall | ListFiles | ReadFile
_Settles = Acknowledge | Nack | Extend | Release | Reject
_Changes = Purge | Delete | Redrive | Declare | Pause | Drop
Command = Send | Receive | _Settles | _Changes | _Looks
LOOKS = frozenset(get_args(_Looks))  # commands that change nothing
_REPEATABLE = LOOKS | {Receive, Declare, Pause}


def repeatable(command: Command) -> bool:
    """Return whether a command is idempotent: read-only, or deduplicated by the queue."""
    if isinstance(command, Send):
        return command.deduplication is not None
    return type(command) in _REPEATABLE


def shortened(command: Command, seconds: float) -> Command:
    """Return the command with its wait time reduced by `seconds`."""
    if not isinstance(command, Receive):
        return command
    left = max(0, command.wait_us - int(seconds * _SECOND_US))
    return Receive(command.count, command.timeout_us, left)


class Request(Struct, array_like=True, frozen=True):
    """A request. `instance` is the broker of the first attempt; empty unless it is a retry."""

    channel: Annotated[bytes, Meta(min_length=16, max_length=16)]
    number: Annotated[int, Meta(ge=1)]
    instance: Annotated[str, Meta(max_length=64)]  # bounded: waiting requests are kept in memory
    commands: Annotated[list[Command], Meta(min_length=1, max_length=COMMANDS_MAX)]


# -- outcomes ----------------------------------------------------------------------------------


class _Whole(Struct, array_like=True, frozen=True):
    """A result with several fields, returned as a whole."""

    @property
    def value(self) -> Self:
        return self


class Sent(Struct, array_like=True, tag="sent", frozen=True):
    """The message ids."""

    value: list[str]


class Died(Struct, array_like=True, frozen=True):
    """Why and when a message was dead-lettered, and its deliveries (leased, ended, outcome)."""

    source: str
    reason: str
    died_ns: int
    attempts: list[tuple[int, int, Outcome]]


class Delivery(Struct, array_like=True, frozen=True, eq=False, gc=False):
    """One message on the wire."""

    id: str
    handle: str  # empty for a peeked message
    body: bytes | None  # None if lost to disk corruption
    number: int
    enqueued_ns: int
    priority: int = 0
    attributes: dict[str, str] | None = None
    group: str | None = None
    died: Died | None = None


class Delivered(Struct, array_like=True, tag="delivered", frozen=True):
    value: list[Delivery]


class Settled(Struct, array_like=True, tag="settled", frozen=True):
    """For each handle, whether its lease was live."""

    value: list[bool]


class Done(Struct, array_like=True, tag="done", frozen=True):
    """The number of messages affected."""

    value: int


class Moved(_Whole, tag="moved", frozen=True):
    """One part of a redrive: how many moved, how many stayed, and how many are left."""

    moved: int
    stay: int
    left: int


class Tallied(Struct, array_like=True, tag="tallied", frozen=True):
    """Ready, scheduled, in flight, dead; the age of the oldest in nanoseconds."""

    value: tuple[int, int, int, int, int | None]


class Declared(_Whole, tag="declared", frozen=True):
    """The declared queue. `content_type` is unused: a queue has no type."""

    instance: str
    content_type: str | None
    dead_letters: str | None


class QueueLine(Struct, array_like=True, frozen=True):
    """One queue: its name, its counts and its dead-letter policy."""

    name: str
    tally: tuple[int, int, int, int, int | None]
    dead_letters: str | None
    max_deliveries: int
    paused: bool = False


class Welcome(Struct, array_like=True, tag="welcome", frozen=True):
    """The token."""

    value: str


class Described(_Whole, tag="described", frozen=True):
    """A broker. Disk, store and other brokers are shown only to keys with full access."""

    version: str
    time_ns: int
    durability: str  # none in memory; shared if the queues are in a shared store
    has_keys: bool
    may: list[str]  # SQS actions
    problem: str | None
    free_bytes: int | None
    store: str | None = None  # URL of the shared store
    brokers: dict[str, str] = {}  # brokers that share the store: URL -> version


class ListedQueues(Struct, array_like=True, tag="listed_queues", frozen=True):
    value: list[QueueLine]


class Outlined(_Whole, tag="outlined", frozen=True):
    """The range of a history, the bytes before some indices, and names to decode its entries."""

    first: int
    end: int
    marks: list[tuple[int, int]]
    prefix: str  # of message ids
    names: dict[int, str]  # queue names by the numbers in entries
    at: int | None  # first entry at or after the requested time


class Recalled(_Whole, tag="recalled", frozen=True):
    """Entries up to `end`: indices and times (int64), and the entries as the payload of a frame.

    `first` is the oldest entry still kept; if it is past the requested index, some are gone.
    """

    first: int
    end: int
    count: int
    indices: bytes
    times: bytes
    records: bytes


class StoreListing(_Whole, tag="listed", frozen=True):
    """A consistent set of files of a store."""

    snapshot_head: bytes  # identifies the snapshot; empty without one
    segments: list[str]  # of the log, oldest first
    small: dict[str, bytes]  # settings, time and positions: path in the store -> content
    confirmed: int  # records before this index are confirmed; 0 without a writer


class Piece(_Whole, tag="piece", frozen=True):
    """Part of a file; None if the file is gone."""

    data: bytes | None


class Failed(Struct, array_like=True, tag="failed", frozen=True):
    """The command failed and changed nothing; `code` is the name of the error class."""

    code: str
    message: str
    parameter: str = ""
    value: str = ""
    allowed: str = ""


_OfQueues = Declared | Tallied | ListedQueues | Outlined | Recalled
_OfBroker = Described | Welcome | StoreListing | Piece
Result = Sent | Delivered | Settled | Done | Moved | _OfQueues | _OfBroker | Failed

encode = Encoder().encode
decode_request = Decoder(Request).decode
decode_results = Decoder(list[Result]).decode
