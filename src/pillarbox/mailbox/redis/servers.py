"""The Redis servers, and which of them has a queue: one server, a cluster, or Sentinel.

Does no I/O. A connection sends the `question` to one of the `seeds` and passes the response to
`learn`. Then `address` returns the server of a slot, until an error shows that it has moved.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

Address = tuple[str, int]


class Servers:
    """One server, at the address in its connection options."""

    question: tuple[Any, ...] = ()

    def __init__(self, connection_class: Any, options: dict[str, Any]) -> None:
        self.connection_class = connection_class
        self.options = options
        self.seeds: list[Address] = []

    def address(self, slot: int) -> Address | None:
        """Return the server of this slot; None if it must be looked up."""
        return self.options.get("host", "localhost"), int(self.options.get("port", 6379))

    def slots(self) -> list[int]:
        """Return one slot of each known server."""
        return [0]

    def learn(self, reply: Any, seed: Address) -> None:
        """Process the response of a seed."""

    def moved(self, slot: int, address: Address) -> None:
        """Record a redirection of a slot to another server."""

    def forget(self, slot: int) -> None:
        """Discard the known server of a slot, which may have moved."""

    def options_for(self, address: Address) -> dict[str, Any]:
        """Return the options to connect to a server."""
        return self.options

    def options_for_seed(self, address: Address) -> dict[str, Any]:
        return self.options_for(address)


class _DiscoveredServers(Servers):
    """Servers that are looked up at a seed."""

    def __init__(
        self, connection_class: Any, options: dict[str, Any], seeds: Iterable[Address]
    ) -> None:
        super().__init__(connection_class, options)
        self.seeds = list(seeds)

    def forget(self, slot: int) -> None:
        self.seeds = [*self.seeds[1:], *self.seeds[:1]]  # next time start with another seed

    def options_for(self, address: Address) -> dict[str, Any]:
        return self.options | {"host": address[0], "port": address[1]}


class ClusterServers(_DiscoveredServers):
    """A cluster: each slot is on one of its masters."""

    question = ("CLUSTER", "SLOTS")

    def __init__(
        self, connection_class: Any, options: dict[str, Any], seeds: Iterable[Address]
    ) -> None:
        super().__init__(connection_class, options, seeds)
        self._ranges: list[tuple[int, int, Address]] = []
        self._slots: dict[int, Address] = {}

    def address(self, slot: int) -> Address | None:
        found = self._slots.get(slot)
        if found is None:
            for first, last, address in self._ranges:
                if first <= slot <= last:
                    return self._slots.setdefault(slot, address)
        return found

    def slots(self) -> list[int]:
        return list({address: first for first, _, address in self._ranges}.values())

    def learn(self, reply: Any, seed: Address) -> None:
        seen: list[Address] = []
        ranges = []
        for first, last, *nodes in reply:
            addresses = [(_text(node[0]) or seed[0], int(node[1])) for node in nodes]
            ranges.append((int(first), int(last), addresses[0]))
            seen += addresses
        self._ranges = ranges
        self._slots = {}
        self.seeds = list(dict.fromkeys([*seen, *self.seeds]))

    def moved(self, slot: int, address: Address) -> None:
        self._slots[slot] = address

    def forget(self, slot: int) -> None:
        super().forget(slot)
        self._slots = {}
        self._ranges = []


class SentinelServers(_DiscoveredServers):
    """A master monitored by Sentinel, which replaces it when it fails."""

    def __init__(
        self,
        connection_class: Any,
        options: dict[str, Any],
        seeds: Iterable[Address],
        service: str,
    ) -> None:
        super().__init__(connection_class, options, seeds)
        self.question = ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", service)
        self._master: Address | None = None

    def address(self, slot: int) -> Address | None:
        return self._master

    def learn(self, reply: Any, seed: Address) -> None:
        self._master = None if reply is None else (_text(reply[0]), int(reply[1]))

    def forget(self, slot: int) -> None:
        super().forget(slot)
        self._master = None

    def options_for_seed(self, address: Address) -> dict[str, Any]:
        keep = ("socket_timeout", "socket_connect_timeout", "retry", "protocol")
        own = {name: self.options[name] for name in keep if name in self.options}
        return own | {"host": address[0], "port": address[1]}


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value or "")
