"""R74 on Redis: with journal=True the history of a queue is a stream in the same slot."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest

from pillarbox import DeadLetterPolicy, InvalidParameterError
from pillarbox.core.journal import KINDS
from pillarbox.mailbox.redis.history import read, trim
from pillarbox.mailbox.redis.keys import keys_of
from pillarbox.testing.redis import shared_server
from tests.redis.world import open_box


def history(name: str) -> list[dict[str, str]]:
    entries = shared_server().ask("XRANGE", keys_of(name).key("journal"), "-", "+")
    return [
        {key.decode(): value.decode() for key, value in zip(each[::2], each[1::2], strict=True)}
        for _, each in entries
    ]


def test_R74_every_event_of_a_message_is_in_the_journal_in_order() -> None:
    with open_box(journal=True, dead_letters=DeadLetterPolicy(2)) as box:
        message_id = box.send("tea", priority=7, attributes={"colour": "red"})
        box.receive()[0].nack()
        box.receive()[0].release()
        (last,) = box.receive()
        last.extend_visibility(60)
        last.nack()
        assert box.dead_letters is not None
        box.dead_letters.redrive()
        box.receive()[0].acknowledge()
        events = history(box.name)
        kinds = [event["kind"] for event in events]
        assert kinds == [
            *("sent", "leased", "returned", "leased", "released", "leased", "extended"),
            *("died", "leased", "acknowledged"),
        ]
        assert {event["id"] for event in events} == {message_id}
        sent, leased, *_ = events
        assert (sent["body"], sent["priority"]) == ("tea", "7")
        assert json.loads(sent["attributes"]) == {"colour": "red"}
        assert leased["number"] == "1"
        times = [int(event["time"]) for event in events]
        assert times == sorted(times)
        (died,) = [event for event in events if event["kind"] == "died"]
        assert (died["reason"], died["to"]) == ("nacked after 2 deliveries", f"{box.name}_dlq")


def test_R74_what_is_scheduled_comes_due_purged_and_removed_is_there_too() -> None:
    with open_box(journal=True) as box:
        box.send("a", delay_seconds=0.01)
        assert len(box.receive(wait_time_seconds=5, visibility_timeout=0)) == 1
        box.delete([box.send("b")])
        box.purge()
        kinds = [event["kind"] for event in history(box.name)]
        assert sorted(kinds) == sorted(
            ["scheduled", "came_due", "leased", "returned", "sent", "removed", "purged"]
        )


def test_R74_every_client_of_the_queue_writes_it() -> None:
    with open_box(journal=True) as box, open_box(name=box.name) as other:
        other.send("a")
        assert [event["kind"] for event in history(box.name)] == ["sent"]


def test_R74_it_is_read_by_offset_and_trimmed() -> None:
    with open_box(journal=True) as box:
        url = f"{shared_server().url}/{box.name}"
        ids = box.send_many(["a", "b"], attributes={"colour": "red"}, group="g", priority=2)
        box.acknowledge_many(box.receive(max_messages=2))
        events = read(url)
        assert [(each.kind, each.message_id) for each in events] == [
            (kind, each) for kind in ("sent", "leased", "acknowledged") for each in ids
        ]
        first = events[0]
        assert (first.body, first.attributes, first.priority) == (b"a", {"colour": "red"}, 2)
        assert first.details["group"] == "g"
        assert abs(datetime.now(UTC) - first.at) < timedelta(minutes=5)
        assert events[2].body is None
        assert events[2].details["number"] == "1"
        paged = read(url, count=2)
        while more := read(url, after=paged[-1].offset, count=2):
            paged += more
        assert paged == events
        assert trim(url, before=events[2].offset) == 2
        assert read(url) == events[2:]


def test_R74_kinds_are_those_of_every_history() -> None:
    with open_box(journal=True, dead_letters=DeadLetterPolicy(1)) as box:
        box.send_many(["a", "b", "c"])
        one, two, three = box.receive(max_messages=3)
        one.nack()
        two.release()
        three.extend_visibility(9)
        box.purge()
        kinds = {each.kind for each in read(f"{shared_server().url}/{box.name}")}
        assert kinds == {"sent", "leased", "died", "released", "extended", "purged"}
        assert kinds <= set(KINDS.values())


def test_R74_an_offset_must_be_one() -> None:
    with pytest.raises(InvalidParameterError, match="after must be the offset"):
        read(f"{shared_server().url}/orders", after="yesterday")


def test_R74_without_it_there_is_no_stream() -> None:
    with open_box() as box:
        box.send("a")
        assert history(box.name) == []


def test_R74_an_event_has_the_attributes_of_the_user_only() -> None:
    with open_box(journal=True) as box:
        box.send("a", attributes={"colour": "red"}, reply_to="answers")
        (sent,) = read(f"{shared_server().url}/{box.name}")
        assert sent.attributes == {"colour": "red"}


def test_R74_a_url_without_a_queue_has_no_history() -> None:
    for read_or_trim in (read, partial(trim, before="1-0")):
        with pytest.raises(InvalidParameterError, match="of the form"):
            read_or_trim(f"{shared_server().url}/")
