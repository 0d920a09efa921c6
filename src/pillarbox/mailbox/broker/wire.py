"""The private protocol between `BrokerMailbox` and the broker: msgpack over HTTP/1.1.

`POST /pillarbox/v1/{queue}` carries a `Request`: commands, done in order, each with an outcome
of its own. Bodies are opaque bytes. Times are microseconds, rounded up, so nothing comes early.
A request names its channel and its number on it. The broker remembers the last answer of each
channel, so a client whose connection broke asks again and nothing is done twice.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from msgspec import Meta, Struct
from msgspec.msgpack import Decoder, Encoder

from pillarbox.core import limits
from pillarbox.core.queue import Outcome, Redelivery

PATH = "/pillarbox/v1"
SIGNED_FOR = ("us-east-1", "sqs")  # region and service: a URL names neither, so these are fixed
REQUEST_BYTES_MAX = 8 << 20  # what the broker takes
ANSWER_BYTES_MAX = 16 << 20  # bodies past this are left in line for the next receive
COMMANDS_MAX = 1_000  # in one request
BATCH_MAX = 50_000  # messages in one command

_SECOND_US = 1_000_000

_Count = Annotated[int, Meta(ge=1, le=limits.MESSAGES_MAX)]
_Ids = Annotated[list[str], Meta(max_length=BATCH_MAX)]
_Text = Annotated[str, Meta(min_length=1)]
_Token = Annotated[str, Meta(pattern=r"^[!-~]{1,128}\Z")]
_Visibility = Annotated[int, Meta(ge=0, le=limits.VISIBILITY_SECONDS_MAX * _SECOND_US)]
_Body = Annotated[bytes, Meta(max_length=limits.BODY_BYTES_MAX)]


def microseconds(nanoseconds: int) -> int:
    """A time of the core on the wire; never shorter than it was."""
    return -(-nanoseconds // 1_000)


class Send(Struct, array_like=True, tag="send", frozen=True):
    """Put messages in, all or none; they differ in nothing but their bodies."""

    bodies: Annotated[list[_Body], Meta(max_length=BATCH_MAX)]
    priority: Annotated[int, Meta(ge=0, le=limits.PRIORITY_MAX)] = 0
    delay_us: Annotated[int, Meta(ge=0, le=limits.DELAY_SECONDS_MAX * _SECOND_US)] = 0
    attributes: dict[str, str] | None = None
    group: _Token | None = None
    deduplication: _Token | None = None


class Receive(Struct, array_like=True, tag="receive", frozen=True):
    """Lease messages, and wait for the first one. It is alone in its request."""

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
    to_front: bool = False  # for what nobody saw


class Reject(Struct, array_like=True, tag="reject", frozen=True):
    handles: _Ids
    reason: _Text


class Purge(Struct, array_like=True, tag="purge", frozen=True):
    """Delete everything."""


class Tally(Struct, array_like=True, tag="tally", frozen=True):
    """Count what is there, by state."""


class Peek(Struct, array_like=True, tag="peek", frozen=True):
    """Look at messages in a state, without the first few of them."""

    state: Literal["ready", "scheduled", "in_flight"]
    count: _Count
    skip: Annotated[int, Meta(ge=0)] = 0


class Delete(Struct, array_like=True, tag="delete", frozen=True):
    ids: _Ids


class Redrive(Struct, array_like=True, tag="redrive", frozen=True):
    """Move dead letters back; all of them without `ids`, each to its source without `to`.

    With a `limit` the broker looks at this many of those that are ready, after the first `skip`,
    and answers `Moved`.
    """

    ids: _Ids | None = None
    to: _Text | None = None
    limit: _Count | None = None
    skip: Annotated[int, Meta(ge=0)] = 0


class Policy(Struct, array_like=True, frozen=True):
    """A dead-letter policy, with the name spelled out."""

    max_deliveries: Annotated[int, Meta(ge=1, le=limits.DELIVERIES_MAX)]
    name: _Text


class Declare(Struct, array_like=True, tag="declare", frozen=True):
    """Open a queue. The settings are for a new one, a policy is for any.

    Without a policy a new queue has the broker's own, unless it is to be immortal.
    """

    content_type: str | None = None  # not used any more: a queue has no type
    redelivery: Redelivery = "tail"
    capacity: Annotated[int, Meta(ge=1)] | None = None
    policy: Policy | None = None
    immortal: bool = False
    create: bool = True  # else nothing is changed, and a queue that is missing is an error
    fair: bool = False


class Pause(Struct, array_like=True, tag="pause", frozen=True):
    """Deliver nothing from the queue, or go on. It takes messages all the while."""

    paused: bool


class Drop(Struct, array_like=True, tag="drop", frozen=True):
    """Delete the queue and all that is in it."""


class Hello(Struct, array_like=True, tag="hello", frozen=True):
    """Whoever signed this request asks for a token to show from now on."""


class Describe(Struct, array_like=True, tag="describe", frozen=True):
    """Ask what this broker is, and what the key may do with the queue in the path."""


class ListQueues(Struct, array_like=True, tag="list_queues", frozen=True):
    """Tell of every queue that the client may see; asked without a queue in the path."""


class Outline(Struct, array_like=True, tag="outline", frozen=True):
    """Where a queue's history lies, and where in it a time is; of all queues without a name."""

    time_ns: int | None = None


class Recall(Struct, array_like=True, tag="recall", frozen=True):
    """Read a part of a queue's history: entries of these kinds, of all kinds if none is named."""

    start: Annotated[int, Meta(ge=0)]
    stop: Annotated[int, Meta(ge=0)]
    kinds: Annotated[bytes, Meta(max_length=256)] = b""


