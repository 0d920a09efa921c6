"""R21: request and response over two mailboxes, matched by the request's id."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from pillarbox.core.errors import InvalidParameterError
from pillarbox.mailbox.protocol import Mailbox
from pillarbox.testing.contract.cases.case import Case


@dataclass
class Sum:
    total: int


class Replies(Case):
    def test_R21_a_message_names_the_mailbox_for_its_answer(self) -> None:
        box = self.open()
        box.send("a", reply_to="answers")
        assert self.one(box).reply_to == "answers"

    def test_R21_an_answer_arrives_and_names_its_request(self) -> None:
        requests, answers = self.open(), self.open()
        request_id = requests.send("2 + 2", reply_to=answers.name)
        request = self.one(requests)
        answer_id = request.reply("4")
        answer = self.one(answers)
        assert (answer.id, answer.body, answer.in_reply_to) == (answer_id, "4", request_id)
        assert answer_id != request_id

    def test_R21_answers_in_any_order_find_their_requests(self) -> None:
        requests, answers = self.open(int), self.open(int)
        asked = {requests.send(n, reply_to=answers.name): n for n in range(5)}
        for request in reversed(self.take(requests, 5)):
            request.reply(request.body * 10)
            request.acknowledge()
        for answer in self.take(answers, 5):
            assert answer.body == asked.pop(str(answer.in_reply_to)) * 10
        assert asked == {}

    def test_R21_an_answer_wakes_who_waits_for_it(self) -> None:
        requests, answers = self.open(), self.open()
        request_id = requests.send("a", reply_to=answers.name)
        (parked,) = self.parked(answers)
        self.one(requests).reply("b")
        assert [m.in_reply_to for m in parked.result()] == [request_id]

    def test_R21_an_answer_is_not_mixed_with_the_attributes(self) -> None:
        requests, answers = self.open(), self.open()
        requests.send("a", attributes={"colour": "red"}, reply_to=answers.name)
        request = self.one(requests)
        request.reply("b")
        assert dict(request.attributes) == {"colour": "red"}
        assert dict(self.one(answers).attributes) == {}

    def test_R21_replying_does_not_settle_the_request(self) -> None:
        requests, answers = self.open(), self.open()
        requests.send("a", reply_to=answers.name)
        request = self.one(requests)
        request.reply("b")
        self.counts(requests, 1)
        assert request.acknowledge() is True

    def test_R21_a_request_may_be_answered_more_than_once(self) -> None:
        requests, answers = self.open(), self.open()
        request_id = requests.send("a", reply_to=answers.name)
        request = self.one(requests)
        request.reply("first part")
        request.reply("second part")
        assert [m.in_reply_to for m in self.take(answers, 2)] == [request_id, request_id]

    def test_R21_a_redelivered_request_still_knows_where_to_answer(self) -> None:
        requests, answers = self.open(), self.open()
        requests.send("a", reply_to=answers.name)
        self.one(requests).nack()
        self.one(requests).reply("b")
        assert self.one(answers).body == "b"

    def test_R21_an_answer_may_itself_ask_for_an_answer_elsewhere(self) -> None:
        requests, answers = self.open(), self.open()
        request_id = requests.send("a", reply_to=answers.name)
        self.one(requests).reply("b")
        answer = self.one(answers)
        assert answer.reply_to is None
        with pytest.raises(InvalidParameterError, match="reply_to"):
            answer.reply("c")
        assert answer.in_reply_to == request_id

    def test_R21_without_reply_to_there_is_nowhere_to_answer(self) -> None:
        box = self.open_with("a")
        with pytest.raises(InvalidParameterError) as raised:
            self.one(box).reply("b")
        assert raised.value.parameter == "reply_to"

    @pytest.mark.parametrize(
        ("body_type", "body"),
        [
            (Sum, Sum(4)),
            (bytes, b"\xff"),
            (str, "text"),
            (dict[str, int], {"total": 4}),
            (Any, {"total": 4}),
            (Any, [1, 2]),
            (Any, "text"),
            (Any, "4"),
            (Any, None),
            (list[Sum], [Sum(4), Sum(5)]),
            (dict[str, Sum], {"a": Sum(4)}),
        ],
        ids=lambda value: str(getattr(value, "__name__", value)),
    )
    def test_R21_an_answer_arrives_as_the_type_of_its_mailbox(
        self, body_type: Any, body: Any
    ) -> None:
        requests, answers = self.open(), self.open(body_type)
        requests.send("a", reply_to=answers.name)
        self.one(requests).reply(body)
        assert self.one(answers).body == body

    def _answered(self, requests: Mailbox[Any], answers: Mailbox[Any], body: Any) -> None:
        """Assert that the reply to one request arrives unchanged."""
        requests.send("a", reply_to=answers.name)
        request = self.one(requests)
        request.reply(body)
        request.acknowledge()
        answer = self.one(answers)
        assert answer.body == body
        assert answer.acknowledge()

    @pytest.mark.parametrize("kind", [bytes, str, Any, Sum])
    def test_R110_a_mailbox_object_of_another_type_changes_no_answer(self, kind: Any) -> None:
        requests, answers = self.open(), self.open(int)
        self.backend.again(answers, kind)
        for body in (5, 6):
            self._answered(requests, answers, body)

    def test_R110_whoever_opened_the_queue_first_decides_nothing(self) -> None:
        first = self.open(bytes)
        answers, requests = self.backend.again(first, Any), self.open()
        for body in (5, "text", "5", None):
            self._answered(requests, answers, body)

    @pytest.mark.parametrize("reply_to", ["", 7, b"answers", "\ud800"], ids=repr)
    def test_R22_a_bad_reply_to_is_refused_and_nothing_is_sent(self, reply_to: Any) -> None:
        box = self.open()
        with pytest.raises(InvalidParameterError) as raised:
            box.send("a", reply_to=reply_to)
        assert raised.value.parameter == "reply_to"
        self.nothing(box)
