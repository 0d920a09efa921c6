"""The part of channels that threads and asyncio share: everything except the connection.

A channel is a connection and an identity that survives reconnects. Each channel has one request at
a time under way; idle channels are kept while a mailbox uses the broker.
"""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Generic, TypeVar

from pillarbox.mailbox.broker.address import Address
from pillarbox.mailbox.broker.answer import Answer
from pillarbox.mailbox.broker.login import Login
from pillarbox.mailbox.broker.retry import Attempts, good
from pillarbox.mailbox.broker.wire import Command
from pillarbox.mailbox.runner import Verb


class BaseChannel(ABC):
    """The identity of a channel, and the number of its last request."""

    __slots__ = ("address", "began", "hung_up", "identity", "number")

    def __init__(self, address: Address) -> None:
        self.address = address
        self.identity = secrets.token_bytes(16)
        self.number = 0
        self.began = False  # whether the broker may have seen the request
        self.hung_up = False

    @abstractmethod
    def close(self) -> None:
        """Close the connection; the next request opens a new one."""


C = TypeVar("C", bound=BaseChannel)


class ChannelPool(Generic[C]):
    """The sync or async channels to one broker."""

    def __init__(self, address: Address, channel_class: type[C]) -> None:
        self.address = address
        self.instance = ""  # last known instance id of the broker
        self.users = 0
        self.idle: list[C] = []
        self.login = Login(address)
        self._channel_class = channel_class

    def take(self) -> C:
        """Return a channel for one request."""
        try:
            channel = self.idle.pop()
        except IndexError:
            channel = self._channel_class(self.address)
        channel.number += 1
        channel.began = False
        return channel

    def put_back(self, channel: C) -> None:
        if self.users and not channel.hung_up:
            self.idle.append(channel)
        else:
            channel.close()

    def exchange(self, channel: C, queue: str, commands: Sequence[Command]) -> Verb[Answer]:
        """Retry until there is a response; yields requests (head, body) and pauses in seconds."""
        login, identity = self.login, (channel.identity, channel.number)
        attempts = Attempts(self.address, queue, commands, *identity, self.instance)
        while True:
            try:
                fresh = login.due
                if fresh:
                    login.take((yield login.request()))
                    channel.began = False
                answer: Answer = yield login.heads[queue], attempts.body
                if not login.refused(answer, fresh):
                    return good(answer, self.address)
                continue
            except OSError as error:
                channel.close()
                pause = attempts.after(error, channel.began)
            yield pause

    def leave(self) -> None:
        """Count a closed mailbox; the last one closes the idle connections."""
        self.users -= 1
        if self.users <= 0:
            close_all(self.idle)


def close_all(idle: list[C]) -> None:
    while idle:
        idle.pop().close()
