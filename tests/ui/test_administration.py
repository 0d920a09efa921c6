"""Queues are created, changed, paused and deleted in the dashboard, and by nobody else."""

from __future__ import annotations

import re
import urllib.error
import urllib.request
from pathlib import Path
from urllib.parse import urlencode

import pytest
from playwright.sync_api import Page, expect

from pillarbox import open_mailbox
from pillarbox.dashboard import mount
from pillarbox.dashboard.actions import PIPELINE_VERBS, VERBS
from pillarbox.testing.broker import running_broker
from tests.ui.conftest import Scene

ACTIONS = [
    "/queues",  # which creates one
    *(f"/queues/{{}}/{verb}" for verb in VERBS),
    *(f"/pipelines/tea/{verb}" for verb in PIPELINE_VERBS),
]


def token_of(url: str) -> str:
    page = urllib.request.urlopen(f"{url}/dashboard/").read().decode()
    found = re.search(r'name="token" value="([^"]+)"', page)
    return found[1] if found else ""


def post(url: str, path: str, origin: str, **form: str) -> int:
    headers = {"Origin": origin, "Content-Type": "application/x-www-form-urlencoded"}
    request = urllib.request.Request(f"{url}/dashboard{path}", urlencode(form).encode(), headers)
    try:
        with urllib.request.urlopen(request) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def test_R59_a_queue_is_created_changed_paused_and_deleted(page: Page, scene: Scene) -> None:
    page.goto(scene.url)
    page.get_by_text("Create a queue").click()
    page.locator("#create input[name=name]").fill("by-hand")
    page.get_by_role("button", name="Create").click()
    expect(page.get_by_role("status")).to_have_text("Created queue by-hand.")

    page.get_by_text("Settings", exact=True).click()
    page.locator("#change input[name=max_deliveries]").fill("2")
    page.locator("#change input[name=dead_letters]").fill("graves")
    page.locator("#change input[name=visibility_timeout]").fill("77")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("status")).to_have_text("Saved the settings.")
    page.get_by_text("Settings", exact=True).click()
    expect(page.locator("#change input[name=visibility_timeout]")).to_have_value("77")
    box = open_mailbox(f"{scene.url}/by-hand", str, create=False)
    assert box.dead_letters is not None
    assert box.dead_letters.name == "graves"
    box.send("bad")
    for _ in range(2):
        box.receive()[0].nack()
    assert box.stats().dead == 1

    page.get_by_role("button", name="Pause").click()
    expect(page.get_by_role("status")).to_contain_text("Paused")
    box.send("waits")
    assert box.receive() == []
    page.goto(scene.url)
    expect(page.locator("tr", has_text="by-hand").locator(".badge")).to_have_text("paused")
    page.goto(f"{scene.url}/dashboard/queues/by-hand")
    page.get_by_role("button", name="Resume").click()
    expect(page.get_by_role("status")).to_have_text("Resumed.")
    assert [m.body for m in box.receive()] == ["waits"]

    page.get_by_text("Settings", exact=True).click()
    page.locator("#change input[name=max_deliveries]").fill("0")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("status")).to_have_text("Saved the settings.")
    assert open_mailbox(f"{scene.url}/by-hand", str, create=False).dead_letters is None

    page.locator("summary", has_text="Delete the queue").click()
    page.locator("#drop input[name=name]").fill("by-hand")
    page.get_by_role("button", name="Delete the queue").click()
    expect(page.get_by_role("status")).to_have_text("Deleted queue by-hand.")
    expect(page.get_by_role("link", name="by-hand", exact=True)).to_have_count(0)


def test_R58_what_was_set_in_the_dashboard_survives_a_restart(tmp_path: Path) -> None:
    with running_broker(str(tmp_path), "os") as url:
        mount(url.broker)
        token = token_of(url)
        settings = {"max_deliveries": "3", "visibility_timeout": "99", "delay": "1"}
        assert post(url, "/queues", url, token=token, name="kept") == 200
        assert post(url, "/queues/kept/change", url, token=token, **settings) == 200
        assert post(url, "/queues/kept/pause", url, token=token) == 200
        assert post(url, "/queues/kept/change", url, token=token, max_deliveries="x") == 409
    with running_broker(str(tmp_path), "os") as url:
        dashboard = mount(url.broker)
        assert dashboard.mailboxes.is_paused("kept")
        assert dashboard.mailboxes.admin is not None
        assert dashboard.mailboxes.admin.settings("kept")[:4] == ("3", "kept_dlq", "99", "1")


