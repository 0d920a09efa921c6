"""Without an extra, whatever needs it says which pip command installs it."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from tests.environments import ROOT
from tests.install.support import run

PIPELINE = """
from pillarbox import Pipeline
pipeline = Pipeline("shop", path="./shop")
"""

WORKER = """
from pillarbox.worker import worker

@worker()
def pack(order: str) -> None: ...
"""


def advice(extra: str) -> str:
    return f"install it with: pip install 'pillarbox[{extra}]'"


@pytest.mark.parametrize("words", [["-m", "pillarbox"], ["-m", "pillarbox", "doctor"]])
def test_R22_the_command_without_its_extra_names_it(
    bare: Path, tmp_path: Path, words: list[str]
) -> None:
    code, out, err = run(bare, *words, cwd=tmp_path)
    told = "pillarbox: the pillarbox command needs cyclopts, which is not installed; "
    assert (code, out, err) == (1, "", f"{told}{advice('cli')}\n")


def test_R22_the_script_says_the_same_as_the_module(bare: Path, tmp_path: Path) -> None:
    script = run(bare, str(bare.with_name("pillarbox")), "--help", cwd=tmp_path)
    assert script == run(bare, "-m", "pillarbox", "--help", cwd=tmp_path)


@pytest.mark.parametrize(
    ("words", "extra"),
    [
        (["serve"], "broker"),
        (["dashboard", "file:./data"], "broker"),
        (["send", "redis://127.0.0.1/orders", "1"], "redis"),
        (["receive", "redis+cluster://127.0.0.1/orders"], "redis"),
        (["send", "sqs://eu-west-1/orders", "1"], "sqs"),
        (["send", "postgresql://127.0.0.1/shop/orders", "1"], "postgres"),
        (["worker", "tasks", "--mailbox", "redis://127.0.0.1/orders"], "redis"),
        (["mcp", "file:./data/orders"], "mcp"),
        (["pipeline", "run", "shop:pipeline", "--now"], "spark"),
        (["report", "file:./data/orders"], "spark"),
        (["log", "info", "s3://shop/logs/orders"], "spark"),
    ],
    ids=str,
)
def test_R22_a_command_names_the_extra_that_it_needs(
    with_cli: Path, tmp_path: Path, words: list[str], extra: str
) -> None:
    (tmp_path / "shop.py").write_text(PIPELINE)
    (tmp_path / "tasks.py").write_text(WORKER)
    code, out, err = run(with_cli, "-m", "pillarbox", *words, cwd=tmp_path)
    assert (code in (1, 2), out) == (True, "")
    assert advice(extra) in err
    assert "Traceback" not in err
    assert len([line for line in err.splitlines() if "pip install" in line]) == 1


@pytest.mark.parametrize(
    ("statement", "extra"),
    [
        ("import pillarbox.broker", "broker"),
        ("import pillarbox.dashboard", "broker"),
        ("pillarbox.open_mailbox('rediss://127.0.0.1/orders')", "redis"),
        ("pillarbox.open_async_mailbox('sqs://eu-west-1/orders')", "sqs"),
        ("pillarbox.open_mailbox('postgresql://127.0.0.1/shop/orders')", "postgres"),
        ("from pillarbox import Outbox", "postgres"),
        ("from pillarbox import RedisMailbox", "redis"),
        ("from pillarbox import SQSMailbox", "sqs"),
        ("from pillarbox.telemetry import trace", "telemetry"),
        ("from pillarbox.telemetry import measure", "telemetry"),
        ("import pillarbox.worker.tracing", "telemetry"),
        ("import pillarbox.bus.mcp_server", "mcp"),
        ("import pillarbox.log.arrow", "arrow"),
        ("from pillarbox.spark import session; session()", "spark"),
        ("pillarbox.Pipeline('shop', path='shop').run()", "spark"),
        ("from pillarbox.pipeline import sinks; sinks.delta('shop')", "spark"),
        (
            "from pillarbox.spark.files import files_at; files_at('hdfs://here:8020/a').names()",
            "hdfs",
        ),
    ],
)
def test_R22_a_program_gets_an_error_that_names_the_extra(
    bare: Path, tmp_path: Path, statement: str, extra: str
) -> None:
    code, _, err = run(bare, "-c", f"import pillarbox\n{statement}", cwd=tmp_path)
    last = err.splitlines()[-1]
    assert code == 1
    assert last.startswith("pillarbox.extras.MissingExtraError: ")
    assert last.endswith(advice(extra))


def test_R59_doctor_names_every_extra_whole(with_cli: Path, tmp_path: Path) -> None:
    _, out, _ = run(with_cli, "-m", "pillarbox", "doctor", cwd=tmp_path)
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for extra in extras["optional-dependencies"].keys() - {"cli"}:
        assert f"pip install 'pillarbox[{extra}]'" in out


@pytest.mark.parametrize("script", [False, True], ids=["module", "script"])
def test_R103_the_command_runs_in_an_install_with_cli_only(
    with_cli: Path, tmp_path: Path, script: bool
) -> None:
    pillarbox = [str(with_cli.with_name("pillarbox"))] if script else ["-m", "pillarbox"]
    (tmp_path / "tasks.py").write_text(WORKER)
    assert run(with_cli, *pillarbox, "send", "file:./data/orders", "tea", cwd=tmp_path)[0] == 0
    code, _, err = run(with_cli, *pillarbox, "worker", "tasks", cwd=tmp_path)
    assert (code, "PILLARBOX_MAILBOX" in err) == (2, True)
    code, out, _ = run(with_cli, *pillarbox, "receive", "file:./data/orders", cwd=tmp_path)
    assert (code, "tea" in out) == (0, True)
