"""R35, R59: the private protocol by hand: repetitions, limits, and clients that mean no good."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args

import msgspec
import pytest

from pillarbox.broker import recent_answers
from pillarbox.broker.pauses import Pauses
from pillarbox.mailbox.broker import wire
from pillarbox.mailbox.broker.wire import Declare, Failed, Receive, Send, Tally
from pillarbox.testing.broker import RunningBroker, running_broker
from tests.broker.native.support import RawClient


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with running_broker() as url:
        yield url


@pytest.fixture
def client(broker: RunningBroker) -> Iterator[RawClient]:
    with RawClient(broker) as client:
        client.ask("orders", 1, Declare(immortal=True))
        client.ask("orders", 2, wire.Purge())
        yield client


def total(client: RawClient, number: int) -> int:
    ((ready, scheduled, in_flight, _, _),) = [
        each.value for each in client.ask("orders", number, Tally())
    ]
    return int(ready + scheduled + in_flight)


def test_R35_a_repeated_request_is_answered_and_not_done(client: RawClient) -> None:
    first = client.ask("orders", 3, Send([b"a"]))
    assert client.ask("orders", 3, Send([b"a"])) == first
    assert total(client, 4) == 1


def test_R35_a_request_that_is_older_than_the_last_is_refused(client: RawClient) -> None:
    client.ask("orders", 7, Send([b"a"]))
    late = wire.Request(client.channel, 6, "", [Send([b"late"])])
    status, _ = client.post(f"{wire.PATH}/orders", wire.encode(late))
    assert status == 409
    assert total(client, 8) == 1


def test_R35_commands_of_one_request_fail_apart(client: RawClient) -> None:
    capacity = client.ask("small", 3, Declare(capacity=1, immortal=True))
    assert isinstance(capacity[0], wire.Declared)
    outcomes = client.ask("small", 4, Send([b"a"]), Send([b"b"]), Tally())
    assert [type(each) for each in outcomes] == [wire.Sent, Failed, wire.Tallied]
    assert outcomes[1].code == "MailboxFullError"
    assert outcomes[2].value[0] == 1


def test_R35_a_receive_whose_queue_is_deleted_meanwhile_is_told_so(
    broker: RunningBroker, client: RawClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.ask("brief", 3, Declare(immortal=True))
    client.ask("brief", 4, Send([b"a"] * 150))
    queues = broker.broker.local

    async def delete(_: Pauses) -> None:
        await queues.drop(queues.get("brief"))

    monkeypatch.setattr(Pauses, "pause", delete)
    (outcome,) = client.ask("brief", 5, Receive(150, 30_000_000))
    assert isinstance(outcome, Failed)
    assert "does not exist" in outcome.message


@pytest.mark.parametrize("place", [0, 1])
def test_R59_a_receive_is_alone_in_its_request(client: RawClient, place: int) -> None:
    client.ask("orders", 3, Send([b"a"]))
    commands: list[wire.Command] = [Tally()]
    commands.insert(place, Receive(1, 1_000_000, 20_000_000))
    outcomes = client.ask("orders", 4, *commands)
    assert isinstance(outcomes[place], Failed)
    assert outcomes[place].code == "InvalidParameterError"
    assert outcomes[1 - place].value[0] == 1


@pytest.mark.parametrize(
    "verb", sorted(verb.__struct_config__.tag for verb in get_args(wire.Command))
)
def test_R59_no_verb_fails_without_a_queue_or_on_one_that_is_not_there(
    client: RawClient, verb: str
) -> None:
    arguments: dict[str, list[Any]] = {
        "send": [[b"a"]],
        "receive": [1, 0, 0],
        "extend": [[], 0],
        "reject": [[], "x"],
        "peek": ["ready", 1],
        **{name: [[]] for name in ("acknowledge", "nack", "release", "delete")},
    }
    for number, name in enumerate(["", "nothing-here", "%00"], 3):
        command = [verb, *arguments.get(verb, [])]
        body = msgspec.msgpack.encode([client.channel, number, "", [command]])
        status, answer = client.post(f"{wire.PATH}/{name}", body)
        assert status == 200, answer
        assert len(wire.decode_results(answer)) == 1


@pytest.mark.parametrize("instance", ["", "another broker", None])
def test_R35_what_was_asked_of_another_broker_is_not_done_again(
    client: RawClient, instance: str | None
) -> None:
    (declared,) = client.ask("orders", 3, Declare())
    said = declared.instance if instance is None else instance
    (outcome,) = client.ask("orders", 4, Send([b"a"]), instance=said)
    unknown = said == "another broker"
    assert (isinstance(outcome, Failed) and outcome.code == "UnknownOutcomeError") is unknown
    assert total(client, 5) == (0 if unknown else 1)


def overflow(broker: RunningBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let three channels send to a broker that keeps the responses of two."""
    monkeypatch.setattr(recent_answers, "_CHANNELS_MAX", 2)
    for _ in range(3):
        with RawClient(broker) as other:
            other.ask("orders", 1, Send([b"x"]))


