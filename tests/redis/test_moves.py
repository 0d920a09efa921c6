"""R39: to a queue under another tag a message goes in steps, each of which may be the last."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from pillarbox import DeadLetterPolicy
from pillarbox.mailbox.redis import RedisMailbox, RefusedError, delete_queue
from pillarbox.mailbox.redis.call import Call
from pillarbox.mailbox.redis.keys import keys_of
from pillarbox.mailbox.runner import run_sync
from pillarbox.testing.redis import shared_cluster, shared_server
from tests.redis.world import new_name, open_box

Pair = tuple[RedisMailbox[str], RedisMailbox[str]]


@pytest.fixture(params=["server", "cluster"])
def url(request: pytest.FixtureRequest) -> str:
    servers: Any = shared_server() if request.param == "server" else shared_cluster()
    if request.param == "cluster":
        servers.wait_until_whole()
    return f"{servers.url}/-"


@pytest.fixture
def pair(url: str) -> Iterator[Pair]:
    """A mailbox, and its dead letters under a name of their own."""
    graveyard = new_name("graveyard")
    with open_box(url=url, dead_letters=DeadLetterPolicy(1, graveyard)) as box:
        assert keys_of(box.name).slot != keys_of(graveyard).slot
        with open_box(url=url, name=graveyard) as dead:
            yield box, dead


class Died(Exception):
    """The client is gone."""


def die_at(box: RedisMailbox[str], step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on the client of this mailbox ends when it would call this."""
    real = box._connection.do

    def call(wanted: Call) -> Any:
        name = wanted.script.name if wanted.script is not None else wanted.arguments[0]
        if name == step:
            raise Died
        return real(wanted)

    monkeypatch.setattr(box, "_run", partial(run_sync, call))


@pytest.mark.parametrize("step", ["tick", "accept", "HDEL"])
def test_R39_a_client_that_dies_on_the_way_loses_and_doubles_nothing(
    pair: Pair, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    box, dead = pair
    message_id = box.send("a")
    (message,) = box.receive()
    die_at(box, step, monkeypatch)
    with pytest.raises(Died):
        message.nack()
    monkeypatch.undo()
    (letter,) = dead.receive(max_messages=10)  # whoever asks brings the rest
    assert (letter.id, letter.body, letter.delivery_count) == (message_id, "a", 2)
    assert letter.dead_letter is not None
    assert letter.dead_letter.source == box.name
    assert letter.acknowledge()
    assert box.stats().dead == 0
    assert list(dead.receive()) == []


def test_R39_a_message_may_take_the_same_way_again_and_again(pair: Pair) -> None:
    box, dead = pair
    message_id = box.send("a")
    for _ in range(3):
        assert box.receive()[0].nack()
        assert dead.stats().ready == 1
        assert dead.redrive() == 1
    assert [m.id for m in box.receive()] == [message_id]


def test_R39_a_letter_that_is_delivered_twice_is_taken_in_once(pair: Pair) -> None:
    box, dead = pair
    box.send("a")
    letters: list[list[Any]] = []
    real = box._connection.do

    def call(wanted: Call) -> Any:
        if wanted.script is not None and wanted.script.name == "accept":
            letters.append(list(wanted.arguments))
        return real(wanted)

    box._run = partial(run_sync, call)
    box.receive()[0].nack()
    (letter,) = dead.receive()
    letter.acknowledge()
    (arguments,) = letters
    late = dead._verbs.queue.call("accept")
    late.arguments = arguments
    assert real(late) == 0  # another client was slow
    assert list(dead.receive()) == []
    ticket = arguments.index(b"a") if b"a" in arguments else len(arguments) - 4
    arguments[ticket] = b"another ticket"
    assert real(late) == 1  # the control: it is the ticket that is known


def test_R39_who_waits_for_dead_letters_gets_those_of_a_lease_that_ran_out(pair: Pair) -> None:
    box, dead = pair
    box.send("a")
    assert len(box.receive(visibility_timeout=1)) == 1
    assert [m.body for m in dead.receive(wait_time_seconds=10)] == ["a"]


def test_R39_a_queue_that_is_created_again_loses_no_dead_letter(url: str) -> None:
    """Its messages are numbered anew, and its dead-letter queue remembers those of before."""
    name, graveyard = new_name(), new_name("graveyard")
    policy = DeadLetterPolicy(1, graveyard)
    for _ in range(2):
        with open_box(url=url, name=name, dead_letters=policy) as box:
            box.send("a")
            assert box.receive()[0].nack()
        delete_queue(url.removesuffix("-") + name)
    with open_box(url=url, name=graveyard) as dead:
        assert dead.stats().ready == 2


def test_R39_dead_letters_that_can_not_be_moved_hold_up_no_receive(pair: Pair) -> None:
    box, dead = pair
    box.send("a")
    box.send("b")
    (first,) = box.receive()
    box._connection.do(dead._verbs.queue.command("SET", dead._verbs.queue.keys.key("arrived"), "x"))
    with suppress(RefusedError):
        first.nack()
    assert [m.body for m in box.receive()] == ["b"]
    assert list(box.receive(wait_time_seconds=0.1)) == []
    box._connection.do(dead._verbs.queue.command("DEL", dead._verbs.queue.keys.key("arrived")))
    assert [m.body for m in dead.receive()] == ["a"]


def test_R4_a_dead_letter_on_its_way_down_a_chain_of_names_counts_once(url: str) -> None:
    name = f"{new_name()}_dlq"
    with (
        open_box(url=url, name=name, dead_letters=DeadLetterPolicy(1)) as box,
        open_box(url=url, name=f"{name}_dlq") as dead,
    ):
        box.send("a")
        assert len(box.receive(visibility_timeout=0)) == 1
        assert (box.stats().dead, dead.stats().ready) == (1, 1)
        assert [m.body for m in dead.peek()] == ["a"]
        assert [m.body for m in dead.receive(max_messages=10)] == ["a"]
