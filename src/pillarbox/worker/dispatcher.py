"""Publish and subscribe within a process, for telemetry.

Every subscriber of an event's class, or of a base class, is called in the publisher's thread, in
the order of subscription. Events are not stored. An exception of a subscriber is logged, and
affects neither the publisher nor the other subscribers.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

from pillarbox.logger import logger

E = TypeVar("E")

Subscriber = Callable[[E], object]


class Dispatcher:
    """Calls subscribers with published events.

    Examples:
        >>> dispatcher = Dispatcher()
        >>> stop = dispatcher.subscribe(str, lambda event: print("heard", event))
        >>> dispatcher.publish("tea is ready")
        heard tea is ready
        >>> stop()
        >>> dispatcher.publish("tea is cold")
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: tuple[tuple[type[Any], Subscriber[Any]], ...] = ()
        self._by_class: dict[type[Any], tuple[Subscriber[Any], ...]] = {}
        self.traced = False  # OpenTelemetry subscribes once

    def subscribe(self, event_type: type[E], subscriber: Subscriber[E]) -> Callable[[], None]:
        """Call `subscriber` with each event of this class; return a function to unsubscribe."""
        entry = (event_type, subscriber)
        with self._lock:
            self._change((*self._entries, entry))

        def unsubscribe() -> None:
            with self._lock:
                self._change(tuple(each for each in self._entries if each is not entry))

        return unsubscribe

    def publish(self, event: object) -> None:
        """Call the subscribers of this event; log their exceptions."""
        for subscriber in self._subscribers(type(event)):
            try:
                subscriber(event)
            except Exception:  # noqa: BLE001 - must not reach the publisher
                logger.exception(
                    "subscriber failed",
                    event_type=type(event).__qualname__,
                    subscriber=getattr(subscriber, "__qualname__", repr(subscriber)),
                )

    def wants(self, event_type: type[Any]) -> bool:
        """Return whether there are subscribers; if not, the event need not be created."""
        return bool(self._subscribers(event_type))

    def _subscribers(self, event_type: type[Any]) -> tuple[Subscriber[Any], ...]:
        cached = self._by_class.get(event_type)
        if cached is None:
            with self._lock:
                cached = tuple(call for kind, call in self._entries if issubclass(event_type, kind))
                self._by_class[event_type] = cached
        return cached

    def _change(self, entries: tuple[tuple[type[Any], Subscriber[Any]], ...]) -> None:
        # A new dict, because publishers read the old one without the lock.
        self._entries = entries
        self._by_class = {}
