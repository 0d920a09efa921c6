"""Mailboxes that are each broken in one way, under the contract: what proves that it can fail.

pytest does not collect this file by itself; test_the_suite_itself.py runs it. A defect is put
in front of a sound mailbox, so that it depends on nothing but the face that all mailboxes have.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, NamedTuple

from pillarbox import DeadLetterPolicy, Mailbox, MailboxClosedError, Undecodable
from pillarbox.testing.contract import Backend, Capability, MailboxContract, MemoryBackend

HOURS = 3_600


class Letter:
    """In front of a message: says and does what it does, but for what a defect changes."""

    def __init__(self, inner: Any) -> None:
        object.__setattr__(self, "_inner", inner)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def __setattr__(self, name: str, value: object) -> None:
        setattr(self._inner, name, value)


class Face:
    """In front of a mailbox, likewise."""

    letter: ClassVar[type[Letter]] = Letter

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    @property
    def dead_letters(self) -> Any:
        dead = self._inner.dead_letters
        return dead and type(self)(dead)

    def receive(self, **options: Any) -> list[Any]:
        return [self.letter(message) for message in self._inner.receive(**options)]

    def acknowledge_many(self, messages: Iterable[Any]) -> list[bool]:
        answers: list[bool] = self._inner.acknowledge_many([m._inner for m in messages])
        return answers

    def nack_many(self, messages: Iterable[Any], **options: Any) -> list[bool]:
        answers: list[bool] = self._inner.nack_many([m._inner for m in messages], **options)
        return answers


class AcknowledgesNothing(Face):
    class letter(Letter):
        def acknowledge(self) -> bool:
            return True


class StaleIsFine(Face):
    class letter(Letter):
        def acknowledge(self) -> bool:
            return self._inner.acknowledge() or True


class LosesInRelease(Face):
    class letter(Letter):
        def release(self) -> bool:
            return self._inner.acknowledge()


class CountsReleases(Face):
    class letter(Letter):
        def release(self) -> bool:
            return self._inner.nack()


class NacksAtOnce(Face):
    class letter(Letter):
        def nack(self, *, visibility_timeout: float = 0) -> bool:
            return self._inner.nack()


class ExtendsNothing(Face):
    class letter(Letter):
        def extend_visibility(self, timeout: float) -> bool:
            return True


class GuessableHandles(Face):
    class letter(Letter):
        @property
        def receipt_handle(self) -> str:
            return f"{self.id}/{self.delivery_count}"


class SharesItsAttributes(Face):
    class letter(Letter):
        @property
        def attributes(self) -> dict[str, str]:
            return dict(self._inner.attributes)


class CountsNothing(Face):
    class letter(Letter):
        delivery_count = 1


class ForgetsTheRequest(Face):
    class letter(Letter):
        in_reply_to = None


class Changeable(Face):
    class letter(Letter):
        def __setattr__(self, name: str, value: object) -> None:
            object.__setattr__(self, name, value)


class IgnoresDelays(Face):
    def send(self, body: Any, *, delay_seconds: float = 0, **options: Any) -> str:
        return self._inner.send(body, **options)


class ForgetsPriority(Face):
    def send(self, body: Any, *, priority: int = 0, **options: Any) -> str:
        return self._inner.send(body, **options)


class RepeatsIds(Face):
    def send(self, body: Any, **options: Any) -> str:
        self._inner.send(body, **options)
        return "1"


class ForgetsGroups(Face):
    def send(self, body: Any, *, group: str | None = None, **options: Any) -> str:
        return self._inner.send(body, **options)


class ForgetsDuplicates(Face):
    def send(self, body: Any, *, deduplication_id: str | None = None, **options: Any) -> str:
        return self._inner.send(body, **options)


class MendsBadInput(Face):
    def send(self, body: Any, *, delay_seconds: float = 0, **options: Any) -> str:
        return self._inner.send(body, delay_seconds=max(0, delay_seconds), **options)


class SendsOneByOne(Face):
    def send_many(self, bodies: Iterable[Any], **options: Any) -> list[str]:
        return [self.send(body, **options) for body in bodies]


class ReceivesBackwards(Face):
    def receive(self, **options: Any) -> list[Any]:
        return super().receive(**options)[::-1]


class NeverWaits(Face):
    def receive(self, *, wait_time_seconds: float = 0, **options: Any) -> list[Any]:
        return super().receive(**options)


class LeasesForEver(Face):
    def receive(self, *, visibility_timeout: float = 30, **options: Any) -> list[Any]:
        return super().receive(visibility_timeout=12 * HOURS, **options)


class HidesNothing(Face):
    def receive(self, *, visibility_timeout: float = 30, **options: Any) -> list[Any]:
        return super().receive(visibility_timeout=0, **options)


class LosesTheRestOfABatch(Face):
    def receive(self, *, max_messages: int = 1, **options: Any) -> list[Any]:
        return super().receive(max_messages=max_messages + 1, **options)[:max_messages]


class DropsTheUndecodable(Face):
    def receive(self, **options: Any) -> list[Any]:
        bad = [m.id for m in self._inner.peek(100) if isinstance(m.body, Undecodable)]
        self._inner.delete(bad)
        return super().receive(**options)


class PurgesWhatIsReady(Face):
    def purge(self) -> int:
        return self._inner.delete([m.id for m in self._inner.peek(100)])


class CountsReadyOnly(Face):
    def approximate_count(self) -> int:
        return self._inner.stats().ready


class ClosesNothing(Face):
    def close(self) -> None:
        """The mailbox behind stays open."""


class WakesNobody(ClosesNothing):
    closed = False

    def close(self) -> None:
        self.closed = True

    def receive(self, **options: Any) -> list[Any]:
        if self.closed:
            raise MailboxClosedError(f"{self.name} was closed")
        return super().receive(**options)


class NeverBuries(Face):
    """Its policy is a laxer one than it was told: see `BrokenBackend.open`."""


class FairToNobody(ForgetsGroups):
    def send_many(self, bodies: Any, *, group: str | None = None, **options: Any) -> list[str]:
        ids: list[str] = self._inner.send_many(bodies, **options)
        return ids


class Defect(NamedTuple):
    """A broken mailbox, and the case that must find it out."""

    face: type[Face]
    found_by: str


DEFECTS = [
    Defect(AcknowledgesNothing, "test_R6_an_acknowledged_message_never_comes_again"),
    Defect(StaleIsFine, "test_R15_a_double_acknowledge_is_true_then_false"),
    Defect(LosesInRelease, "test_R40_release_answers_true_and_shows_the_message_at_once"),
    Defect(CountsReleases, "test_R40_release_counts_nothing"),
    Defect(NacksAtOnce, "test_R7_nack_with_a_time_shows_the_message_after_it"),
    Defect(ExtendsNothing, "test_R8_extend_answers_true_and_postpones_the_end"),
    Defect(GuessableHandles, "test_R15_handles_can_t_be_guessed_from_one_another"),
    Defect(SharesItsAttributes, "test_R5_attributes_are_read_only"),
    Defect(Changeable, "test_R5_a_message_is_frozen[body]"),
    Defect(CountsNothing, "test_R18_the_count_grows_with_each_nack"),
    Defect(ForgetsTheRequest, "test_R21_an_answer_arrives_and_names_its_request"),
    Defect(IgnoresDelays, "test_R1_a_delayed_message_is_not_received_before_its_time"),
    Defect(ForgetsPriority, "test_R17_the_higher_number_goes_first"),
    Defect(RepeatsIds, "test_R1_ids_are_unique"),
    Defect(ForgetsGroups, "test_R16_a_group_waits_while_one_of_it_is_in_flight"),
    Defect(ForgetsDuplicates, "test_R1_a_repeated_send_is_one_message_and_has_its_id"),
    Defect(MendsBadInput, "test_R22_a_bad_time_is_refused_and_changes_nothing[send-negative]"),
    Defect(SendsOneByOne, "test_R11_a_bad_body_refuses_the_whole_batch"),
    Defect(ReceivesBackwards, "test_R16_a_batch_is_received_in_order"),
    Defect(NeverWaits, "test_R14_a_parked_receive_is_served_by_send"),
    Defect(LeasesForEver, "test_R10_received_then_forgotten_is_ready_after_its_lease"),
    Defect(HidesNothing, "test_R13_in_flight_is_hidden_from_every_other_consumer"),
    Defect(LosesTheRestOfABatch, "test_R2_as_many_as_there_are_up_to_max_messages"),
    Defect(DropsTheUndecodable, "test_R23_without_a_policy_it_is_not_lost"),
    Defect(PurgesWhatIsReady, "test_R3_purge_answers_with_how_many_there_were_in_any_state"),
    Defect(CountsReadyOnly, "test_R4_the_count_is_ready_and_scheduled_and_in_flight"),
    Defect(ClosesNothing, "test_R24_a_closed_mailbox_refuses_and_changes_nothing[send]"),
    Defect(WakesNobody, "test_R24_close_wakes_every_parked_receive"),
    Defect(FairToNobody, "test_R151_a_tenant_that_holds_much_waits_behind_the_others"),
    Defect(NeverBuries, "test_R39_a_message_dies_after_that_many_nacks_and_not_before"),
]

PRIORITY_CASE = "test_R17_the_higher_number_goes_first"
DECLARATION_CASE = "test_R37_every_declared_incapacity_is_known_and_has_a_reason"


class BrokenBackend(MemoryBackend):
    name = "broken"
    patience_seconds = 1  # what hangs shall be found out soon
    face: ClassVar[type[Face]] = Face

    def open(
        self,
        body_type: Any = Any,
        *,
        dead_letters: DeadLetterPolicy | None = None,
        **options: Any,
    ) -> Mailbox[Any]:
        if dead_letters is not None and self.face is NeverBuries:
            dead_letters = DeadLetterPolicy(1_000, dead_letters.name)
        return super().open(body_type, dead_letters=dead_letters, **options)

    def _as_sync(self, mailbox: Any) -> Any:
        return self.face(mailbox)


class Unwilling(MemoryBackend):
    name = "unwilling"
    cannot: Mapping[Capability, str] = {Capability.PRIORITY: "it treats everyone alike"}


class Careless(MemoryBackend):
    name = "careless"
    cannot: Mapping[Capability, str] = {Capability.PRIORITY: " "}


def under_contract(backend: type[Backend], cases: Iterable[str]) -> type[MailboxContract]:
    """The contract with these cases only: to collect all of them for each defect takes long."""
    wanted = {case.partition("[")[0] for case in cases}
    members: dict[str, Any] = {
        case: None for case in dir(MailboxContract) if case[:5] == "test_" and case not in wanted
    }
    members["make_backend"] = lambda self: backend()
    return type("UnderContract", (MailboxContract,), members)


for _defect in DEFECTS:
    _backend = type("BrokenBackend", (BrokenBackend,), {"face": _defect.face})
    globals()[f"Test{_defect.face.__name__}"] = under_contract(_backend, [_defect.found_by])

# The control: the same cases behind the same sort of face, and nothing broken.
TestSound = under_contract(BrokenBackend, [defect.found_by for defect in DEFECTS])
TestUnwilling = under_contract(Unwilling, [PRIORITY_CASE, DECLARATION_CASE])
TestCareless = under_contract(Careless, [DECLARATION_CASE])
