"""Failed records of a pipeline in the dashboard: counted, listed, redriven."""

from __future__ import annotations

import datetime
import json
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from pillarbox import open_mailbox
from pillarbox.dashboard import Pipelines, mount
from pillarbox.log import LogReader, RealDisk
from pillarbox.pipeline.errors import PipelineError
from pillarbox.spark.table import TableLog
from pillarbox.spark.table_files import create_table
from pillarbox.testing.broker import running_broker
from tests.ui.conftest import _pipeline
from tests.ui.test_administration import post, token_of


def table(path: str, columns: dict[str, str]) -> None:
    fields = [
        {"name": name, "type": kind, "nullable": True, "metadata": {}}
        for name, kind in columns.items()
    ]
    schema = json.dumps({"type": "struct", "fields": fields})
    create_table(path, schema, columns=list(columns))


def fail(path: Path, *bodies: bytes) -> None:
    """Have these records of `orders` fail in `add_up`, as a run would note it."""
    errors = str(path / "errors" / "add_up")
    table(errors, {"log": "string", "index": "long", "output": "string", "time": "timestamp",
                   "processor": "string", "cause": "string", "body": "binary"})  # fmt: skip
    now = datetime.datetime.now(datetime.UTC)
    TableLog(errors).append(
        [
            {
                "processor": "add_up",
                "cause": f"<b>KeyError</b>: 'price' {number}",
                "log": "orders",
                "index": number,
                "output": None,
                "time": now,
                "body": body,
            }
            for number, body in enumerate(bodies)
        ],
        {},
    )


def test_R87_failed_records_are_counted_listed_and_redriven(
    browser: Browser, tmp_path: Path, pictures: Path
) -> None:
    status = _pipeline(tmp_path / "tea")
    fail(tmp_path / "tea", b'{"item": "tea"}', b"\xff\x00")
    status.of("add_up").failed = 2
    status.save()
    orders = tmp_path / "tea" / "logs" / "orders"
    with running_broker() as url:
        mount(url.broker, pipelines=Pipelines([tmp_path]))
        page = browser.new_page()
        page.on("dialog", lambda dialog: dialog.accept())
        page.goto(url)
        expect(page.locator("tr.trouble", has_text="tea")).to_contain_text("2")
        page.get_by_role("link", name="tea").click()
        page.get_by_role("link", name="2", exact=True).click()

        rows = page.locator("table.messages tbody tr")
        expect(rows).to_have_count(2)
        expect(rows.first).to_contain_text("<b>KeyError</b>: 'price' 1")  # the newest, as text
        page.screenshot(path=pictures / "failed.png")
        page.get_by_role("button", name="Redrive").click()
        expect(page.get_by_role("status")).to_have_text("Redrove 2 records.")
        page.get_by_role("button", name="Redrive").click()
        expect(page.get_by_role("status")).to_have_text("Redrove 0 records.")

        path, token = "/pipelines/tea/redrive", token_of(url)
        assert post(url, path, url, processor="add_up") == 403
        assert post(url, path, "http://evil.example", processor="add_up", token=token) == 403
        assert post(url, path, url, processor="../../x", token=token) == 404
        page.close()
    with LogReader(str(orders), RealDisk()) as log:
        assert [record.data for record in log.tailer().to_index(5).read()] == [
            b'{"item": "tea"}',
            b"\xff\x00",
        ]


def test_R87_records_of_a_typed_log_need_the_code_of_the_pipeline(tmp_path: Path) -> None:
    _pipeline(tmp_path / "tea")
    fail(tmp_path / "tea", b"{}")
    orders = tmp_path / "tea" / "logs" / "orders"
    orders.rename(tmp_path / "moved")
    table(str(orders), {"price": "long"})

    summary = Pipelines([tmp_path]).find("tea")

    assert summary is not None
    assert not summary.failures("add_up").can_redrive
    with pytest.raises(PipelineError, match="add_up --redrive"):
        summary.redrive("add_up")


def test_R87_nothing_is_appended_to_the_history_of_a_mailbox(tmp_path: Path) -> None:
    status = _pipeline(tmp_path / "tea")
    fail(tmp_path / "tea", b"{}")
    status.status.logs["orders"] = f"file:{tmp_path}/store/orders"
    status.save()
    with open_mailbox(status.status.logs["orders"], bytes) as orders:
        orders.send(b"{}")
    summary = Pipelines([tmp_path]).find("tea")
    assert summary is not None

    with pytest.raises(PipelineError, match="store/orders is a mailbox"):
        summary.redrive("add_up")

    assert not (tmp_path / "store" / "orders").exists()
