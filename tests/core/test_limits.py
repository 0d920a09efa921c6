"""Every limit holds at its edge, and its error names the parameter and the range (R1, R2, R17)."""

from __future__ import annotations

import math
from types import MappingProxyType
from typing import Any

import pytest

from pillarbox.core import limits
from pillarbox.core.errors import InvalidParameterError

S = 1_000_000_000


def refused(parameter: str, allowed: str, got: str | None = None) -> Any:
    """A refusal that says exactly this."""
    end = "" if got is None else f"; got {got}"

    def check(error: InvalidParameterError) -> bool:
        text = str(error)
        return text.startswith(f"{parameter} must be {allowed}; got ") and text.endswith(end)

    return pytest.raises(InvalidParameterError, check=check)


@pytest.mark.parametrize(
    ("value", "nanoseconds"),
    [
        (0, 0),
        (0.0, 0),
        (-0.0, 0),
        (1, S),
        (30, 30 * S),
        (1.5, 1_500_000_000),
        (0.001, 1_000_000),
        (1e-9, 1),
        (1e-10, 1),
        (1.1e-9, 2),
        (5e-324, 1),
        (43_200, 43_200 * S),
        (43_200.0, 43_200 * S),
    ],
)
def test_R1_seconds_become_whole_nanoseconds_and_are_never_rounded_down(
    value: float, nanoseconds: int
) -> None:
    answer = limits.seconds("visibility_timeout", value, 43_200)

    assert answer == nanoseconds
    assert type(answer) is int


@pytest.mark.parametrize("value", [-1, -0.001, 43_201, 43_200.001, math.inf, -math.inf, math.nan])
def test_R1_seconds_outside_their_range_are_refused(value: float) -> None:
    with refused("visibility_timeout", "from 0 to 43,200 (seconds)", repr(value)):
        limits.seconds("visibility_timeout", value, 43_200)


@pytest.mark.parametrize("value", ["1", None, True, [1], 1j])
def test_R1_seconds_that_are_no_number_are_refused(value: Any) -> None:
    with refused("delay_seconds", "a number from 0 to 43,200 (seconds)", repr(value)):
        limits.seconds("delay_seconds", value, 43_200)


@pytest.mark.parametrize("value", [1, 2, 10_000])
def test_R2_whole_numbers_within_their_range_are_taken(value: int) -> None:
    assert limits.whole("max_messages", value, 1, 10_000) == value


@pytest.mark.parametrize("value", [0, 10_001, -1, 1.0, True, "1", None, math.nan])
def test_R2_whole_numbers_outside_their_range_are_refused(value: Any) -> None:
    with refused("max_messages", "a whole number from 1 to 10,000", repr(value)):
        limits.whole("max_messages", value, 1, 10_000)


@pytest.mark.parametrize("value", [0, 1, 254, 255])
def test_R17_priorities_from_0_to_255_are_taken(value: int) -> None:
    assert limits.priority(value) == value


@pytest.mark.parametrize("value", [-1, 256, 1.0, "high", None])
def test_R17_other_priorities_are_refused(value: Any) -> None:
    with refused("priority", "a whole number from 0 to 255", repr(value)):
        limits.priority(value)


def test_R16_one_of_a_few_words_is_taken_and_no_other() -> None:
    limits.one_of("redelivery", "tail", ("tail", "original"))

    with refused("redelivery", "one of tail, original", "'front'"):
        limits.one_of("redelivery", "front", ("tail", "original"))


def test_R34_a_body_may_be_as_large_as_the_limit_and_no_larger() -> None:
    limits.body_bytes(b"x" * 2_000, 2_000)

    with refused("body", "at most 2,000 bytes", "'2,001 bytes'"):
        limits.body_bytes(b"x" * 2_001, 2_000)


@pytest.mark.parametrize("name", ["a", "Jobs_1-x", "x" * 80, "x.fifo", "x" * 75 + ".fifo", "0"])
def test_R36_names_by_the_grammar_of_sqs_are_taken(name: str) -> None:
    assert limits.queue_name(name) == name


@pytest.mark.parametrize(
    "name",
    [
        *("", "x" * 81, "x" * 76 + ".fifo", "a b", "a/b", "..", ".fifo", "a.fifo.fifo", "a.FIFO"),
        *("ä", "a\n", "\na", None, 7, b"a"),
    ],
)
def test_R36_other_names_are_refused(name: Any) -> None:
    allowed = "1 to 80 letters, digits, hyphens or underscores (.fifo may follow)"

    with refused("name", allowed, None if len(repr(name)) > 80 else repr(name)):
        limits.queue_name(name)
    with refused("dead_letters", allowed):
        limits.queue_name(name, "dead_letters")


