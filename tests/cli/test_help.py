"""Every command explains itself on one screen, with an example; shells complete them all."""

from __future__ import annotations

import itertools
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from cyclopts import App

from pillarbox.cli import app, run
from tests.cli.support import pillarbox

SCREEN_LINES, SCREEN_COLUMNS = 40, 100


def commands(of: App = app, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield path
    for name in of:
        if not name.startswith("-"):
            yield from commands(of[name], (*path, name))


@pytest.mark.parametrize("path", list(commands()), ids=lambda path: " ".join(path) or "pillarbox")
def test_R36_help_fits_a_screen_and_gives_an_example(
    path: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(SCREEN_COLUMNS))
    lines = pillarbox(*path, "--help").stdout.splitlines()
    assert len(lines) <= SCREEN_LINES
    assert max(map(len, lines)) <= SCREEN_COLUMNS
    command = " ".join(["pillarbox", *path])
    assert any("Example: " in line and command in line for line in lines)


def test_R36_every_example_in_a_help_is_a_command_that_is_understood(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Parsed, not run: an example with a wrong flag would be refused."""
    monkeypatch.setenv("COLUMNS", "300")
    seen = 0
    for path in commands():
        for line in pillarbox(*path, "--help").stdout.splitlines():
            _, found, example = line.partition("Example: pillarbox ")
            if found:
                words = shlex.split(example.partition(" && ")[0])
                app.parse_args(words, exit_on_error=False, print_error=False)
                seen += 1
    assert seen >= 30


def test_R36_the_exit_codes_are_listed_and_kept(capsys: pytest.CaptureFixture[str]) -> None:
    shown = pillarbox("--help").stdout
    for code in ("0 success", "1 failure", "2 wrong usage", "130 Ctrl-C"):
        assert code in " ".join(shown.split())
    assert run(["nonsense"]) == 2
    assert run(["log", "info", "/nowhere/at/all"]) == 1
    capsys.readouterr()


def test_R36_bash_completes_commands_and_flags(tmp_path: Path) -> None:
    bash = shutil.which("bash")
    assert bash is not None
    (tmp_path / "script").write_text(pillarbox("completion", "bash").stdout)

    def completed(*words: str) -> set[str]:
        line = " ".join(f"'{word}'" for word in words)
        asked = (
            f"source {tmp_path}/script; COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; "
            'f=$(complete -p pillarbox | sed "s/.*-F \\([^ ]*\\).*/\\1/"); '
            f'"$f" pillarbox "{words[-1]}" "{words[-2]}"; printf "%s\\n" "${{COMPREPLY[@]}}"'
        )
        done = subprocess.run(
            [bash, "-c", asked], capture_output=True, text=True, check=True, timeout=30
        )
        return {each.strip() for each in done.stdout.split()}

    assert completed("pillarbox", "do") == {"doctor"}
    assert completed("pillarbox", "queue", "p") == {"pause", "purge"}
    assert "--durability" in completed("pillarbox", "serve", "--du")


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_R36_the_other_shells_are_told_every_command(shell: str) -> None:
    script = pillarbox("completion", shell).stdout
    for name in (path[-1] for path in commands() if path):
        assert name in script
    program = shutil.which(shell)
    if program is not None:  # read by the shell itself, where there is one
        subprocess.run([program, "-n"], input=script, text=True, check=True, timeout=30)


def test_R36_no_colour_where_no_colour_is_wanted(tmp_path: Path) -> None:
    """On a terminal there are colours, and with NO_COLOR there are none."""
    script = shutil.which("script")
    if script is None:
        pytest.skip("script(1) is not installed here")
    command = f"{sys.executable} -m pillarbox.cli doctor --data {tmp_path}"

    def shown(variables: str) -> str:
        done = subprocess.run(
            [script, "-qec", f"env TERM=xterm-256color {variables} {command}", "/dev/null"],
            capture_output=True, text=True, check=False, timeout=100,
        )  # fmt: skip
        return done.stdout

    assert "\x1b[32m" in shown("COLUMNS=120")
    assert "\x1b[3" not in shown("COLUMNS=120 NO_COLOR=1")


@pytest.mark.parametrize("width", [60, 80, 120])
def test_R36_the_terminal_breaks_the_lines_of_a_help_text(
    width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A word stands on the next line only if it did not fit."""
    monkeypatch.setenv("COLUMNS", str(width))
    shown = pillarbox("move", "--help").stdout
    paragraph = shown.split("\n\n")[2].splitlines()
    for line, following in itertools.pairwise(paragraph):
        assert len(line.rstrip()) + 1 + len(following.split()[0]) > width - 1, line
