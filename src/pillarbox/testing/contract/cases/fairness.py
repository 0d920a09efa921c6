"""R151: in a fair queue, a tenant that holds too much waits behind the others."""

from __future__ import annotations

from typing import Any

from pillarbox.mailbox.message import Message
from pillarbox.mailbox.protocol import DeadLetterPolicy, Mailbox
from pillarbox.testing.contract.backend import Capability, needs
from pillarbox.testing.contract.cases.case import Case

_MUCH = 30  # in-flight messages of a noisy tenant, unless they are a small share of all


class Fairness(Case):
    def flooded(self, **options: Any) -> Mailbox[Any]:
        """Open a fair queue; one tenant sends twice as many messages as make it noisy."""
        box = self.open(fair=True, **options)
        box.send_many([f"f{n:02}" for n in range(2 * _MUCH)], group="flood")
        return box

    def noisy(self, **options: Any) -> tuple[Mailbox[Any], list[Message[Any]]]:
        """Open the same queue with a noisy tenant; return it and the messages held."""
        box = self.flooded(**options)
        return box, self.take(box, _MUCH)

    def goes_first(self, box: Mailbox[Any], *, other: bool) -> None:
        """Assert whether another tenant's message is received before the flood's."""
        box.send("quiet", group="other")
        assert (self.one(box).body == "quiet") == other

    @needs(Capability.FAIR)
    def test_R151_a_tenant_that_holds_much_waits_behind_the_others(self) -> None:
        box, held = self.noisy()
        assert [message.body for message in held] == [f"f{n:02}" for n in range(_MUCH)]
        box.send("quiet", group="other")
        box.send("nobody's")
        assert self.bodies(box, 4) == ["quiet", "nobody's", "f30", "f31"]

    @needs(Capability.FAIR)
    def test_R151_a_tenant_that_holds_less_is_served_in_the_order_of_sending(self) -> None:
        box = self.flooded()
        box.send("quiet", group="other")
        self.take(box, _MUCH - 1)
        assert self.one(box).body == "f29"
        assert self.one(box).body == "quiet"

    @needs(Capability.FAIR)
    def test_R151_a_tenant_becomes_noisy_within_a_batch(self) -> None:
        box = self.flooded()
        box.send("quiet", group="other")
        self.take(box, _MUCH - 2)
        assert self.bodies(box, 4) == ["f28", "f29", "quiet", "f30"]

    @needs(Capability.FAIR)
    def test_R151_a_group_orders_nothing(self) -> None:
        box = self.open(fair=True)
        for body in ("a1", "b1", "a2", "x"):
            box.send(body, group=None if body == "x" else body[0])
        held = self.take(box, 4)
        assert [message.body for message in held] == ["a1", "b1", "a2", "x"]
        assert [message.group for message in held] == ["a", "b", "a", None]
        for message in reversed(held):
            assert message.nack()
        assert self.bodies(box, 4) == ["a1", "b1", "a2", "x"]

    @needs(Capability.FAIR)
    def test_R151_a_tenth_of_what_is_in_flight_is_nobody_s_too_much(self) -> None:
        box = self.open(fair=True)
        for first in range(0, 9 * _MUCH, 10):
            box.send_many([f"o{first}"] * 10, group=f"tenant-{first}")
        box.send_many(["f"] * 2 * _MUCH, group="flood")
        self.take(box, 9 * _MUCH + _MUCH)  # the flood holds a tenth
        self.goes_first(box, other=False)

    @needs(Capability.FAIR)
    def test_R151_what_is_acknowledged_is_held_no_longer(self) -> None:
        box, held = self.noisy()
        assert held[0].acknowledge()
        self.goes_first(box, other=False)

    @needs(Capability.FAIR)
    def test_R151_what_is_given_back_is_held_no_longer(self) -> None:
        for verb in ("nack", "release"):
            box, held = self.noisy()
            assert getattr(held[0], verb)()
            self.goes_first(box, other=False)

    @needs(Capability.FAIR)
    def test_R151_what_is_given_back_for_later_is_held_until_then(self) -> None:
        box, held = self.noisy()
        assert held[0].nack(visibility_timeout=5)
        self.goes_first(box, other=True)
        assert held[1].acknowledge()
        self.goes_first(box, other=False)

    @needs(Capability.FAIR)
    def test_R151_what_a_crashed_consumer_held_is_held_no_longer(self) -> None:
        box = self.flooded()
        self.take(box, 1, visibility_timeout=2)
        self.take(box, _MUCH - 1, visibility_timeout=60)
        self.pass_time(2)
        self.goes_first(box, other=False)

    @needs(Capability.FAIR, Capability.DELETE_BY_ID)
    def test_R151_what_is_deleted_is_held_no_longer(self) -> None:
        box, held = self.noisy()
        assert box.delete([held[0].id]) == 1
        self.goes_first(box, other=False)

    @needs(Capability.FAIR, Capability.REJECT)
    def test_R151_what_died_is_held_no_longer(self) -> None:
        box, held = self.noisy(dead_letters=DeadLetterPolicy(5))
        assert held[0].reject("no good")
        self.goes_first(box, other=False)
        assert box.dead_letters is not None
        assert box.dead_letters.redrive() == 1
        assert box.stats().dead == 0

    @needs(Capability.FAIR, Capability.PURGE_AT_WILL)
    def test_R151_after_a_purge_nobody_holds_anything(self) -> None:
        box, _ = self.noisy()
        assert box.purge() == 2 * _MUCH
        box.send("f", group="flood")
        self.goes_first(box, other=False)

    @needs(Capability.FAIR)
    def test_R151_a_tenant_is_noisy_by_priority(self) -> None:
        box, _ = self.noisy()
        box.send("quiet", group="other", priority=1)
        box.send("low", group="other")
        box.send("high", group="flood", priority=1)
        assert self.bodies(box, 4) == ["quiet", "high", "low", "f30"]

    @needs(Capability.FAIR, Capability.PEEK)
    def test_R151_peek_shows_the_order_of_delivery(self) -> None:
        box, _ = self.noisy()
        box.send("quiet", group="other")
        box.send("nobody's")
        assert [message.body for message in box.peek(3)] == ["quiet", "nobody's", "f30"]
        assert len(box.peek(100)) == _MUCH + 2
        assert box.stats().ready == _MUCH + 2

    @needs(Capability.FAIR)
    def test_R151_a_parked_receive_is_served_whoever_holds_much(self) -> None:
        box, _ = self.noisy()
        self.take(box, _MUCH)
        (waiting,) = self.parked(box)
        box.send("again", group="flood")
        assert [message.body for message in waiting.result()] == ["again"]

    @needs(Capability.FAIR)
    def test_R151_every_one_that_waits_is_served_by_one_tenant(self) -> None:
        box = self.open(fair=True)
        waiting = self.parked(box, 3)
        box.send_many(["a", "b", "c"], group="tenant")
        assert sorted(m.body for each in waiting for m in each.result()) == ["a", "b", "c"]
