"""What users import: `__all__` tells the truth, all of it is documented, all mailboxes conform."""

from __future__ import annotations

import doctest
import importlib
import inspect
import pkgutil
import subprocess
import sys
from types import ModuleType
from typing import Any

import pytest

import pillarbox
import pillarbox.bus
import pillarbox.pipeline
import pillarbox.spark
import pillarbox.telemetry
import pillarbox.testing
import pillarbox.testing.contract
import pillarbox.worker
from pillarbox import (
    AsyncDurableMailbox,
    AsyncInMemoryMailbox,
    AsyncMailbox,
    DurableMailbox,
    InMemoryMailbox,
    Mailbox,
)
from pillarbox.testing import CollectingMailbox, FakeMailbox, NullMailbox
from pillarbox.testing.contract import MailboxContract

PUBLIC = [
    pillarbox,
    pillarbox.bus,
    pillarbox.pipeline,
    pillarbox.spark,
    pillarbox.telemetry,
    pillarbox.testing,
    pillarbox.testing.contract,
    pillarbox.worker,
]
MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(pillarbox.__path__, "pillarbox.")
    if not module.name.endswith("__main__")
)
VERBS = sorted(name for name in vars(Mailbox) if not name.startswith("_"))
MEMBERS = [*VERBS, "__enter__", "__exit__"]
HEAVY = ["boto3", "hypothesis", "psycopg", "pyarrow", "pydantic", "pyspark", "pytest", "redis"]

every_module = pytest.mark.parametrize("name", MODULES)
public_module = pytest.mark.parametrize("module", PUBLIC, ids=lambda module: module.__name__)


def public_objects() -> list[Any]:
    return [
        pytest.param(getattr(module, name), id=f"{module.__name__}.{name}")
        for module in PUBLIC
        for name in module.__all__
    ]


@public_module
def test_R9_all_names_exist_in_order_and_once(module: ModuleType) -> None:
    assert list(module.__all__) == sorted(set(module.__all__))
    assert all(hasattr(module, name) for name in module.__all__)


@public_module
def test_R9_all_leaves_no_public_name_out(module: ModuleType) -> None:
    visible = {
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and not isinstance(value, ModuleType)
    }
    assert visible <= set(module.__all__)  # that all of these exist is the test above


@pytest.mark.parametrize("thing", public_objects())
def test_R9_everything_public_has_a_docstring(thing: Any) -> None:
    assert inspect.getdoc(thing)
    if not inspect.isclass(thing) or thing is MailboxContract:  # whose methods are tests
        return
    members = [name for name in dir(thing) if not name.startswith("_")]
    ours = [
        name
        for cls in thing.__mro__
        if cls.__module__.startswith("pillarbox")
        for name, value in vars(cls).items()
        if name in members and (callable(value) or isinstance(value, property))
    ]
    assert [name for name in ours if not inspect.getdoc(getattr(thing, name))] == []


@pytest.mark.parametrize("thing", public_objects())
def test_R9_nothing_public_comes_from_somewhere_else(thing: Any) -> None:
    assert thing.__module__.startswith("pillarbox")
    assert not any(part.startswith("_") for part in thing.__module__.split("."))


@every_module
def test_R9_every_module_says_what_it_is_in_at_most_ten_lines(name: str) -> None:
    text = (importlib.import_module(name).__doc__ or "").strip()
    assert text
    prose = [
        line for line in text.splitlines() if not line.startswith(("├", "└", "│"))
    ]  # a tree is no prose
    assert len(prose) <= 10


@every_module
def test_R9_the_examples_in_docstrings_work(name: str) -> None:
    failed, _ = doctest.testmod(importlib.import_module(name))
    assert failed == 0


def test_R9_the_example_of_the_package_works() -> None:
    failed, tried = doctest.testmod(pillarbox)
    assert (failed, tried > 0) == (0, True)


def test_R30_importing_pillarbox_imports_nothing_that_is_optional_or_heavy() -> None:
    code = f"import sys, pillarbox; print([m for m in {HEAVY} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.strip() == "[]"


def test_R30_what_is_seldom_wanted_is_imported_when_it_is_asked_for() -> None:
    code = """
import sys, pillarbox
later = ["pillarbox.bus", "pillarbox.pipeline", "pillarbox.worker"]
before = [name for name in later if name in sys.modules]
from pillarbox import Dispatcher, MainLoop, MessageBus, Pipeline, RequestClient, Worker
print(before, [name for name in later if name in sys.modules] == later, "Worker" in dir(pillarbox))
try:
    pillarbox.nonsense
except AttributeError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.splitlines() == [
        "[] True True",
        "module 'pillarbox' has no attribute 'nonsense'",
    ]


@pytest.mark.parametrize("kind", [InMemoryMailbox, NullMailbox, CollectingMailbox, FakeMailbox])
def test_R9_every_mailbox_has_the_shape_of_the_protocol(kind: Any) -> None:
    assert isinstance(kind("box", str), Mailbox)


def test_R9_every_async_mailbox_has_the_shape_of_the_protocol() -> None:
    assert isinstance(AsyncInMemoryMailbox("box", str), AsyncMailbox)
    for name in VERBS:
        if name == "messages":
            assert inspect.isasyncgenfunction(AsyncInMemoryMailbox.messages)
        elif name not in ("name", "closed", "dead_letters"):
            assert inspect.iscoroutinefunction(getattr(AsyncInMemoryMailbox, name))


def test_R9_the_protocol_is_structural() -> None:
    box = InMemoryMailbox("box", str)
    assert Mailbox not in type(box).__mro__
    assert isinstance(type("Whole", (), dict.fromkeys(MEMBERS, print))(), Mailbox)
    assert not isinstance(type("Part", (), {"name": "x", "send": print})(), Mailbox)
    assert not isinstance(object(), Mailbox)


def parameters(kind: Any, verb: str) -> list[tuple[str, Any, Any]]:
    member = inspect.getattr_static(kind, verb)
    if isinstance(member, property):
        return []
    signature = inspect.signature(member)
    return [(p.name, p.kind, p.default) for p in signature.parameters.values()]


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(
    "kind",
    [InMemoryMailbox, DurableMailbox, AsyncInMemoryMailbox, AsyncDurableMailbox, AsyncMailbox],
)
def test_R9_every_verb_takes_what_the_protocol_says(kind: Any, verb: str) -> None:
    assert parameters(kind, verb) == parameters(Mailbox, verb)
