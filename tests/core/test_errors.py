"""The error tree (R22): what each is, and says."""

from __future__ import annotations

import copy

import pytest

from pillarbox.core import errors
from pillarbox.core.errors import InvalidParameterError, MailboxError

RETRYABLE = {
    "MailboxError": False,
    "InvalidParameterError": False,
    "SerializationError": False,
    "ReceiptHandleExpiredError": False,
    "RequestRejectedError": False,
    "MailboxFullError": True,
    "MailboxClosedError": False,
    "ReentrantCallError": False,
    "MailboxStorageError": False,
    "MailboxConnectionError": True,
    "UnknownOutcomeError": False,
}


@pytest.mark.parametrize("name", RETRYABLE)
def test_R22_each_error_says_whether_the_call_may_succeed_later(name: str) -> None:
    kind = getattr(errors, name)

    assert issubclass(kind, MailboxError)
    assert kind.retryable is RETRYABLE[name]


def test_R22_the_table_names_every_error() -> None:
    defined = {name for name, each in vars(errors).items() if isinstance(each, type)}

    assert defined == set(RETRYABLE)


def test_R22_an_invalid_parameter_is_named_with_its_range() -> None:
    error = InvalidParameterError("priority", 256, "a whole number from 0 to 255")

    assert str(error) == "priority must be a whole number from 0 to 255; got 256"
    assert (error.parameter, error.value, error.allowed) == (
        "priority",
        256,
        "a whole number from 0 to 255",
    )
    assert isinstance(error, ValueError)


def test_R22_a_long_value_is_cut_in_the_message() -> None:
    just_fits = InvalidParameterError("body", "x" * 78, "shorter")
    too_long = InvalidParameterError("body", "x" * 79, "shorter")

    assert str(just_fits) == f"body must be shorter; got {'x' * 78!r}"
    assert str(too_long) == f"body must be shorter; got '{'x' * 79}... (str)"


def test_R22_an_invalid_parameter_survives_being_copied_and_sent_to_another_process() -> None:
    error = InvalidParameterError("priority", 256, "from 0 to 255")

    again = copy.copy(error)  # by the same protocol

    assert type(again) is InvalidParameterError
    assert str(again) == str(error)
    assert (again.parameter, again.value, again.allowed) == ("priority", 256, "from 0 to 255")


def test_R21_a_rejected_request_keeps_its_reason_when_it_is_copied() -> None:
    error = errors.RequestRejectedError("7", "orders", "out of stock")
    again = copy.copy(error)
    assert str(again) == "request 7 to mailbox 'orders' was dead-lettered: out of stock"
    assert (again.request_id, again.mailbox, again.reason) == ("7", "orders", "out of stock")
