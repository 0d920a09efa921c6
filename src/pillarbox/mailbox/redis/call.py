"""The request of a verb to Redis: one `Call` is one round trip."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from pillarbox.mailbox.redis import resp
from pillarbox.mailbox.redis.errors import NotReplicatedError
from pillarbox.mailbox.redis.scripts import Script
from pillarbox.mailbox.redis.servers import Address
from pillarbox.mailbox.runner import Verb


class Call(Struct, gc=False):
    """One round trip: a script, or a command if there is none."""

    queue: str
    slot: int
    script: Script | None
    arguments: list[Any]  # of a script: script-specific keys first, if any
    keys: resp.Keys | None = None  # of a script: the keys of its queues
    own_keys: int = 0
    replicas: int = 0  # number of replicas that must confirm it
    replica_seconds: float = 0
    block_seconds: float = 0  # how long the server may block
    stop: Callable[[], bool] | None = None  # returns True to end a blocking call
    # Undoes a response that a cancelled task missed.
    undo: Callable[[Any], Verb[None]] | None = None
    sent: bool = False  # set when the server may have received this attempt
    asking: Address | None = None  # target of an ASK redirection, while the slot migrates
    doubtful: bool = False  # set when it may have taken effect without a response

    def packed(self, *, by_text: bool = False) -> list[bytes]:
        """Return the bytes to send; with `by_text`, EVAL instead of EVALSHA."""
        if self.script is None:
            command = resp.pack(tuple(self.arguments))
        else:
            assert self.keys is not None, "a script has keys"
            name = resp.part((b"EVAL", self.script.text)) if by_text else self.script.by_sha
            command = self.keys.call(name, self.own_keys, self.arguments)
        if self.asking is not None:
            command = resp.pack((b"ASKING",)) + command
        if self.replicas:
            command += resp.pack((b"WAIT", self.replicas, int(self.replica_seconds * 1_000)))
        return [command]

    def confirmed(self, answer: Any, replicas: int) -> Any:
        """Return the response if enough replicas have confirmed it; raise otherwise."""
        if replicas < self.replicas:
            raise NotReplicatedError(
                f"mailbox {self.queue!r}: {replicas} of {self.replicas} replicas confirmed within "
                f"{self.replica_seconds:g} seconds; the master has the message, but a failover may "
                "lose it: check the replicas, and use a deduplication_id if you send it again"
            )
        return answer
