"""R34, R36: where a queue is, however a user writes it."""

from __future__ import annotations

from typing import Any

import pytest

from pillarbox import DeadLetterPolicy, InvalidParameterError
from pillarbox.mailbox.sqs.address import QueueAddress, address_of

PLACES = {
    "orders": QueueAddress("orders"),
    "orders.fifo": QueueAddress("orders.fifo"),
    "arn:aws:sqs:eu-west-1:123456789012:orders": QueueAddress(
        "orders", "eu-west-1", "123456789012"
    ),
    "sqs://eu-west-1/orders": QueueAddress("orders", "eu-west-1"),
    "sqs:///orders": None,
    "sqs://eu-west-1/123456789012/orders": QueueAddress("orders", "eu-west-1", "123456789012"),
    "sqs+http://127.0.0.1:9324/orders": QueueAddress("orders", endpoint="http://127.0.0.1:9324"),
    "sqs+https://queues.example/orders": QueueAddress("orders", endpoint="https://queues.example"),
    "sqs+http://[::1]:9324/1/orders": QueueAddress("orders", None, "1", "http://[::1]:9324"),
    "https://sqs.eu-west-1.amazonaws.com/123456789012/orders": QueueAddress(
        "orders",
        "eu-west-1",
        "123456789012",
        None,
        "https://sqs.eu-west-1.amazonaws.com/123456789012/orders",
    ),
    "http://localhost:9324/000000000000/orders": QueueAddress(
        "orders",
        None,
        "000000000000",
        "http://localhost:9324",
        "http://localhost:9324/000000000000/orders",
    ),
    "": None,
    "no name": None,
    "a/b": None,
    "redis://host/orders": None,
    "sqs://eu-west-1": None,
    "sqs://eu-west-1/": None,
    "sqs://eu-west-1/a/b/c": None,
    "sqs+http://host:9324/no name": None,
    "arn:aws:sns:eu-west-1:123456789012:orders": None,
    "arn:aws:sqs:orders": None,
}


@pytest.mark.parametrize(("where", "place"), PLACES.items(), ids=PLACES.keys())
def test_R34_a_queue_is_found_by_name_arn_or_url(where: str, place: QueueAddress | None) -> None:
    if place is not None:
        assert address_of(where) == place
        return
    with pytest.raises(InvalidParameterError) as refused:
        address_of(where)
    assert refused.value.parameter == "name"


@pytest.mark.parametrize("where", [None, 7, b"orders"])
def test_R34_what_is_no_text_names_no_queue(where: Any) -> None:
    with pytest.raises(InvalidParameterError):
        address_of(where)


def test_R39_the_dead_letters_of_a_fifo_queue_are_fifo() -> None:
    assert DeadLetterPolicy().queue_of("orders") == "orders_dlq"
    assert DeadLetterPolicy().queue_of("orders.fifo") == "orders_dlq.fifo"