@pytest.mark.parametrize("token", ["!", "~", "a" * 128, "order:17"])
def test_R55_tokens_of_printable_ascii_are_taken(token: str) -> None:
    assert limits.token("group", token) == token


@pytest.mark.parametrize("token", ["", "a" * 129, "a b", "a\n", "\x7f", "é", None, 7, b"a"])
def test_R55_other_tokens_are_refused(token: Any) -> None:
    got = None if len(repr(token)) > 80 else repr(token)
    with refused("group", "1 to 128 printable ASCII characters", got):
        limits.token("group", token)


def test_R39_a_text_is_a_str_with_something_in_it() -> None:
    assert limits.text("reason", "x") == "x"

    for value in ("", None, b"x", 7):
        with refused("reason", "a str of at least 1 characters", repr(value)):
            limits.text("reason", value)
    assert limits.text("reason", "", 0) == ""
    assert limits.text("reason", "abc", least=3) == "abc"
    with refused("reason", "a str of at least 3 characters", "'ab'"):
        limits.text("reason", "ab", 3)


def test_R1_attributes_are_copied() -> None:
    mine = {"a": "1", "b": ""}

    taken = limits.attributes(mine)

    assert taken == mine
    assert taken is not mine
    assert limits.attributes(MappingProxyType(mine)) == mine
    assert type(limits.attributes(MappingProxyType(mine))) is dict
    assert limits.attributes({}) == {}


def test_R1_as_many_attributes_as_the_limit_are_taken_and_no_more() -> None:
    many = {f"name{i}": "x" for i in range(64)}
    assert limits.attributes(many) == many

    many["one more"] = "x"
    with refused("attributes", "at most 64 entries", "65"):
        limits.attributes(many)


def test_R1_attributes_that_are_no_mapping_are_refused() -> None:
    for value in (None, [("a", "1")], "a"):
        with refused("attributes", "a mapping of str to str", repr(value)):
            limits.attributes(value)


def test_R1_names_of_attributes_have_1_to_256_characters() -> None:
    longest = "n" * 256
    assert limits.attributes({longest: "x", "n": "y"}) == {longest: "x", "n": "y"}

    for name in ("", longest + "n", 7, None):
        got = None if len(repr(name)) > 80 else repr(name)
        with refused("attributes", "named by 1 to 256 characters", got):
            limits.attributes({"good": "x", name: "x"})


def test_R1_values_of_attributes_are_str() -> None:
    for value in (None, 7, b"x"):
        with refused("attributes['b']", "a str", repr(value)):
            limits.attributes({"a": "x", "b": value})


def test_R34_the_limits_have_these_values() -> None:
    """They are part of the contract: to change one is to change what users may rely on."""
    assert limits.BODY_BYTES_MAX == 1_048_576
    assert limits.VISIBILITY_SECONDS_MAX == 43_200
    assert limits.DEDUPLICATION_SECONDS == 300
    assert limits.PRIORITY_MAX == 255
    assert limits.SECOND_NS == 1_000_000_000


def test_R1_text_that_utf8_cannot_carry_is_refused() -> None:
    carried = "text that UTF-8 can carry, without lone surrogates"

    assert limits.utf8_bytes("reason", "aé€") == 6
    with refused("reason", carried, repr("\ud800")):
        limits.utf8_bytes("reason", "\ud800")
    with refused("reason", carried, repr("\ud800")):
        limits.text("reason", "\ud800")
    with refused("attributes", carried, repr("\ud800")):
        limits.attributes({"\ud800": "x"})
    with refused("attributes['a']", carried, repr("\ud800")):
        limits.attributes({"a": "\ud800"})


def test_R34_a_body_and_what_travels_beside_it_share_one_limit() -> None:
    beside = {"é": "1", "b": "22"}  # 3 + 3 bytes

    limits.message_bytes("attributes", 1_994, beside, 2_000)
    limits.message_bytes("attributes", 2_000, {}, 2_000)

    together = "at most 2,000 bytes together with the body, names and values in UTF-8"
    with refused("attributes", together, "'6 bytes beside a body of 1,995'"):
        limits.message_bytes("attributes", 1_995, beside, 2_000)


def test_R1_names_with_our_prefix_are_not_for_users() -> None:
    assert limits.user_attributes(None) == {}
    assert limits.user_attributes({"tea": "Assam"}) == {"tea": "Assam"}
    for name in ("pillarbox.reply_to", "Pillarbox.x"):
        with pytest.raises(InvalidParameterError) as refused:
            limits.user_attributes({"tea": "Assam", name: "1"})
        assert str(refused.value) == (
            f"attributes must be named without the reserved prefix 'pillarbox.'; got {name!r}"
        )
    with pytest.raises(InvalidParameterError, match="a mapping of str to str"):
        limits.user_attributes([])
