"""One try of a call, as bytes to send and answers to expect, whoever does the I/O."""

from __future__ import annotations

from typing import Any

from redis import exceptions as e

from pillarbox.mailbox.redis import resp
from pillarbox.mailbox.redis.call import Call
from pillarbox.mailbox.redis.errors import NotReplicatedError
from pillarbox.mailbox.redis.servers import Address

_PATIENCE_SECONDS = 5  # for an answer that the server may keep back for a while


class RoundTrip:
    """What goes out for a call: perhaps ASKING, the command, and perhaps WAIT."""

    __slots__ = ("_answers", "_error", "_missing", "asking", "call", "sent")

    def __init__(self, call: Call, error: Exception | None = None) -> None:
        self.call = call
        self.sent = False
        self.asking: Address | None = None
        if isinstance(error, e.AskError) and not isinstance(error, e.MovedError):
            self.asking = error.host, error.port
        self._answers: list[Any] = []
        self._missing = 1 + (self.asking is not None) + (call.replicas > 0)
        self._error: e.ResponseError | None = None

    @property
    def patience(self) -> float:
        """For how long to wait for an answer, in seconds."""
        return self.call.block_seconds + self.call.replica_seconds + _PATIENCE_SECONDS

    def packed(self) -> list[bytes]:
        call = self.call
        if call.script is None:
            return self._with_company(resp.pack(tuple(call.arguments)))
        return self._with_company(self._call_of(call.script.by_sha))

    def spelled_out(self) -> list[bytes]:
        """The same, with the whole script: the server has forgotten it."""
        script = self.call.script
        assert script is not None, "only scripts are forgotten"
        self._missing += 1 + (self.call.replicas > 0) + (self.asking is not None)
        self._answers.append(None)
        return self._with_company(self._call_of(resp.part((b"EVAL", script.text))))

    def _call_of(self, script: bytes) -> bytes:
        call = self.call
        assert call.keys is not None, "a script has keys"
        return resp.script(script, call.keys, call.own_keys, call.arguments)

    def _with_company(self, command: bytes) -> list[bytes]:
        call = self.call
        if self.asking is not None:
            command = resp.pack((b"ASKING",)) + command
        if call.replicas:
            command += resp.pack((b"WAIT", call.replicas, int(call.replica_seconds * 1_000)))
        return [command]

    def expects(self) -> bool:
        """Whether there are answers that have not come yet."""
        return len(self._answers) < self._missing

    def answered(self, reply: Any) -> None:
        self._answers.append(reply)

    def refused(self, error: e.ResponseError) -> None:
        self._error = self._error or error
        self._answers.append(None)

    def answer(self) -> Any:
        call = self.call
        if self._error is not None:
            raise self._error
        if not call.replicas:
            return self._answers[-1]
        *_, answer, confirmed = self._answers
        if confirmed < call.replicas:
            raise NotReplicatedError(
                f"mailbox {call.queue!r}: {confirmed} of {call.replicas} replicas confirmed within "
                f"{call.replica_seconds:g} seconds; the master has it, and loses it if it fails "
                "now: check the replicas, and use a deduplication_id if you send it again"
            )
        return answer
