"""The Grafana dashboard, the alert rules and the Compose file fit the broker as it is."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from pillarbox import open_mailbox
from pillarbox.broker.errors import KINDS
from pillarbox.testing.broker import running_broker
from pillarbox.worker.health import metrics
from pillarbox.worker.stats import WorkerStats
from pillarbox.worker.supervisor import Status

DEPLOY = Path(__file__).parents[2] / "deploy"
ADDED = {"instance", "job", "le"}  # labels that Prometheus adds, and the bounds of histograms


@pytest.fixture(scope="module")
def series() -> dict[str, set[str]]:
    """The names of all series that a broker and a worker expose, with their labels."""
    with running_broker() as url:
        with open_mailbox(f"{url}/orders", str) as box:
            box.send("tea")
            (message,) = box.receive()
            message.acknowledge()
        with urllib.request.urlopen(f"{url}/metrics") as answer:
            text = answer.read().decode()
    workers = {"shop:pack": WorkerStats("parcels")}
    text += metrics(Status("ready", 1, 1, 0, "", workers)) + "\n"
    found = {
        sample.name: set(sample.labels)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    return found | {"pillarbox_errors_total": {"code"}, "up": set()}  # no error was answered


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def dashboard() -> dict[str, Any]:
    text = (DEPLOY / "grafana" / "dashboards" / "pillarbox.json").read_text()
    found: dict[str, Any] = json.loads(text)
    return found


def expressions() -> Iterator[str]:
    yield from (rule["expr"] for rule in rules())
    for panel in dashboard()["panels"]:
        yield from (target["expr"] for target in panel.get("targets", ()))
    for variable in dashboard()["templating"]["list"]:
        if variable["type"] == "query":
            name, label = re.findall(r"\w+", variable["query"]["query"])[1:]
            yield f'{name}{{{label}=""}}'


def unknown(expression: str, series: dict[str, set[str]]) -> list[str]:
    """What an expression names that the broker does not have: series, and labels of series."""
    found = []
    for name, matchers in re.findall(r"\b(pillarbox_\w+|up)\b(?:\{(.*?)\})?", expression):
        labels = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", matchers))
        if name not in series:
            found.append(name)
        elif not labels <= series[name] | ADDED:
            found.append(f"{name}: {labels}")
    grouped = re.findall(r"by \((.*?)\)", expression)
    every = set().union(*series.values(), ADDED)
    return found + [label for each in grouped for label in each.split(", ") if label not in every]


def test_R59_alerts_and_dashboard_use_metrics_that_exist(series: dict[str, set[str]]) -> None:
    seen = list(expressions())
    assert len(seen) > 25
    for expression in seen:
        assert unknown(expression, series) == [], expression


def test_R59_control_a_metric_that_does_not_exist_is_found(series: dict[str, set[str]]) -> None:
    assert unknown("rate(pillarbox_messages_lost_total[5m])", series)
    assert unknown('pillarbox_messages{colour="red"}', series)
    assert unknown("sum by (colour) (pillarbox_messages)", series)


def test_R59_alerts_name_error_codes_that_the_broker_answers() -> None:
    codes = {kind.code for kind in KINDS.values()}
    named = re.findall(r'code=~?"(.*?)"', " ".join(rule["expr"] for rule in rules()))
    assert named
    assert {code for each in named for code in each.split("|")} <= codes


def test_R59_the_dashboard_is_one_that_grafana_can_lay_out() -> None:
    panels = dashboard()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24
        cells = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
        assert not cells & taken, panel["title"]
        taken |= cells


@pytest.mark.parametrize(
    "check",
    [
        ["check", "rules", DEPLOY / "prometheus" / "alerts.yml"],
        ["check", "config", "--syntax-only", DEPLOY / "prometheus" / "prometheus.yml"],
        ["test", "rules", Path(__file__).parent / "alerts_test.yml"],  # which alerts fire
    ],
    ids=["rules", "config", "alerts"],
)
def test_R59_prometheus_accepts_the_rules(check: list[str | Path]) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool (of the package prometheus) is not installed here")
    done = subprocess.run([promtool, *check], capture_output=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


# -- Compose -----------------------------------------------------------------------------------


def compose() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yml").read_text())
    return found


def test_R59_compose_mounts_files_that_exist_and_volumes_that_it_declares() -> None:
    file = compose()
    for service in file["services"].values():
        for volume in service["volumes"]:
            source = volume.split(":")[0]
            if source.startswith("."):
                assert (DEPLOY / source).is_dir(), source
            else:
                assert source in file["volumes"]
    built = file["services"]["broker"]["build"]
    assert (DEPLOY / built["context"] / built["dockerfile"]).is_file()


def test_R59_compose_gives_no_service_more_than_it_needs() -> None:
    for name, service in compose()["services"].items():
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert all(port.startswith("127.0.0.1:") for port in service["ports"]), name
    user = re.search(r"^USER (\d+)$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
    assert user is not None
    shared = yaml.safe_load((DEPLOY / "shared" / "compose.yml").read_text())
    for file in (compose(), shared):
        broker = file["services"]["broker"]
        assert broker["read_only"] is True
        assert broker["cap_drop"] == ["ALL"]
        assert broker["user"].split(":")[0] == user[1]


def test_R59_prometheus_scrapes_the_broker_of_the_compose_file() -> None:
    config = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())
    job = config["scrape_configs"][0]
    host, _, port = job["static_configs"][0]["targets"][0].partition(":")
    assert host in compose()["services"]
    assert f"EXPOSE {port}" in (DEPLOY / "Dockerfile").read_text()
    secret = Path(job["basic_auth"]["password_file"]).name
    assert secret in compose()["secrets"]
    assert f"{job['basic_auth']['username']}:" in (DEPLOY / "compose.yml").read_text()
    assert all((DEPLOY / "prometheus" / name).is_file() for name in config["rule_files"])
