"""A check that can't fail is no check: broken mailboxes must be found out, each by its case."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

import pytest

from pillarbox.testing.contract import Capability, MailboxContract
from pillarbox.testing.contract.backend import needed_by
from tests.contract.defects import DECLARATION_CASE, DEFECTS, PRIORITY_CASE, Defect

HERE = Path(__file__).parent
ROOT = HERE.parents[1]

# R25 is about the doubles for tests; the rest of section A and these others are in the suite.
ROWS = [f"R{number}" for number in (*range(1, 25), 36, 37, 38, 39, 40, 110, 151)]

Outcomes = dict[tuple[str, str], tuple[str, str]]


def cases() -> list[str]:
    return [name for name in dir(MailboxContract) if name.startswith("test_")]


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    """(class, case) -> how it ended and why, from one run of the broken mailboxes."""
    report = tmp_path_factory.mktemp("defects") / "report.xml"
    command = ["-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}"]
    done = subprocess.run(
        [sys.executable, *command, str(HERE / "defects.py")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == pytest.ExitCode.TESTS_FAILED, done.stdout + done.stderr
    return {
        (case.attrib["classname"].rpartition(".")[2], case.attrib["name"]): _outcome(case)
        for case in ElementTree.parse(report).iter("testcase")
    }


def _outcome(case: ElementTree.Element) -> tuple[str, str]:
    for ending in case:
        if ending.tag in ("failure", "error", "skipped"):
            return ending.tag, ending.attrib["message"]
    return "passed", ""


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.face.__name__)
def test_R37_a_broken_mailbox_is_found_out(defect: Defect, outcomes: Outcomes) -> None:
    ending, why = outcomes[f"Test{defect.face.__name__}", defect.found_by]
    assert ending == "failure"
    assert why.startswith(("AssertionError", "assert", "Failed: ")), "it broke in another way"


def test_R37_a_sound_mailbox_passes_the_same_cases(outcomes: Outcomes) -> None:
    for defect in DEFECTS:
        assert outcomes["TestSound", defect.found_by] == ("passed", "")


def test_R37_what_is_declared_is_reported_with_its_reason(outcomes: Outcomes) -> None:
    ending, why = outcomes["TestUnwilling", PRIORITY_CASE]
    assert ending == "skipped"
    assert why.startswith("declared: unwilling can't deliver higher priorities first")
    assert why.endswith("it treats everyone alike")
    assert outcomes["TestUnwilling", DECLARATION_CASE] == ("passed", "")


def test_R37_a_declaration_without_a_reason_is_an_error(outcomes: Outcomes) -> None:
    ending, _ = outcomes["TestCareless", DECLARATION_CASE]
    assert ending == "failure"


def test_R37_the_suite_has_at_least_150_cases() -> None:
    assert len(cases()) >= 150


@pytest.mark.parametrize("row", ROWS)
def test_R37_every_row_has_a_case(row: str) -> None:
    assert any(case.startswith(f"test_{row}_") for case in cases())


def test_R37_every_case_is_named_for_a_row() -> None:
    assert {case.split("_")[1] for case in cases()} <= set(ROWS)


def test_R37_no_case_hides_another() -> None:
    names = Counter(
        name for theme in MailboxContract.__bases__ for name in vars(theme) if name[:5] == "test_"
    )
    assert [name for name, count in names.items() if count > 1] == []
    assert len(names) == len(cases())


@pytest.mark.parametrize("capability", Capability)
def test_R37_every_capability_is_asked_for_by_some_case(capability: Capability) -> None:
    assert any(capability in needed_by(getattr(MailboxContract, case)) for case in cases())
