"""R22: an option that makes no sense is refused by name before anything is created."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pillarbox import DeadLetterPolicy, InvalidParameterError, open_async_mailbox, open_mailbox
from pillarbox.mailbox.memory import shared_store

BAD: list[tuple[str, Any]] = [
    ("create", "no"),
    ("dead_letters", 3),
    ("dead_letters", "orders_dlq"),
    ("fair", 1),
    ("segment_bytes", "8192"),
    ("segment_bytes", 8_191),
    ("segment_bytes", 1e6),
    ("history", True),
    ("retry_seconds", "1"),
    ("retry_seconds", -1),
    ("retry_seconds", float("nan")),
    ("replica_seconds", None),
    ("journal", "yes"),
    ("pooler", 0),
]
BAD_ON_POSTGRESQL: list[tuple[str, Any]] = [("history", "no"), ("history", None)]
FILES = ("segment_bytes", "history")


def url_for(option: str, directory: Path) -> str:
    if option in FILES:
        return f"file:{directory}/orders"
    if option == "pooler":
        return "postgresql://127.0.0.1:1/postgres/orders"
    return "redis://127.0.0.1:1/orders"


@pytest.mark.parametrize("open_it", [open_mailbox, open_async_mailbox])
@pytest.mark.parametrize(("option", "value"), BAD)
def test_R22_a_bad_option_is_refused_by_name(
    option: str, value: Any, open_it: Any, tmp_path: Path
) -> None:
    with pytest.raises(InvalidParameterError) as raised:
        open_it(url_for(option, tmp_path), str, **{option: value})
    assert raised.value.parameter == option
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("option", "value"), BAD_ON_POSTGRESQL)
def test_R22_a_bad_option_of_postgresql_is_refused_by_name(option: str, value: Any) -> None:
    with pytest.raises(InvalidParameterError) as raised:
        open_mailbox(url_for("pooler", Path()), str, **{option: value})
    assert raised.value.parameter == option


@pytest.mark.parametrize(
    ("query", "parameter"),
    [
        ("capacity=many", "capacity"),
        ("create=ture", "create"),
        ("retry_seconds=soon", "retry_seconds"),
        ("nonsense=1", "url"),
        ("protocol=4", "url"),
    ],
)
def test_R36_a_bad_option_in_a_url_is_refused_by_name(query: str, parameter: str) -> None:
    with pytest.raises(InvalidParameterError) as raised:
        open_mailbox(f"redis://127.0.0.1:1/orders?{query}", str)
    assert raised.value.parameter == parameter


@pytest.mark.parametrize(
    "url", ["redis://app:secret@host:port/orders", "redis+cluster://app:secret@host:port/orders"]
)
def test_R36_a_bad_port_of_redis_is_refused_without_the_password(url: str) -> None:
    with pytest.raises(InvalidParameterError, match="redis://host/name") as raised:
        open_mailbox(url, str)
    assert "secret" not in str(raised.value)


def test_R39_a_bad_name_of_a_dead_letter_queue_creates_no_queue() -> None:
    with pytest.raises(InvalidParameterError):
        open_mailbox("memory:half-made", dead_letters=DeadLetterPolicy(3, "two words"))
    assert "half-made" not in shared_store.sessions
