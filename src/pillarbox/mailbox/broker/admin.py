"""Administrative requests to a broker: list, describe, delete and pause queues."""

from __future__ import annotations

from pillarbox.mailbox.broker.address import PATIENCE_SECONDS, address_of
from pillarbox.mailbox.broker.channel import channels_to
from pillarbox.mailbox.broker.wire import Describe, Described, Drop, ListQueues, Pause, QueueLine


def list_queues(url: str, patience_seconds: float = PATIENCE_SECONDS) -> list[QueueLine]:
    """Return the queues of the broker at a URL with their counts, sorted by name."""
    address, _ = address_of(url, patience_seconds=patience_seconds)
    lines: list[QueueLine] = channels_to(address).ask("", (ListQueues(),))[0].value
    return lines


def describe(url: str, patience_seconds: float = PATIENCE_SECONDS) -> Described:
    """Return a description of the broker, and the key's permissions on the queue in the URL."""
    address, name = address_of(url, patience_seconds=patience_seconds)
    answer: Described = channels_to(address).ask(name, (Describe(),))[0].value
    return answer


def delete_queue(url: str) -> None:
    """Delete the queue that a URL names, with all its messages."""
    address, name = address_of(url)
    channels_to(address).ask(name, (Drop(),))


def pause_queue(url: str, *, paused: bool) -> None:
    """Pause or resume delivery from the queue that a URL names; it still accepts messages."""
    address, name = address_of(url)
    channels_to(address).ask(name, (Pause(paused),))
