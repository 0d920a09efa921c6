"""What an operator must not be told wrongly, and must not have to look for."""

from __future__ import annotations

import datetime
import json
import re
from pathlib import Path
from typing import Any

import boto3
import pytest
from playwright.sync_api import Browser, Page, expect

from pillarbox import open_mailbox
from pillarbox.dashboard import Pipelines, mailboxes, mount, render
from pillarbox.dashboard.samples import Row, Table
from pillarbox.mailbox.protocol import Stats
from pillarbox.pipeline.paths import Paths
from pillarbox.pipeline.running import acquire_run
from pillarbox.testing.broker import running_broker
from tests.ui.conftest import Scene, _pipeline
from tests.ui.test_failed_records import fail

DRAWN = """window.drawn = [];
const plain = CanvasRenderingContext2D.prototype.fillText;
CanvasRenderingContext2D.prototype.fillText = function (text, ...rest) {
  window.drawn.push(text);
  return plain.call(this, text, ...rest);
};"""


def dead(scene: Scene, name: str, *bodies: str) -> Any:
    """A queue whose messages are all dead letters."""
    box = open_mailbox(f"{scene.url}/{name}", str)
    box.send_many(list(bodies))
    for _ in range(5):
        box.nack_many(box.receive(max_messages=10))
    return box


def rows(row: Row) -> str:
    table = Table([row], 1, "", "", {})
    values = {"table": table, "root": "", "token": "", "read_only": False}
    return re.sub(r"<[^>]*>|\s+", " ", render.fragment("rows.html", **values))


def test_R59_an_old_message_and_dead_letters_are_two_warnings() -> None:
    stats = Stats(ready=4, scheduled=0, in_flight=0, dead=1, oldest_age_seconds=600)

    text = " ".join(rows(Row("mail", stats, "mail_dlq", paused=False)).split())

    assert "1 dead letter in mail_dlq" in text
    assert "the oldest message has waited for 10 min" in text


@pytest.mark.parametrize("step", [5, 30, 60, 90, 600])
def test_R59_the_labels_of_an_axis_are_short(page: Page, scene: Scene, step: int) -> None:
    count = 18
    before = [-step * (count - 1 - number) for number in range(count)]
    series = json.dumps([before, *([1] * count for _ in range(5))])
    page.add_init_script(DRAWN)
    page.route("**/series*", lambda route: route.fulfill(body=series))

    page.goto(f"{scene.url}/dashboard/queues/orders")
    page.wait_for_function("window.drawn.includes('now')")

    labels = [text for text in page.evaluate("window.drawn") if re.search("[a-z]", text)]
    assert len(set(labels)) > 2
    assert [text for text in labels if not re.fullmatch(r"now|-\d{1,3} (s|min|h)", text)] == []


def test_R59_the_rows_of_a_chart_as_a_table_have_headings_of_their_own() -> None:
    assert [render.before(seconds) for seconds in (0, 30, 60, 90, 120, 150, 7_200)] == [
        "now", "30 s", "1 min", "90 s", "2 min", "150 s", "2 h"
    ]  # fmt: skip


def test_R59_a_long_history_has_its_end_and_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mailboxes, "HISTORY_ENTRIES_MAX", 10)
    with running_broker(str(tmp_path), "os") as url:
        box = open_mailbox(f"{url}/orders", str)
        sent = box.send("a")
        open_mailbox(f"{url}/others", str).send_many(["x"] * 50)
        box.receive()
        steps = mount(url.broker).mailboxes.history("orders", sent)
    assert [step.kind for step in steps] == ["sent", "not searched", "leased"]


def test_R39_dead_letters_are_redriven_where_they_are_seen(page: Page, scene: Scene) -> None:
    box = dead(scene, "seen", "a", "b", "c")
    page.on("dialog", lambda dialog: dialog.accept())
    page.goto(f"{scene.url}/dashboard/queues/seen_dlq")
    assert page.locator(".figures div", has_text="Dead").count() == 0  # they are "ready" here

    page.locator("table.messages tbody a").first.click()
    page.get_by_role("button", name="Redrive this message").click()
    expect(page.get_by_role("status")).to_have_text("Redrove 1 message.")
    redrive_all = page.get_by_role("button", name="Redrive all")
    while redrive_all.count() == 0:  # figures are a moment old
        page.reload()
    redrive_all.click()
    expect(page.get_by_role("status")).to_have_text("Redrove 2 messages.")
    assert box.stats().ready == 3
    while redrive_all.count() > 0:
        page.reload()