def test_R59_a_dead_letter_queue_is_folded_into_its_queue_and_redriven_there(
    page: Page, scene: Scene
) -> None:
    box = open_mailbox(f"{scene.url}/folded", str)
    box.send("poison")
    for _ in range(5):
        box.receive()[0].nack()
    page.goto(f"{scene.url}/dashboard/?search=folded")
    page.on("dialog", lambda dialog: dialog.accept())

    expect(page.locator("table.queues tbody tr")).to_have_count(1)
    page.get_by_role("link", name="folded_dlq").click()
    page.get_by_text("Dead letters of folded.").get_by_role("link").click()
    page.go_back()
    page.go_back()
    page.get_by_role("button", name="Redrive").click()

    expect(page.get_by_role("status")).to_have_text("Redrove 1 message.")
    assert box.stats().ready == 1


def test_R59_the_table_is_sorted_by_a_click_and_has_totals(page: Page, scene: Scene) -> None:
    for name, count in (("sort-b", 2), ("sort-a", 3), ("sort-c", 1)):
        open_mailbox(f"{scene.url}/{name}", str).send_many(["x"] * count)
    page.goto(f"{scene.url}/dashboard/?search=sort-")
    names = page.locator("table.queues tbody th > a")

    page.get_by_role("link", name="Ready").click()
    expect(names).to_have_text(["sort-a", "sort-b", "sort-c"])
    open_mailbox(f"{scene.url}/sort-c", str).send_many(["x"] * 5)  # a refresh sorts too
    expect(names).to_have_text(["sort-c", "sort-a", "sort-b"], timeout=10_000)
    expect(page.locator("th[aria-sort]")).to_have_text("Ready")
    assert int(page.locator(".totals dd").first.inner_text()) >= 3


def test_R59_times_of_scheduled_and_in_flight_messages_and_a_chart_as_text(
    page: Page, scene: Scene
) -> None:
    box = open_mailbox(f"{scene.url}/timed", str)
    box.send_many(["a", "b"])
    (held,) = box.receive(visibility_timeout=3_000)
    box.send("later", delay_seconds=2_000)
    for state, head in (("scheduled", "Due"), ("in_flight", "Lease ends")):
        page.goto(f"{scene.url}/dashboard/queues/timed?state={state}")
        expect(page.get_by_role("columnheader", name=head)).to_be_visible()
        assert re.fullmatch(r"20\d\d-.*", page.locator("td.when").nth(1).inner_text())
        page.set_viewport_size({"width": 400, "height": 800})  # other columns make room for it
        right = "cell => cell.getBoundingClientRect().right"
        assert page.locator("td.when").nth(1).evaluate(right) <= 400
        page.set_viewport_size({"width": 1280, "height": 900})
    page.goto(f"{scene.url}/dashboard/queues/timed/message?id={held.id}")
    expect(page.locator(".figures", has_text="Lease ends")).to_be_visible()

    page.goto(f"{scene.url}/dashboard/queues/timed")
    page.get_by_text("The charts as a table").click()
    row = page.locator("#as-table tbody tr").first
    expect(row).to_contain_text("now")
    assert row.locator("td").all_inner_texts()[:3] == ["1", "1", "1"]


@pytest.mark.parametrize("action", ACTIONS)
def test_R115_every_action_needs_the_token_and_the_origin(scene: Scene, action: str) -> None:
    open_mailbox(f"{scene.url}/guarded", str)
    path, token = action.format("guarded"), token_of(scene.url)

    assert post(scene.url, path, scene.url, name="x") == 403
    assert post(scene.url, path, scene.url, name="x", token="x" * len(token)) == 403
    assert post(scene.url, path, "http://evil.example", name="x", token=token) == 403
    assert post(scene.url, path, "null", name="x", token=token) == 403


@pytest.mark.parametrize("action", ACTIONS)
def test_R115_a_read_only_dashboard_does_nothing(action: str) -> None:
    with running_broker() as url:
        dashboard = mount(url.broker, read_only=True)
        open_mailbox(f"{url}/guarded", str).send("a")

        assert (
            post(url, action.format("guarded"), url, name="guarded", token=dashboard._token) == 403
        )

        assert list(url.broker.store.sessions) == ["guarded", "guarded_dlq"]
        assert url.broker.store.sessions["guarded"].counts()[0] == 1
