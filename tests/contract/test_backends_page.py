"""R37: the documentation shows what each backend declares that it can't do."""

from __future__ import annotations

from pathlib import Path

from pillarbox.testing.contract import Capability
from tests.contract.backends.page import COLUMNS, HIDDEN, page

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "backends.md"


def test_R37_the_page_of_backends_is_up_to_date() -> None:
    assert PAGE.read_text() == page(), (
        "run: python -m tests.contract.backends.page > docs/reference/backends.md"
    )


def test_R37_every_declaration_is_on_the_page_with_its_reason() -> None:
    lines = page().splitlines()
    for column in COLUMNS:
        for capability, reason in column.cannot.items():
            if capability not in HIDDEN:
                (line,) = [each for each in lines if each.endswith(f"{capability.value}: {reason}")]
                assert column.title in line.partition(" can't ")[0]


def test_R37_only_what_concerns_tests_is_hidden() -> None:
    assert {Capability.TIME_TRAVEL} == HIDDEN