def test_R39_a_queue_without_dead_letters_offers_no_redrive(page: Page, scene: Scene) -> None:
    keys = {"aws_access_key_id": "x", "aws_secret_access_key": "x"}
    client = boto3.client("sqs", endpoint_url=scene.url, region_name="us-east-1", **keys)  # type: ignore[call-overload]
    fifo = {"FifoQueue": "true", "ContentBasedDeduplication": "true"}
    queue = client.create_queue(
        QueueName="plain.fifo", Attributes=fifo, tags={"team": "<b>billing"}
    )["QueueUrl"]
    client.send_message(QueueUrl=queue, MessageBody="a", MessageGroupId="customer-1")

    page.goto(f"{scene.url}/dashboard/queues/plain.fifo")

    expect(page.locator("main")).to_contain_text("team=<b>billing")
    expect(page.locator("table.messages tbody tr")).to_contain_text("group customer-1")
    expect(page.get_by_role("button", name="Delete selected")).to_have_count(1)
    assert "Redrive" not in page.locator("main").inner_text()


def test_R59_nothing_selected_asks_to_select(page: Page, scene: Scene) -> None:
    box = open_mailbox(f"{scene.url}/unselected", str)
    box.send_many(["a", "b"])
    asked: list[str] = []
    page.on("dialog", lambda dialog: (asked.append(dialog.message), dialog.dismiss()))
    page.goto(f"{scene.url}/dashboard/queues/unselected")
    everything = page.get_by_label("select all on this page")

    page.get_by_role("button", name="Delete selected").click()
    assert everything.evaluate("box => box.validationMessage") == "Select messages first."
    assert asked == []

    page.locator("input[name=id]").first.check()
    assert everything.evaluate("box => box.indeterminate")
    page.locator("input[name=id]").last.check()
    expect(everything).to_be_checked()
    page.get_by_role("button", name="Delete selected").click()
    assert asked == ["Delete the selected messages?"]
    assert box.stats().ready == 2


def test_R88_a_pipeline_is_running_while_its_process_is(tmp_path: Path) -> None:
    """A run that has had nothing to do for an hour is running; one that was killed is not."""
    status = _pipeline(tmp_path / "tea")
    quiet = datetime.datetime.now(datetime.UTC) - datetime.timedelta(hours=1)
    status.save()
    file = tmp_path / "tea" / "status.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "updated_at": quiet.isoformat()}))
    pipelines = Pipelines([tmp_path])

    def states() -> tuple[bool, str]:
        found = pipelines.find("tea")
        assert found is not None
        return found.running, found.processors[0].state_now(running=found.running)

    with acquire_run(Paths(str(tmp_path / "tea"))):
        assert states() == (True, "running")
    assert states() == (False, "killed")


def test_R88_a_slow_rate_is_not_drawn_as_none(tmp_path: Path) -> None:
    status = _pipeline(tmp_path / "tea")
    status.of("add_up").written_per_second = {"totals": 0.36}
    status.save()
    found = Pipelines([tmp_path]).find("tea")
    assert found is not None
    assert ">0.4/s<" in found.drawing


def test_R59_no_table_is_cut_off_on_a_phone(browser: Browser, tmp_path: Path) -> None:
    tea = _pipeline(tmp_path / "tea")
    fail(tmp_path / "tea", b'{"item": "' + b"long " * 100 + b'"}')
    tea.of("add_up").failed = 1
    tea.save()
    with running_broker() as url:
        mount(url.broker, pipelines=Pipelines([tmp_path]))
        box = open_mailbox(f"{url}/thumbnails_of_pictures", str)
        box.send_many(["a picture of a pillar box " * 10] * 3)
        box.receive(max_messages=2, visibility_timeout=600)
        context = browser.new_context(viewport={"width": 400, "height": 800})
        page = context.new_page()
        queue = "/dashboard/queues/thumbnails_of_pictures"
        failed = "/dashboard/pipelines/tea/failed?processor=add_up"
        paths = ("/", queue, f"{queue}?state=in_flight", "/dashboard/pipelines/tea", failed)
        for path in paths:
            page.goto(f"{url}{path}")
            cut = page.locator(".scroll:not(.graph)").evaluate_all(
                "all => all.filter((each) => each.scrollWidth > each.clientWidth).length"
            )
            assert cut == 0, path
        page.goto(f"{url}{queue}?state=in_flight")
        expect(page.locator(".narrow", has_text="held by").first).to_be_visible()
        context.close()
