"""The files of the store of a running broker, read over its own protocol.

It takes a key with every right: the files hold all queues, and the secret of receipt handles.
"""

from __future__ import annotations

from pillarbox.mailbox.broker.address import address_of
from pillarbox.mailbox.broker.channel import channels_to
from pillarbox.mailbox.broker.wire import ListFiles, Piece, ReadFile, StoreListing


class BrokerFiles:
    """The files of the store of the broker that a URL names."""

    def __init__(self, url: str) -> None:
        self._channels = channels_to(address_of(url)[0])

    def listing(self) -> StoreListing:
        found: StoreListing = self._channels.ask("", (ListFiles(),))[0].value
        return found

    def read(self, name: str, offset: int, size: int) -> bytes:
        piece: Piece = self._channels.ask("", (ReadFile(name, offset, size),))[0].value
        if piece.data is None:
            raise FileNotFoundError(name)
        return piece.data
