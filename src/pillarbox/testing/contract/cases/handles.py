"""R15: a receipt handle belongs to one delivery, and ends with it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from math import log2
from typing import Any

import pytest

from pillarbox.core.errors import MailboxError, ReceiptHandleExpiredError
from pillarbox.mailbox.message import Message
from pillarbox.mailbox.protocol import DeadLetterPolicy
from pillarbox.testing.contract.backend import Capability, needs
from pillarbox.testing.contract.cases.case import Case

VERBS: dict[str, Callable[..., bool]] = {
    "acknowledge": lambda message, **strict: message.acknowledge(**strict),
    "nack": lambda message, **strict: message.nack(**strict),
    "nack later": lambda message, **strict: message.nack(visibility_timeout=5, **strict),
    "extend": lambda message, **strict: message.extend_visibility(60, **strict),
    "release": lambda message, **strict: message.release(**strict),
    "reject": lambda message, **strict: message.reject("stale", **strict),
}

every_verb = pytest.mark.parametrize("verb", VERBS.values(), ids=VERBS.keys())

Verb = Callable[..., bool]


class Handles(Case):
    def stale(self, message: Message[Any], verb: Verb) -> None:
        """Assert that the method returns False, and its strict form raises, every time."""
        assert verb(message) is False
        with pytest.raises(ReceiptHandleExpiredError):
            verb(message, strict=True)
        assert verb(message) is False

    def only_with(self, holder: Message[Any]) -> None:
        """Assert that only this holder has the message, despite calls with stale handles."""
        assert holder.extend_visibility(30) is True
        assert holder.acknowledge() is True

    @needs(Capability.STRICT_LEASES)
    @every_verb
    def test_R15_a_handle_fails_once_the_lease_ran_out_even_before_any_timer(
        self, verb: Verb
    ) -> None:
        box = self.open_with("a")
        late = self.one(box, visibility_timeout=1)
        self.pass_time(1)
        self.stale(late, verb)
        again = self.one(box)
        assert again.delivery_count == 2
        self.only_with(again)

    @every_verb
    def test_R15_a_handle_fails_after_redelivery_and_leaves_the_new_holder_alone(
        self, verb: Verb
    ) -> None:
        box = self.open_with("a")
        late = self.one(box, visibility_timeout=1)
        self.pass_time(1)
        holder = self.one(self.backend.again(box, str))
        self.stale(late, verb)
        self.nothing(box)
        self.only_with(holder)
        self.counts(box, 0)

    @every_verb
    def test_R15_a_handle_fails_after_acknowledge(self, verb: Verb) -> None:
        box = self.open_with("a")
        done = self.one(box)
        assert done.acknowledge()
        self.stale(done, verb)
        self.empty(box)

    @every_verb
    def test_R15_a_handle_fails_after_nack(self, verb: Verb) -> None:
        box = self.open_with("a")
        failed = self.one(box)
        assert failed.nack()
        self.stale(failed, verb)
        again = self.one(box)
        assert again.delivery_count == 2
        self.only_with(again)

    @every_verb
    def test_R15_a_nack_with_a_delay_keeps_the_old_handle_dead(self, verb: Verb) -> None:
        box = self.open_with("a")
        failed = self.one(box)
        assert failed.nack(visibility_timeout=2)
        self.stale(failed, verb)
        self.nothing(box)
        self.pass_time(2)
        self.stale(failed, verb)
        again = self.one(box)
        self.stale(failed, verb)
        self.only_with(again)

    @every_verb
    def test_R15_a_handle_fails_after_release(self, verb: Verb) -> None:
        box = self.open_with("a")
        released = self.one(box)
        assert released.release()
        self.stale(released, verb)
        self.only_with(self.one(box))

    @needs(Capability.REJECT)
    @every_verb
    def test_R15_a_handle_fails_after_the_message_died(self, verb: Verb) -> None:
        box, dead = self.open_mortal(sent="a")
        rejected = self.one(box)
        assert rejected.reject("no good")
        self.stale(rejected, verb)
        self.nothing(box)
        letter = self.one(dead)
        self.stale(rejected, verb)
        self.only_with(letter)

    @needs(Capability.PURGE_AT_WILL, Capability.PURGE_TELLS_HOLDERS)
    @every_verb
    def test_R15_a_handle_fails_after_purge(self, verb: Verb) -> None:
        box = self.open_with("a")
        purged = self.one(box)
        box.purge()
        self.stale(purged, verb)
        self.empty(box)

    @needs(Capability.DELETE_BY_ID)
    @every_verb
    def test_R15_a_handle_fails_after_its_message_was_deleted(self, verb: Verb) -> None:
        box = self.open_with("a")
        deleted = self.one(box)
        assert box.delete([deleted.id]) == 1
        self.stale(deleted, verb)
        self.empty(box)

    @every_verb
    def test_R15_a_handle_of_an_earlier_delivery_stays_dead_for_good(self, verb: Verb) -> None:
        box = self.open_with("a")
        earlier = []
        for _ in range(3):
            earlier.append(self.one(box))
            earlier[-1].nack()
        holder = self.one(box)
        for message in earlier:
            self.stale(message, verb)
        self.only_with(holder)

    @needs(Capability.STRICT_LEASES)
    def test_R15_extend_never_revives(self) -> None:
        box = self.open_with("a")
        late = self.one(box, visibility_timeout=1)
        self.pass_time(1)
        assert late.extend_visibility(60) is False
        assert late.acknowledge() is False
        assert self.one(box).delivery_count == 2

    def test_R15_a_double_acknowledge_is_true_then_false(self) -> None:
        box = self.open_with("a", "b")
        held = self.one(box)
        assert [held.acknowledge(), held.acknowledge()] == [True, False]
        self.counts(box, 1)

    @needs(Capability.TIME_TRAVEL, Capability.SUBSECOND_TIMES)
    def test_R15_a_lease_ends_at_its_deadline_and_not_before(self) -> None:
        box = self.open_with("early", "late")
        early, late = self.take(box, 2, visibility_timeout=2)
        self.pass_time(1.999_999)
        assert early.acknowledge() is True
        self.pass_time(0.000_001)
        assert late.acknowledge() is False

    @every_verb
    def test_R22_the_strict_form_answers_true_while_the_lease_lasts(self, verb: Verb) -> None:
        box, _ = self.open_mortal(5)
        if verb is VERBS["reject"]:
            self.require(Capability.REJECT)
        box.send("a")
        assert verb(self.one(box), strict=True) is True

    def test_R22_the_strict_error_says_which_message_and_what_to_do(self) -> None:
        box = self.open_with("a")
        done = self.one(box)
        done.acknowledge()
        with pytest.raises(ReceiptHandleExpiredError, match="lease") as raised:
            done.acknowledge(strict=True)
        assert done.id in str(raised.value)
        assert isinstance(raised.value, MailboxError)

    def test_R15_every_delivery_has_a_handle_of_its_own(self) -> None:
        box = self.open_with("a", "b", "c")
        handles = []
        for _ in range(5):
            messages = self.take(box, 3)
            handles += [message.receipt_handle for message in messages]
            box.nack_many(messages)
        assert len(set(handles)) == 15
        assert "" not in handles

    def test_R15_a_released_message_gets_a_new_handle_though_its_count_stays(self) -> None:
        box = self.open_with("a")
        handles = set()
        for _ in range(5):
            message = self.one(box)
            handles.add(message.receipt_handle)
            message.release()
        assert len(handles) == 5

    @needs(Capability.DEAD_AT_ONCE)
    def test_R15_a_redriven_message_gets_a_new_handle_though_its_count_starts_anew(self) -> None:
        box = self.open(dead_letters=DeadLetterPolicy(1))
        letters = box.dead_letters
        assert letters is not None
        box.send("a")
        handles = set()
        for _ in range(3):
            message = self.one(box)
            handles.add(message.receipt_handle)
            message.nack()
            assert letters.redrive() == 1
        assert len(handles) == 3

    def test_R15_handles_can_t_be_guessed_from_one_another(self) -> None:
        box = self.open()
        box.send_many([str(n) for n in range(10)])
        handles = []
        for _ in range(10):
            messages = self.take(box, 10)
            handles += [message.receipt_handle for message in messages]
            box.nack_many(messages)
        assert bits_that_vary(handles) >= 64

    def test_R15_the_handle_of_a_delivery_does_not_change(self) -> None:
        box = self.open_with("a")
        message = self.one(box)
        handle = message.receipt_handle
        message.extend_visibility(60)
        assert message.receipt_handle == handle


def bits_that_vary(handles: list[str]) -> float:
    """Return the sum of the entropies of each character position; a counter has few bits."""
    width = min(map(len, handles))
    total = 0.0
    for position in range(1, width + 1):
        for count in Counter(handle[-position] for handle in handles).values():
            total -= count / len(handles) * log2(count / len(handles))
    return total
