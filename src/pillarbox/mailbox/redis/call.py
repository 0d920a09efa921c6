"""What a verb asks of Redis: one `Call` is one round trip."""

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
    arguments: list[Any]  # of a script: keys of its own first, if it has any
    keys: resp.Keys | None = None  # of a script: those of its queues
    own_keys: int = 0
    replicas: int = 0  # how many must confirm it
    replica_seconds: float = 0
    block_seconds: float = 0  # for how long the server may keep the answer back
    stop: Callable[[], bool] | None = None  # true if nobody should wait any more
    undo: Callable[[Any], Verb[None]] | None = None  # for an answer that a cancelled task missed
    sent: bool = False  # set when the server may have seen this try of it
    asking: Address | None = None  # the server that has the slot for now, while it migrates
    doubtful: bool = False  # set when it may have been done though no answer came

    def packed(self, *, by_text: bool = False) -> list[bytes]:
        """The bytes to send; `by_text` if the server has forgotten the script."""
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
        """The answer, if enough replicas have confirmed it."""
        if replicas < self.replicas:
            raise NotReplicatedError(
                f"mailbox {self.queue!r}: {replicas} of {self.replicas} replicas confirmed within "
                f"{self.replica_seconds:g} seconds; the master has it, and loses it if it fails "
                "now: check the replicas, and use a deduplication_id if you send it again"
            )
        return answer
