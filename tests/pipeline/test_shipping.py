"""What travels to executors. No Spark."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pillarbox.pipeline import Pipeline
from pillarbox.pipeline.references import modules_of
from pillarbox.spark.shipping import archives

MODULE = """
from msgspec import Struct

class Order(Struct):
    number: int

def all_of_them(orders):
    return orders
"""


def is_module(path: str) -> bool:
    return path.endswith(".py")


def test_R81_modules_of_functions_and_types_travel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "shop_to_ship"
    (package / "inner").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "inner" / "__init__.py").write_text(MODULE)
    (tmp_path / "single_to_ship.py").write_text(f"import beside_to_ship{MODULE}")
    (tmp_path / "beside_to_ship.py").write_text("RATE = 2")
    (tmp_path / "never_loaded.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    import single_to_ship as single  # type: ignore[import-not-found]
    from shop_to_ship import inner  # type: ignore[import-not-found]

    pipeline = Pipeline("p", path=tmp_path / "p")
    pipeline.log("a", inner.Order)
    pipeline.log("b", str)
    pipeline.stream(inputs="a", outputs="b")(single.all_of_them)
    known = {"shop_to_ship", "single_to_ship", "beside_to_ship"}
    assert modules_of(pipeline.graph) == known
    (tmp_path / "out").mkdir()
    files = sorted(archives({"pillarbox"} | known, f"{tmp_path}/out"), key=is_module)
    # Another interpreter, without this path, can use them.
    code = f"import sys; sys.path[:0] = {files[:2]!r} + [{str(Path(files[2]).parent)!r}]\n"
    code += "import shop_to_ship.inner, single_to_ship, pillarbox\n"
    code += "assert pillarbox.__file__.startswith(sys.path[0]), pillarbox.__file__"
    subprocess.run([sys.executable, "-c", code], check=True, cwd="/")
