"""Parses and checks the options of the data source. Errors name the option."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from pillarbox.core import journal
from pillarbox.spark.errors import OptionError

#: The prefix of options for a remote store.
STORAGE = "storage."
PARTITION_BYTES = 128 << 20  # the default of Spark's own file sources


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The options of a read."""

    url: str
    start: str
    end: str
    max_rows: int | None
    max_bytes: int | None
    fail_on_loss: bool
    kinds: frozenset[str] | None
    partition_bytes: int
    partitions_min: int | None
    #: Options for the remote store (default: from the environment).
    storage: Mapping[str, str]

    @classmethod
    def of(cls, options: Mapping[str, str]) -> ReadOptions:
        return cls(
            required(options, "path", "load it from a URL: .load('file:./data/orders')"),
            options.get("start", "earliest"),
            options.get("end", "latest"),
            number(options, "maxRowsPerTrigger"),
            number(options, "maxBytesPerTrigger"),
            flag(options, "failOnDataLoss", True),
            kinds_of(options.get("kinds")),
            number(options, "partitionBytes") or PARTITION_BYTES,
            number(options, "minPartitions"),
            {k.removeprefix(STORAGE): v for k, v in options.items() if k.startswith(STORAGE)},
        )


def required(options: Mapping[str, str], name: str, how: str) -> str:
    value = options.get(name)
    if not value:
        raise OptionError(f"format pillarbox needs option {name}; {how}")
    return value


def number(options: Mapping[str, str], name: str) -> int | None:
    value = options.get(name)
    if value is None:
        return None
    if not value.isdecimal() or int(value) == 0:
        raise OptionError(f"option {name} must be a whole number of 1 or more; got {value!r}")
    return int(value)


def flag(options: Mapping[str, str], name: str, default: bool) -> bool:
    value = options.get(name, str(default)).lower()
    if value not in ("true", "false"):
        raise OptionError(f"option {name} must be true or false; got {value!r}")
    return value == "true"


def kinds_of(text: str | None) -> frozenset[str] | None:
    if text is None:
        return None
    kinds = frozenset(word.strip() for word in text.split(","))
    unknown = sorted(kinds - set(journal.KINDS.values()))
    if unknown:
        valid = ", ".join(journal.KINDS.values())
        raise OptionError(f"option kinds must be of {valid}; got {', '.join(unknown)}")
    return kinds


def check_position(option: str, text: str) -> None:
    """Raise unless this is earliest, latest, an index, or a time in ISO format."""
    if text not in ("earliest", "latest") and not text.isdecimal():
        time_ns(option, text)


def time_ns(option: str, text: str) -> int:
    """Parse a time in ISO format (default time zone: UTC) to nanoseconds since 1970."""
    try:
        when = datetime.fromisoformat(text)
    except ValueError as error:
        raise OptionError(
            f"option {option} must be earliest, latest, an index (1200) or a time"
            f" (2026-05-01T12:00); got {text!r}"
        ) from error
    when = when if when.tzinfo is not None else when.replace(tzinfo=UTC)
    return int(when.timestamp() * 1_000_000) * 1000
