"""R9, R37: the protocol of a mailbox, and the declared capabilities of a backend."""

from __future__ import annotations

from pillarbox.mailbox.protocol import Mailbox
from pillarbox.testing.contract.backend import Capability
from pillarbox.testing.contract.cases.case import Case


class Declaring(Case):
    def test_R9_a_mailbox_has_the_shape_of_the_protocol(self) -> None:
        assert isinstance(self.open(), Mailbox)

    def test_R9_a_mailbox_knows_its_name(self) -> None:
        assert self.open(name="orders-by-name").name == "orders-by-name"

    def test_R9_mailboxes_of_one_name_are_one_queue(self) -> None:
        box = self.open_with("shared")
        assert self.one(self.backend.again(box, str)).body == "shared"

    def test_R9_mailboxes_of_different_names_are_different_queues(self) -> None:
        box, other = self.open(), self.open()
        box.send("mine")
        self.nothing(other)
        assert self.one(box).body == "mine"

    def test_R37_every_declared_incapacity_is_known_and_has_a_reason(self) -> None:
        for capability, reason in self.backend.cannot.items():
            assert isinstance(capability, Capability)
            assert reason.strip(), f"{capability.name} is declared without a reason"
