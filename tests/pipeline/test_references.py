"""R81: functions and types reach workers that can't import the modules they are of."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from pyspark import cloudpickle

from pillarbox.pipeline.references import Carried, carried, files_of, resolved

SHOP = """
import msgspec
import {package}.prices

class Order(msgspec.Struct):
    amount: int

def double(order):
    return Order(order.amount * {package}.prices.RATE)

def closure(factor):
    return lambda order: Order(order.amount * factor)
"""
WORKER = """
import sys
from pyspark import cloudpickle
from pillarbox.pipeline.references import resolved
for _ in range(2):
    things = cloudpickle.loads(bytes.fromhex(sys.argv[1]))
    order, double, triple = map(resolved, things)
    print(double(order(21)).amount, triple(order(7)).amount)
"""


@pytest.mark.parametrize("package", ["carried_package", "carried_flat"])
def test_R81_what_is_carried_needs_no_module_there(
    package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / package).mkdir()
    (tmp_path / package / "__init__.py").write_text("")
    (tmp_path / package / "prices.py").write_text("RATE = 2")
    flat = package == "carried_flat"
    name = "carried_shop" if flat else f"{package}.shop"
    (tmp_path / f"{name.replace('.', '/')}.py").write_text(SHOP.format(package=package))
    module = __import__(name, fromlist=["Order"])
    files = files_of({package, name} if flat else {package})
    assert set(files) == {f"{package}.zip"} | ({"carried_shop.py"} if flat else set())
    things = [carried(each, files) for each in (module.Order, module.double, module.closure(6))]
    sent = cloudpickle.dumps(things).hex()
    done = subprocess.run(
        [sys.executable, "-c", WORKER, sent], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["42", "42"] * 2


def test_R81_without_its_files_it_is_not_found_there() -> None:
    """The control: it is the files that make the difference."""
    made = Carried(b"\x80\x04\x8c\x07no_suchq\x00\x8c\x03oneq\x01\x93.", {})
    with pytest.raises(ModuleNotFoundError):
        resolved(made)