class ListFiles(Struct, array_like=True, tag="files", frozen=True):
    """List the files that the store of the broker consists of now, for a backup."""


class ReadFile(Struct, array_like=True, tag="file", frozen=True):
    """Read a part of a segment or the snapshot of the store."""

    name: Annotated[str, Meta(max_length=64)]
    offset: Annotated[int, Meta(ge=0)]
    size: Annotated[int, Meta(ge=1, le=4 << 20)]


_Looks = Tally | Peek | ListQueues | Describe | Hello | Outline | Recall | ListFiles | ReadFile
_Settles = Acknowledge | Nack | Extend | Release | Reject
_Changes = Purge | Delete | Redrive | Declare | Pause | Drop
Command = Send | Receive | _Settles | _Changes | _Looks


def repeatable(command: Command) -> bool:
    """Whether it may be done twice: it only looks, or the queue itself knows a repetition."""
    if isinstance(command, Send):
        return command.deduplication is not None
    return isinstance(command, Receive | Declare | Pause | _Looks)


def shortened(command: Command, seconds: float) -> Command:
    """What is left to ask after some time: the same, but for a receive that waits."""
    if not isinstance(command, Receive):
        return command
    left = max(0, command.wait_us - int(seconds * _SECOND_US))
    return Receive(command.count, command.timeout_us, left)


class Request(Struct, array_like=True, frozen=True):
    """`instance` is the broker that the client asked before; empty unless it asks again."""

    channel: Annotated[bytes, Meta(min_length=16, max_length=16)]
    number: Annotated[int, Meta(ge=1)]
    instance: Annotated[str, Meta(max_length=64)]  # a request that waits is kept in memory
    commands: Annotated[list[Command], Meta(min_length=1, max_length=COMMANDS_MAX)]


# -- outcomes ----------------------------------------------------------------------------------


class _Whole(Struct, array_like=True, frozen=True):
    """An outcome of several fields, which is its own value."""

    @property
    def value(self) -> Self:
        return self


class Sent(Struct, array_like=True, tag="sent", frozen=True):
    """The ids."""

    value: list[str]


class Died(Struct, array_like=True, frozen=True):
    """Why and when a message died, and of which deliveries (leased, ended, outcome)."""

    source: str
    reason: str
    died_ns: int
    attempts: list[tuple[int, int, Outcome]]


class Delivery(Struct, array_like=True, frozen=True, eq=False, gc=False):
    """One message as the broker tells it."""

    id: str
    handle: str  # empty if it was only looked at
    body: bytes | None  # None if it was lost to damage of the disk
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
    """How many it was done to."""

    value: int


class Moved(_Whole, tag="moved", frozen=True):
    """A part of a redrive: how many it moved, how many stay, and how many are behind those."""

    moved: int
    stay: int
    left: int


class Tallied(Struct, array_like=True, tag="tallied", frozen=True):
    """Ready, scheduled, in flight, dead, and the age of the oldest in nanoseconds."""

    value: tuple[int, int, int, int, int | None]


class Declared(_Whole, tag="declared", frozen=True):
    """`content_type` is not used any more: a queue has no type."""

    instance: str
    content_type: str | None
    dead_letters: str | None


class QueueLine(Struct, array_like=True, frozen=True):
    """One queue: its name, its tally, and what becomes of what fails."""

    name: str
    tally: tuple[int, int, int, int, int | None]
    dead_letters: str | None
    max_deliveries: int
    paused: bool = False


class Welcome(Struct, array_like=True, tag="welcome", frozen=True):
    """The token."""

    value: str


class Described(_Whole, tag="described", frozen=True):
    """What a broker is. Its disk, its store and other brokers are for keys with every right."""

    version: str
    time_ns: int
    durability: str  # none in memory; shared if the queues are in a shared store
    has_keys: bool
    may: list[str]  # actions of SQS
    problem: str | None
    free_bytes: int | None
    store: str | None = None  # URL of the shared store
    brokers: dict[str, str] = {}  # that share the store: URL -> version


class ListedQueues(Struct, array_like=True, tag="listed_queues", frozen=True):
    value: list[QueueLine]


class Outlined(_Whole, tag="outlined", frozen=True):
    """From where to where, how many bytes lie before some indices, and what its entries mean."""

    first: int
    end: int
    marks: list[tuple[int, int]]
    prefix: str  # of message ids
    names: dict[int, str]  # of queues, by the numbers that entries have
    at: int | None  # the first entry at or after the time that was asked for


class Recalled(_Whole, tag="recalled", frozen=True):
    """Entries up to `end`: their indices and times (int64), and they, as the payload of a frame.

    `first` is the oldest that is still kept. If that is past what was asked for, some are gone.
    """

    first: int
    end: int
    count: int
    indices: bytes
    times: bytes
    records: bytes


class StoreListing(_Whole, tag="listed", frozen=True):
    """The files of a store that belong together."""

    snapshot_head: bytes  # identifies the snapshot; empty if there is none
    segments: list[str]  # of the log, oldest first
    small: dict[str, bytes]  # settings, time and positions: path in the store -> content
    confirmed: int  # every record before this index was confirmed; 0 if nobody writes


class Piece(_Whole, tag="piece", frozen=True):
    """A part of a file; None if the file is gone."""

    data: bytes | None


class Failed(Struct, array_like=True, tag="failed", frozen=True):
    """Nothing was changed by this command; `code` is the name of an error's class."""

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
