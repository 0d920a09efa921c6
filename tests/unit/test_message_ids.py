"""Message ids are UUIDs that lead back to their message."""

from __future__ import annotations

import uuid

import pytest

from pillarbox.mailbox.message_ids import MessageIds

PREFIX = "0123456789abcdef-"


@pytest.mark.parametrize("key", [0, 1, (1 << 48) - 1, 1 << 48, 890_123_456_789_012_345, 2**62 - 1])
def test_R150_an_id_is_a_uuid_of_version_4_and_gives_its_key_back(key: int) -> None:
    ids = MessageIds(PREFIX)
    text = ids.of(key)
    known = uuid.UUID(text)
    assert (str(known), known.version, known.variant) == (text, 4, uuid.RFC_4122)
    assert text.startswith("01234567-89ab-4cde-")
    assert ids.key_of(text) == key


def test_R150_ids_sort_by_age() -> None:
    ids = MessageIds(PREFIX)
    keys = [5, 1 << 47, 1 << 48, 1 << 50, 1 << 60, 1 << 61]
    assert sorted(map(ids.of, keys)) == list(map(ids.of, keys))


def test_R150_the_ids_of_a_batch_are_those_of_its_messages() -> None:
    ids = MessageIds(PREFIX)
    start = (1 << 48) - 70_000
    for keys in (range(start, start + 140_000), [7, 5, 1 << 50], range(0)):
        assert ids.of_all(keys) == [ids.of(key) for key in keys]


@pytest.mark.parametrize(
    "text",
    ["", "x", "0" * 36, PREFIX + "5", "01234567-89AB-4CDE-8000-000000000005", str(uuid.uuid4())],
)
def test_R150_the_id_of_another_store_has_no_key(text: str) -> None:
    assert MessageIds(PREFIX).key_of(text) is None
