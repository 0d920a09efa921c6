"""`pillarbox report`: what a mailbox's history tells."""

from __future__ import annotations

import datetime
import json
import math
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pillarbox import DeadLetterPolicy, DurableMailbox, Mailbox, open_mailbox
from pillarbox.cli import run as command
from pillarbox.pipeline.report import make_report, page
from pillarbox.pipeline.report.charts import line_chart
from pillarbox.pipeline.report.page import lines_of
from pillarbox.testing.broker import running_broker
from pillarbox.testing.redis import shared_server


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "store"
    live(DurableMailbox("orders", str, path=path, dead_letters=DeadLetterPolicy(2)))
    return path


@pytest.fixture(params=["a file", "a broker", "redis"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "a file":
        yield f"file:{request.getfixturevalue('store')}/orders"
    elif request.param == "redis":
        url = f"{shared_server().url}/0/report-orders"
        live(open_mailbox(url, str, journal=True, dead_letters=DeadLetterPolicy(2)))
        yield url
    else:
        with running_broker(str(tmp_path / "data"), "os") as server:
            live(open_mailbox(f"{server}/orders", str, dead_letters=DeadLetterPolicy(2)))
            yield f"{server}/orders".replace("://", "://somebody:secret@")


def live(box: Mailbox[str]) -> None:
    """Ten messages: eight done at once, one done at the second attempt, one dead."""
    box.send_many([f"order {n}" for n in range(10)])
    for message in box.receive(max_messages=10):
        if message.body in ("order 3", "order 4"):
            message.nack()
        else:
            message.acknowledge()
    for message in box.receive(max_messages=10):
        if message.body == "order 3":
            message.acknowledge()
        else:
            message.nack()
    box.close()


def test_R74_a_report_counts_and_times_the_life_of_messages(
    url: str, spark: Any, tmp_path: Path
) -> None:
    report = make_report(spark, url, tmp_path / "out")
    assert report.url == url.replace("somebody:secret@", "")
    (queue,) = report.queues
    counts = {name: queue[name] for name in ("sent", "delivered", "acknowledged")}
    assert counts == {"sent": 10, "delivered": 12, "acknowledged": 9}
    assert (queue["redelivered"], queue["died"]) == (2, 1)
    assert 0 <= queue["waited_ms_p50"] <= queue["waited_ms_p99"] <= queue["waited_ms_max"] < 60_000
    assert 0 <= queue["worked_ms_p50"] <= queue["worked_ms_max"] < 60_000
    assert sum(each["sent"] for each in report.minutes) == 10
    assert [each["messages"] for each in report.reasons] == [1]
    assert report.reasons[0]["reason"]
    tables = {each.name for each in (tmp_path / "out").iterdir()}
    assert tables == {"queues.parquet", "minutes.parquet", "reasons.parquet"}
    html = page(report, datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC))
    assert html.count("<svg") == 3
    assert "Dead letters by reason" in html
    loads = re.findall(r"(?:src|href)=|https?:", html.replace(report.url, ""))
    assert loads == []


def test_R74_the_figures_are_those_of_a_naive_computation(spark: Any, tmp_path: Path) -> None:
    for name in ("orders", "mails"):
        box = DurableMailbox(name, int, path=tmp_path / "store", dead_letters=DeadLetterPolicy(2))
        box.send_many(range(60))
        while messages := box.receive(max_messages=7):
            time.sleep(0.002)  # the work; deliveries are written with what comes after them
            for message in messages:
                if message.body % 5 == 0:
                    message.nack()
                else:
                    message.acknowledge()
        box.close()
    url = f"file:{tmp_path}/store"
    report = make_report(spark, url, tmp_path / "out", every="1 second")
    schema = "index BIGINT, queue STRING, id STRING, kind STRING, time TIMESTAMP"
    schema += ", enqueued_at TIMESTAMP, details STRING"
    history = spark.read.format("pillarbox").schema(schema).load(url)
    found = {each["queue"]: each for each in report.queues}
    assert found == naive(history.collect())
    assert all(each["worked_ms_p50"] >= 2 for each in found.values())
    for name in ("sent", "delivered", "acknowledged", "redelivered", "died"):
        assert sum(each[name] for each in report.minutes) == sum(x[name] for x in report.queues)


def naive(events: list[Any]) -> dict[str, dict[str, Any]]:
    """The same figures, a step an event."""
    found: dict[str, dict[str, Any]] = {}
    leases: dict[str, list[int]] = {}
    counted = {"sent": "sent", "leased": "delivered", "acknowledged": "acknowledged"}
    for each in sorted(events, key=lambda each: each["index"]):
        if each.kind not in (*counted, "returned", "died", "died_in_line"):
            continue
        zeros: dict[str, Any] = dict.fromkeys([*counted.values(), "redelivered", "died"], 0)
        queue = found.setdefault(each.queue, zeros | {"waited": [], "worked": []})
        if each.kind in counted:
            queue[counted[each.kind]] += 1
        if each.kind == "leased":
            at = json.loads(each.details)[2] // 1000
            before = leases.setdefault(each.id, [])
            queue["redelivered"] += bool(before)
            if not before:
                queue["waited"].append(max(0, at - micros(each.enqueued_at)))
            before.append(at)
        if each.kind == "acknowledged":
            queue["worked"].append(micros(each.time) - leases[each.id][-1])
        queue["died"] += each.kind in ("died", "died_in_line")
    for name, queue in found.items():
        queue["queue"] = name
        for kind in ("waited", "worked"):
            times = sorted(each / 1000 for each in queue.pop(kind))
            for label, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("max", 1.0)):
                rank = max(0, math.ceil(share * len(times)) - 1)
                queue[f"{kind}_ms_{label}"] = times[rank] if times else None
    return found


def micros(when: datetime.datetime) -> int:
    return round(when.timestamp() * 1_000_000)


def test_R74_the_command_writes_a_page(
    store: Path, spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "written"
    assert command(["report", str(store), "--out", str(out), "--every", "1 hour"]) == 0
    assert "report.html" in capsys.readouterr().out
    html = (out / "report.html").read_text()
    assert "<h2>orders</h2>" in html
    assert command(["report", str(tmp_path / "nowhere"), "--out", str(out)]) == 1
    assert "nowhere" in capsys.readouterr().err


def test_R74_a_step_in_which_nothing_happened_is_drawn_as_such() -> None:
    start = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    rows = [{"minute": start + datetime.timedelta(minutes=n), "sent": 7} for n in (0, 1, 5)]
    minute = datetime.timedelta(minutes=1)
    drawn = lines_of(rows, {"sent": "sent"}, minute, 0)["sent"]
    assert [((at - start) // minute, count) for at, count in drawn] == [
        (0, 7),
        (1, 7),
        (2, 0),
        (4, 0),
        (5, 7),
    ]


def test_R74_names_are_escaped_on_the_page() -> None:
    chart = line_chart("<b>", "ms", {"<i>": [(datetime.datetime.now(datetime.UTC), 1.0)]})
    assert "<b>" not in chart
    assert "<i>" not in chart


@pytest.mark.parametrize("top", [0.0, 0.3, 1.0, 7.0, 12345.0])
def test_R74_a_chart_has_room_for_its_highest_value(top: float) -> None:
    start = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    points = [(start + datetime.timedelta(minutes=n), top) for n in range(3)]
    drawn = line_chart("t", "ms", {"a": points})
    heights = [float(y) for y in re.findall(r"[ML][\d.]+ ([\d.]+)", drawn.split("grid")[-1])]
    assert all(26 <= y <= 190 for y in heights)
