"""R40: release returns a message as if it had never been received."""

from __future__ import annotations

from pillarbox.testing.contract.backend import Capability, needs
from pillarbox.testing.contract.cases.case import Case


class Releasing(Case):
    def test_R40_release_answers_true_and_shows_the_message_at_once(self) -> None:
        box = self.open_with("a")
        assert self.one(box).release() is True
        assert self.one(self.backend.again(box, str)).body == "a"

    @needs(Capability.RELEASE_UNCOUNTED)
    def test_R40_release_counts_nothing(self) -> None:
        box = self.open_with("a")
        for _ in range(5):
            message = self.one(box)
            assert message.delivery_count == 1
            message.release()

    @needs(Capability.RELEASE_UNCOUNTED)
    def test_R40_release_takes_back_one_count_and_not_those_before(self) -> None:
        box = self.open_with("a")
        self.one(box).nack()
        self.one(box).release()
        assert self.one(box).delivery_count == 2

    @needs(Capability.RELEASE_UNCOUNTED)
    def test_R40_a_released_message_never_dies_of_it(self) -> None:
        box, dead = self.open_mortal(1, sent="a")
        for _ in range(4):
            assert self.one(box).release()
        self.nothing(dead)
        message = self.one(box)
        assert message.delivery_count == 1
        message.nack()
        self.let_die(box)
        assert self.one(dead).id == message.id

    @needs(Capability.RELEASE_UNCOUNTED, Capability.DEAD_LETTER_HISTORY)
    def test_R40_a_release_is_not_in_the_history(self) -> None:
        box, dead = self.open_mortal(2, sent="a")
        self.one(box).release()
        self.die(box, 2)
        letter = self.one(dead).dead_letter
        assert letter is not None
        assert [failed.outcome for failed in letter.history] == ["nacked", "nacked"]

    def test_R40_a_released_message_is_still_counted_in_the_mailbox(self) -> None:
        box = self.open_with("a")
        self.one(box).release()
        self.counts(box, 1)

    @needs(Capability.EXACT_COUNT)
    def test_R40_a_released_message_is_ready(self) -> None:
        box = self.open_with("a")
        self.one(box).release()
        stats = box.stats()
        assert (stats.ready, stats.scheduled, stats.in_flight) == (1, 0, 0)

    def test_R40_release_concerns_that_message_only(self) -> None:
        box = self.open_with("a", "b")
        kept, released = self.take(box, 2)
        released.release()
        assert self.bodies(box, 1) == [released.body]
        self.nothing(box)
        assert kept.acknowledge() is True

    def test_R40_what_is_not_mine_is_found_by_whose_it_is(self) -> None:
        box = self.open()
        box.send("mine", attributes={"for": "b"})
        stranger = self.one(box)
        assert stranger.attributes["for"] == "b"
        stranger.release()
        message = self.one(self.backend.again(box, str))
        assert message.acknowledge() is True
        self.counts(box, 0)

    @needs(Capability.FIFO_ORDER, Capability.TAIL)
    def test_R40_released_messages_stand_behind_those_that_wait(self) -> None:
        box = self.open_with("a", "b", "c")
        box.release_many(self.take(box, 2))
        assert self.bodies(box, 3) == ["c", "a", "b"]
