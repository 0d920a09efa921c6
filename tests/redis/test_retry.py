"""R33: what each error of a server means: try again, or tell, and whether it may have been done."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest
from redis._parsers.base import BaseParser
from redis.exceptions import ConnectionError as LostError

from pillarbox import (
    MailboxConnectionError,
    MailboxError,
    MailboxFullError,
    MailboxStorageError,
    UnknownOutcomeError,
)
from pillarbox.mailbox.redis import RefusedError
from pillarbox.mailbox.redis.call import Call
from pillarbox.mailbox.redis.errors import RedisAttempts
from pillarbox.mailbox.redis.shared import RedisSharedStore
from pillarbox.mailbox.redis.wire import Delivery
from pillarbox.mailbox.shared import StaleQueueError

# As Redis 7 writes them.
PASSING = [
    "MOVED 3999 127.0.0.1:6381",
    "ASK 3999 127.0.0.1:6381",
    "TRYAGAIN Multiple keys request during rehashing of slot",
    "READONLY You can't write against a read only replica.",
    "READONLY You can't write against a read only replica. script: abc, on @user_script:1.",
    "CLUSTERDOWN The cluster is down",
    "CLUSTERDOWN Hash slot not served",
    "LOADING Redis is loading the dataset in memory",
    "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
    "NOREPLICAS Not enough good replicas to write.",
    "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
    "UNBLOCKED client unblocked via CLIENT UNBLOCK",
    "UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)",
]
FINAL: list[tuple[str, type[MailboxError]]] = [
    ("OOM command not allowed when used memory > 'maxmemory'.", MailboxFullError),
    ("MISCONF Redis is configured to save RDB snapshots, but can't", MailboxStorageError),
    ("NOAUTH Authentication required.", MailboxConnectionError),
    ("WRONGPASS invalid username-password pair or user is disabled.", MailboxConnectionError),
    ("NOPERM this user has no permissions to run the 'evalsha' command", MailboxConnectionError),
    ("WRONGTYPE Operation against a key holding the wrong kind of value", RefusedError),
]
read: Callable[[str], Exception] = BaseParser.parse_error


def call() -> Call:
    return Call("orders", 0, None, ["PING"])


@pytest.mark.parametrize("text", PASSING)
def test_R33_what_passes_is_tried_again_and_surely_was_not_done(text: str) -> None:
    wanted = call()
    attempts = RedisAttempts(wanted, 15)
    assert attempts.after(read(text), sent=True) < 0.5
    assert wanted.doubtful is False
    with pytest.raises(MailboxConnectionError, match="nothing was changed") as raised:
        RedisAttempts(wanted, 0).after(read(text), sent=True)
    assert not isinstance(raised.value, UnknownOutcomeError)


@pytest.mark.parametrize(("text", "error"), FINAL)
def test_R22_what_does_not_pass_is_an_error_at_once(text: str, error: type[MailboxError]) -> None:
    with pytest.raises(error, match="orders"):
        RedisAttempts(call(), 15).after(read(text), sent=True)


def test_R33_a_line_that_was_cut_leaves_a_doubt_only_if_something_was_sent() -> None:
    for sent, error in ((False, MailboxConnectionError), (True, UnknownOutcomeError)):
        wanted = call()
        RedisAttempts(wanted, 15).after(LostError("Connection closed by server."), sent)
        assert wanted.doubtful is sent
        with pytest.raises(MailboxError) as raised:
            RedisAttempts(wanted, 0).after(LostError("Connection closed by server."), sent)
        assert type(raised.value) is error


def test_R33_pauses_grow_to_half_a_second_and_differ_by_chance() -> None:
    attempts = RedisAttempts(call(), 15)
    pauses = [attempts.after(read("CLUSTERDOWN The cluster is down"), sent=True) for _ in range(12)]
    assert pauses[0] <= 0.01
    assert all(0.25 <= pause <= 0.5 for pause in pauses[6:])
    assert all(later != sooner for sooner, later in pairwise(pauses))


def test_R141_a_cancelled_receive_of_a_queue_that_was_changed_raises_nothing() -> None:
    store = RedisSharedStore("redis://host")
    undo = store.queue("orders", "version", 1)._give_back(b"token", [0, [b"id", b"1"], [], [], 0])
    assert next(undo).script.name == "release"
    with pytest.raises(StopIteration):
        undo.throw(RefusedError("orders", "STALE the queue has another version"))


def test_R141_counting_a_queue_that_was_changed_tells_the_broker_to_look_it_up_again() -> None:
    counting = RedisSharedStore("redis://host").queue("orders", "version", 1).stats()
    next(counting)
    with pytest.raises(StaleQueueError):
        counting.throw(RefusedError("orders", "STALE the queue has another version"))


def test_R141_calls_under_way_when_a_policy_is_set_all_get_the_keys_of_the_dead_letters() -> None:
    """Also those whose refusal comes after another call has learned of the policy."""
    queue = RedisSharedStore("redis://host").queue("orders", "version", 1).queue
    calls = [queue.run("purge") for _ in range(2)]
    for each in calls:
        next(each)
    for each in calls:
        again = each.throw(RefusedError("orders", "PAIR its dead letters are under the same tag"))
        assert again.arguments == [b"orders\0version", b"orders_dlq"]
    with pytest.raises(RefusedError):
        calls[0].throw(RefusedError("orders", "PAIR its dead letters are under the same tag"))
    with pytest.raises(StaleQueueError):
        calls[1].throw(RefusedError("orders", "STALE the queue was changed or deleted"))


def test_R22_a_reject_that_was_done_says_so_though_the_other_server_can_not_be_reached() -> None:
    verbs = RedisSharedStore("redis://host").queue("orders", "", 1)
    rejecting = verbs._reject([Delivery(b"id", b"token", 1, b"", b"0", None)], "spoiled")
    next(rejecting)
    assert rejecting.send([b"1", 1]).script.name == "tick"  # the dead letter is in the outbox
    with pytest.raises(StopIteration) as done:
        rejecting.throw(MailboxConnectionError("lost"))
    assert done.value.value == [True]