def test_R35_a_memory_that_is_full_says_that_it_does_not_know(
    broker: RunningBroker, client: RawClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    (declared,) = client.ask("orders", 3, Declare())
    overflow(broker, monkeypatch)
    (outcome,) = client.ask("orders", 4, Send([b"a"]), instance=declared.instance)
    assert outcome.code == "UnknownOutcomeError"


def test_R35_what_the_broker_forgot_of_others_does_not_matter_to_a_channel_it_knows(
    broker: RunningBroker, client: RawClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    (declared,) = client.ask("orders", 3, Declare())
    overflow(broker, monkeypatch)
    client.ask("orders", 4, Send([b"a"]))
    (outcome,) = client.ask("orders", 5, Send([b"b"]), instance=declared.instance)
    assert isinstance(outcome, wire.Sent)
    assert client.ask("orders", 5, Send([b"b"]), instance=declared.instance) == [outcome]
    assert total(client, 6) == 5


BAD = {
    "empty": b"",
    "no msgpack": b"\xc1",
    "a number": msgspec.msgpack.encode(7),
    "a map": msgspec.msgpack.encode({}),
    "cut short": wire.encode(wire.Request(b"c" * 16, 1, "", [Send([b"a"])]))[:-3],
    "with a tail": wire.encode(wire.Request(b"c" * 16, 1, "", [Send([b"a"])])) + b"\x00",
    "no commands": msgspec.msgpack.encode([b"c" * 16, 1, "", []]),
    "too many commands": msgspec.msgpack.encode([b"c" * 16, 1, "", [["tally"]] * 1_001]),
    "a short channel": msgspec.msgpack.encode([b"c", 1, "", [["tally"]]]),
    "number 0": msgspec.msgpack.encode([b"c" * 16, 0, "", [["tally"]]]),
    "an unknown verb": msgspec.msgpack.encode([b"c" * 16, 1, "", [["shutdown"]]]),
    "depth": b"\x91" * 100_000,
    "a length that is not there": b"\xdd\xff\xff\xff\xff",
    "not UTF-8": msgspec.msgpack.encode([b"c" * 16, 1, "", [["nack", [], 0]]]).replace(
        b"nack", b"na\xff\xff"
    ),
}


@pytest.mark.parametrize("body", BAD.values(), ids=BAD.keys())
def test_R59_what_is_no_request_is_refused_and_changes_nothing(
    client: RawClient, body: bytes
) -> None:
    status, answer = client.post(f"{wire.PATH}/orders", body)
    assert status == 200
    (outcome,) = wire.decode_results(answer)
    assert isinstance(outcome, Failed)
    assert outcome.code == "InvalidParameterError"
    assert total(client, 3) == 0


OUT_OF_RANGE: dict[str, list[Any]] = {
    "priority": ["send", [b"a"], 256],
    "a negative priority": ["send", [b"a"], -1],
    "a negative delay": ["send", [b"a"], 0, -1],
    "a delay past the calendar": ["send", [b"a"], 0, 1 << 62],
    "a body that is too large": ["send", [b"x" * 1_048_577]],
    "a body that is text": ["send", ["a"]],
    "a group with a blank": ["send", [b"a"], 0, 0, None, "a b"],
    "a group that is too long": ["send", [b"a"], 0, 0, None, "x" * 129],
    "a deduplication id with a newline": ["send", [b"a"], 0, 0, None, None, "a\n"],
    "attributes that are a list": ["send", [b"a"], 0, 0, ["a"]],
    "too many attributes": ["send", [b"a"], 0, 0, {str(n): "x" for n in range(65)}],
    "a nameless attribute": ["send", [b"a"], 0, 0, {"": "x"}],
    "attributes that are too large": ["send", [b"a"], 0, 0, {"a": "x" * 1_048_576}],
    "no messages to receive": ["receive", 0, 0, 0],
    "too many messages to receive": ["receive", 10_001, 0, 0],
    "a wait that is too long": ["receive", 1, 0, 43_200_000_001],
    "a lease that is too long": ["receive", 1, 43_200_000_001, 0],
    "a state that is none": ["peek", "dead", 1, 0],
    "a reason that is empty": ["reject", [], ""],
    "an immortal name": ["redrive", None, "../../etc/passwd"],
}


@pytest.mark.parametrize("command", OUT_OF_RANGE.values(), ids=OUT_OF_RANGE.keys())
def test_R59_the_broker_checks_every_limit_itself(client: RawClient, command: list[Any]) -> None:
    body = msgspec.msgpack.encode([client.channel, 3, "", [command]])
    status, answer = client.post(f"{wire.PATH}/orders", body)
    assert status == 200
    (outcome,) = wire.decode_results(answer)
    assert isinstance(outcome, Failed), outcome
    assert outcome.code == "InvalidParameterError"
    assert total(client, 4) == 0


@pytest.mark.parametrize("name", ["..", "a/b", "%2e%2e", "x" * 81, "a%20b", "%C3%BC", "a%00"])
def test_R59_a_queue_s_name_is_checked(client: RawClient, name: str) -> None:
    body = wire.encode(wire.Request(client.channel, 3, "", [Declare()]))
    status, answer = client.post(f"{wire.PATH}/{name}", body)
    assert status == 200
    (outcome,) = wire.decode_results(answer)
    assert isinstance(outcome, Failed)


HANDLES = ["", ".", "1.1.1.1.", "x" * 100_000, "zz.zz", "1.1.1.1." + "0" * 32, "ü", "-1.2.3.4.5"]


@pytest.mark.parametrize("handle", HANDLES, ids=lambda handle: handle[:12] or "empty")
def test_R15_a_handle_that_is_none_is_stale(client: RawClient, handle: str) -> None:
    (settled,) = client.ask("orders", 3, wire.Acknowledge([handle]))
    assert settled.value == [False]


def test_R15_the_handle_of_one_queue_is_none_of_another_s(client: RawClient) -> None:
    client.ask("others", 3, Declare())
    client.ask("orders", 4, Send([b"a"]))
    (delivered,) = client.ask("orders", 5, Receive(1, 30_000_000))
    handle = delivered.value[0].handle
    assert client.ask("others", 6, wire.Acknowledge([handle]))[0].value == [False]
    assert client.ask("orders", 7, wire.Acknowledge([handle]))[0].value == [True]


def test_R59_a_web_page_can_t_post_here(client: RawClient) -> None:
    """A browser sends these media types to any site without asking it first."""
    body = wire.encode(wire.Request(client.channel, 3, "", [Send([b"a"])]))
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
        assert client.post(f"{wire.PATH}/orders", body, Content_Type=kind)[0] == 415
    assert total(client, 4) == 0


@pytest.mark.parametrize("path", ["/pillarbox", "/pillarbox/v2/orders", "/pillarbox/"])
def test_R59_other_paths_are_not_found(client: RawClient, path: str) -> None:
    assert client.post(path, b"")[0] == 404


def test_R35_an_answer_has_a_limit_and_the_rest_stays_in_line(client: RawClient) -> None:
    body = b"x" * 1_048_576
    for number in range(3, 23):
        client.ask("orders", number, Send([body]))
    (first,) = client.ask("orders", 30, Receive(100, 30_000_000))
    (second,) = client.ask("orders", 31, Receive(100, 30_000_000))
    assert len(first.value) == wire.ANSWER_BYTES_MAX // len(body)
    assert len(first.value) + len(second.value) == 20
    every = [*first.value, *second.value]
    assert [each.number for each in every] == [1] * 20
    assert [each.enqueued_ns for each in every] == sorted(each.enqueued_ns for each in every)
    (seen,) = client.ask("orders", 32, wire.Peek("in_flight", 100))
    assert len(seen.value) == wire.ANSWER_BYTES_MAX // len(body)
    client.ask("orders", 33, wire.Purge())
