"""What is asked of a broker about its queues, rather than of one queue as a mailbox."""

from __future__ import annotations

from pillarbox.mailbox.broker.address import PATIENCE_SECONDS, address_of
from pillarbox.mailbox.broker.channel import channels_to
from pillarbox.mailbox.broker.wire import Describe, Described, Drop, ListQueues, Pause, QueueLine


def list_queues(url: str, patience_seconds: float = PATIENCE_SECONDS) -> list[QueueLine]:
    """Every queue of the broker that a URL names, with its counts, by name."""
    address, _ = address_of(url, patience_seconds=patience_seconds)
    lines: list[QueueLine] = channels_to(address).ask("", (ListQueues(),))[0].value
    return lines


def describe(url: str, patience_seconds: float = PATIENCE_SECONDS) -> Described:
    """What a broker is, and what the key in the URL may do with the queue that it names."""
    address, name = address_of(url, patience_seconds=patience_seconds)
    answer: Described = channels_to(address).ask(name, (Describe(),))[0].value
    return answer


def delete_queue(url: str) -> None:
    """Delete the queue that a URL names, and all that is in it."""
    address, name = address_of(url)
    channels_to(address).ask(name, (Drop(),))


def pause_queue(url: str, *, paused: bool) -> None:
    """Have the queue that a URL names deliver nothing, or go on; it takes messages either way."""
    address, name = address_of(url)
    channels_to(address).ask(name, (Pause(paused),))
