"""Every page and action of the dashboard, in a real browser."""

from __future__ import annotations

import base64
import gzip
import hashlib
import http.client
import re
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, Page, expect

import pillarbox.dashboard
from pillarbox import open_mailbox
from pillarbox.broker.config import Key
from pillarbox.dashboard import mount
from pillarbox.testing.broker import running_broker
from tests.ui.conftest import HOSTILE, Scene

FOCUSED = """(() => { const at = document.activeElement;
    return at.getAttribute("href") || at.name || at.textContent.trim(); })()"""
STATIC = Path(pillarbox.dashboard.__file__).parent / "static"


def test_R59_the_first_screen_shows_queues_with_trouble_first(
    page: Page, scene: Scene, pictures: Path
) -> None:
    page.goto(scene.url)

    names = page.locator("table.queues tbody th a").all_inner_texts()

    assert names[:2] == ["mail", "mail_dlq"]
    assert "orders" in names
    expect(page.locator("tr", has_text="mail_dlq").first).to_contain_text("3 dead letters")
    page.screenshot(path=pictures / "home.png")


def test_R59_figures_move_without_a_reload(page: Page, scene: Scene) -> None:
    page.goto(scene.url)
    live = open_mailbox(f"{scene.url}/live", str)

    live.send("hello")

    row = page.locator("table.queues tbody tr", has_text="live")
    expect(row.locator("td").first).to_have_text("1", timeout=10_000)
    live.purge()
    expect(row.locator("td").first).to_have_text("0", timeout=10_000)


def test_R59_a_second_visitor_is_kept_up_to_date_too(scene: Scene) -> None:
    """The same request head as before must open a stream again."""
    for _ in range(2):
        link = http.client.HTTPConnection(scene.url.removeprefix("http://"), timeout=30)
        link.request("GET", "/dashboard/stream")
        assert link.getresponse().readline() == b"event: rows\n"
        link.close()


def test_R59_a_queue_is_browsed_without_touching_it(
    page: Page, scene: Scene, pictures: Path
) -> None:
    before = scene.orders.stats()
    page.goto(f"{scene.url}/dashboard/queues/orders")

    expect(page.locator("table.messages tbody tr")).to_have_count(25)
    page.get_by_role("link", name="More").click()
    expect(page.locator("table.messages tbody tr")).to_have_count(25)
    for state, count in (("scheduled", 1), ("in_flight", 2)):
        page.goto(f"{scene.url}/dashboard/queues/orders?state={state}")
        expect(page.locator("table.messages tbody tr")).to_have_count(count)
    page.goto(f"{scene.url}/dashboard/queues/orders")
    expect(page.locator(".chart canvas")).to_have_count(2)
    page.screenshot(path=pictures / "queue.png", full_page=True)

    after = scene.orders.stats()
    assert (after.ready, after.in_flight) == (before.ready, before.in_flight)


def test_R59_hostile_bodies_and_attributes_are_text(
    page: Page, scene: Scene, pictures: Path
) -> None:
    page.goto(f"{scene.url}/dashboard/queues/orders?search=onerror")
    expect(page.locator("table.messages tbody tr")).to_have_count(1)

    page.locator("table.messages tbody a").click()

    expect(page.locator("pre").first).to_contain_text("<script>")
    assert HOSTILE in page.locator("table.plain td").first.inner_text()
    assert "owned" not in page.title()
    assert page.locator("main img, main script").count() == 0
    expect(page.locator("table.plain", has_text="sent")).to_be_visible()  # its history
    page.screenshot(path=pictures / "message.png", full_page=True)


def test_R59_a_hostile_name_is_text_or_not_found(page: Page, scene: Scene) -> None:
    answer = page.request.get(f"{scene.url}/dashboard/queues/%3Cscript%3Ealert(1)%3C%2Fscript%3E")

    assert answer.status == 404
    assert "<script>alert" not in answer.text()


@pytest.mark.parametrize(
    "path", ["/dashboard/?search={}", "/dashboard/queues/orders?done={}&search={}"]
)
def test_R59_what_the_address_says_is_not_printed(page: Page, scene: Scene, path: str) -> None:
    text = f"{HOSTILE} in no message"
    page.goto(scene.url + path.format(quote(text), quote(text)))

    assert "in no message" not in page.locator("main").inner_text()
    assert page.get_by_role("status").count() == 0
    assert page.locator("input[type=search]").first.input_value() == text
    assert "owned" not in page.title()
    assert page.locator("main img, main script").count() == 0


def test_R59_a_body_is_json_text_and_hexadecimal(page: Page, scene: Scene) -> None:
    (sent,) = open_mailbox(f"{scene.url}/forms", str).send_many(['{"tea": ["Assam", 1]}'])
    page.goto(f"{scene.url}/dashboard/queues/forms/message?id={sent}")

    kinds = page.locator("details summary").all_inner_texts()
    assert kinds[:3] == ["JSON", "text", "hex"]
    assert page.locator("pre").first.inner_text().splitlines()[1].strip() == '"tea": ['
    page.locator("summary", has_text="hex").click()
    expect(page.locator("pre").nth(2)).to_contain_text("7b 22 74 65 61 22")


def test_R59_deliveries_are_told_from_the_log(page: Page, scene: Scene, pictures: Path) -> None:
    box = open_mailbox(f"{scene.url}/told", str)
    sent = box.send("a")
    box.receive()[0].nack()
    page.goto(f"{scene.url}/dashboard/queues/told/message?id={sent}")

    told = page.locator("section, table.plain", has_text="delivery 1").last
    expect(told).to_be_visible()
    kinds = [row.split("\t")[1] for row in told.inner_text().splitlines()[1:]]
    assert kinds == ["sent", "leased", "returned"]
    page.screenshot(path=pictures / "history.png", full_page=True)


def test_R59_every_page_has_a_strict_policy(scene: Scene) -> None:
    (sent,) = open_mailbox(f"{scene.url}/strict", str).send_many(["a"])
    queue = "/dashboard/queues/strict"
    pages = (
        "/",
        queue,
        f"{queue}/message?id={sent}",
        "/dashboard/pipelines/tea",
        f"{queue}/series",
    )
    for path in pages:
        with urllib.request.urlopen(scene.url + path) as answer:
            policy = answer.headers["Content-Security-Policy"]
            assert policy.startswith("default-src 'none'; script-src 'self';"), path
            assert "unsafe" not in policy
            assert answer.headers["X-Content-Type-Options"] == "nosniff"


def test_R59_send_and_send_like_this(page: Page, scene: Scene) -> None:
    box = open_mailbox(f"{scene.url}/made-by-hand", str)
    page.goto(f"{scene.url}/dashboard/queues/made-by-hand")
    page.get_by_text("Send a message").click()
    page.locator("#send textarea").fill('\n{"by": "hand"}')
    page.locator("#send input[name=attributes]").fill('{"colour": "red"}')
    page.locator("#send input[name=priority]").fill("7")
    page.get_by_role("button", name="Send", exact=True).click()
    expect(page.get_by_role("status")).to_contain_text("Sent message")

    page.locator("table.messages tbody a").click()
    page.get_by_text("Send a copy").click()
    page.get_by_role("button", name="Send", exact=True).click()

    got = box.receive(max_messages=10)
    assert [(m.body, dict(m.attributes), m.priority) for m in got] == [
        ('\n{"by": "hand"}', {"colour": "red"}, 7)
    ] * 2


def test_R59_what_a_form_can_not_hold_is_not_sent_like_this(scene: Scene) -> None:
    """A copy that is cut short, or that is no text, would be another message."""
    for name, body in (("long", b"a" * 20_001), ("binary", b"\xff\x00"), ("crlf", b"a\r\n")):
        (sent,) = open_mailbox(f"{scene.url}/{name}", bytes).send_many([body])
        path = f"{scene.url}/dashboard/queues/{name}/message?id={sent}"
        page = urllib.request.urlopen(path).read().decode()
        assert "Send a copy" not in page
        assert "be copied here" in page


def test_R59_delete_purge_and_their_confirmation(page: Page, scene: Scene) -> None:
    box = open_mailbox(f"{scene.url}/doomed", str)
    ids = box.send_many(["a", "b", "c"])
    page.goto(f"{scene.url}/dashboard/queues/doomed")
    page.get_by_label(f"select {ids[1]}").check()
    page.get_by_role("button", name="Delete selected").click()  # the browser says no
    expect(page.get_by_role("status")).to_have_count(0)
    assert box.stats().ready == 3
    page.on("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Delete selected").click()
    expect(page.get_by_role("status")).to_contain_text("Deleted 1")
    assert box.stats().ready == 2
    page.get_by_label("select all on this page").check()
    expect(page.locator("input[name=id]:checked")).to_have_count(2)

    page.locator("summary", has_text="Purge").click()
    page.locator("#purge input[name=name]").fill("doomed")
    page.get_by_role("button", name="Purge").click()
    expect(page.get_by_role("status")).to_contain_text("Purged 2")
    assert box.stats().ready == 0


def test_R39_redrive_dry_filtered_and_all(page: Page, scene: Scene) -> None:
    dead = f"{scene.url}/dashboard/queues/mail_dlq"
    mail = open_mailbox(f"{scene.url}/mail", str)
    page.goto(dead)
    page.locator("#redrive input[name=search]").fill("poison 2")
    page.locator("#redrive input[name=dry_run]").check()
    page.get_by_role("button", name="Redrive dead letters").click()
    expect(page.get_by_role("status")).to_contain_text("1 message would be redriven")
    assert mail.stats().ready == 0

    page.goto(dead)
    page.locator("#redrive input[name=search]").fill("poison 2")
    page.get_by_role("button", name="Redrive dead letters").click()
    expect(page.get_by_role("status")).to_contain_text("Redrove 1")
    assert [m.body for m in mail.peek()] == ["poison 2"]
    page.locator("table.messages tbody tr", has_text="poison 1").get_by_role("checkbox").check()
    page.get_by_role("button", name="Redrive selected").click()
    expect(page.get_by_role("status")).to_contain_text("Redrove 1 message.")
    assert [m.body for m in mail.peek()] == ["poison 2", "poison 1"]
    page.locator("#redrive input[name=per_second]").fill("1")
    page.get_by_role("button", name="Redrive dead letters").click()
    expect(page.get_by_role("status")).to_contain_text("Redriving 1 messages per second")
    expect(page.locator(".figures div", has_text="Ready").locator("dd")).to_have_text("0")
    assert mail.stats().ready == 3


def test_R88_a_pipeline_is_drawn_with_its_lag(page: Page, scene: Scene, pictures: Path) -> None:
    scene.status.save()  # it is heard of now
    page.goto(scene.url)
    expect(page.locator("tr", has_text="tea").last).to_contain_text("running")

    page.get_by_role("link", name="tea").click()

    row = page.get_by_role("row", name="add_up")
    expect(row).to_contain_text("orders")
    known = scene.status.of("add_up")
    known.steps, known.error = 2, "the scales are broken"
    scene.status.note_duration("add_up", 1, 345)
    expect(row).to_contain_text("345", timeout=10_000)  # by itself
    expect(row).to_contain_text("the scales are broken")
    expect(row.locator("polyline")).to_be_visible()  # how long its steps took
    # It may be loading again just now.
    picture = "document.querySelector('img[data-live]')"
    page.wait_for_function(f"{picture}.complete && {picture}.naturalWidth > 0")
    drawn = page.request.get(f"{scene.url}/dashboard/pipelines/tea/graph.svg").text()
    assert "lag 2" in drawn
    page.screenshot(path=pictures / "pipeline.png")


def test_R59_a_change_needs_the_token_and_the_origin(scene: Scene) -> None:
    def post(form: str, origin: str) -> int:
        request = urllib.request.Request(
            f"{scene.url}/dashboard/queues/orders/purge",
            form.encode(),
            {"Origin": origin, "Content-Type": "application/x-www-form-urlencoded"},
        )
        try:
            with urllib.request.urlopen(request) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code

    page = urllib.request.urlopen(f"{scene.url}/dashboard/queues/orders").read().decode()
    found = re.search(r'name="token" value="([^"]+)"', page)
    assert found is not None
    before = scene.orders.stats().ready

    assert post("name=orders", scene.url) == 403
    assert post(f"name=orders&token={found[1]}", "http://evil.example") == 403
    assert scene.orders.stats().ready == before
    assert post(f"name=wrong&token={found[1]}", scene.url) == 409  # the token itself is good


def test_R59_where_there_are_keys_a_visitor_needs_one_that_may_do_everything(
    browser: Browser,
) -> None:
    keys = (Key("boss", "secret"), Key("clerk", "secret", queues=("orders",), actions=("send",)))
    with running_broker(keys=keys) as url:
        mount(url.broker)

        def status(login: str) -> int:
            basic = f"Basic {base64.b64encode(login.encode()).decode()}"
            headers = {"Authorization": basic} if login else {}
            try:
                asked = urllib.request.Request(f"{url}/dashboard/", headers=headers)
                return int(urllib.request.urlopen(asked).status)
            except urllib.error.HTTPError as error:
                return error.code

        assert [status(each) for each in ("", "boss:wrong", "clerk:secret")] == [401, 401, 403]
        boss: Any = {"username": "boss", "password": "secret"}
        context = browser.new_context(http_credentials=boss)
        page = context.new_page()
        page.goto(f"{url}/dashboard/")
        expect(page.get_by_role("heading", name="Queues")).to_be_visible()
        context.close()


def test_R59_read_only_has_no_hands() -> None:
    with running_broker() as url:
        mount(url.broker, read_only=True)
        open_mailbox(f"{url}/orders", str).send("a")
        page = urllib.request.urlopen(f"{url}/dashboard/queues/orders").read().decode()
        assert "<button" not in page.replace("<button>Show", "")
        assert 'name="body"' not in page
        found = re.search(r'name="token" value="([^"]+)"', page)
        token = found[1] if found else ""
        request = urllib.request.Request(
            f"{url}/dashboard/queues/orders/purge", f"name=orders&token={token}".encode()
        )
        with pytest.raises(urllib.error.HTTPError, match="403"):
            urllib.request.urlopen(request)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_R59_it_fits_a_phone_in_light_and_dark(
    browser: Browser, scene: Scene, pictures: Path, scheme: str
) -> None:
    (sent,) = open_mailbox(f"{scene.url}/phone", str).send_many(["a" * 500])
    context = browser.new_context(
        viewport={"width": 375, "height": 700},
        color_scheme=scheme,  # type: ignore[arg-type]
    )
    page = context.new_page()
    message = f"/dashboard/queues/phone/message?id={sent}"
    pipeline = "/dashboard/pipelines/tea"
    queue = "/dashboard/queues/orders"
    pages = (("", "home"), (queue, "queue"), (message, "message"), (pipeline, "pipeline"))
    for path, name in pages:
        page.goto(scene.url + path)
        width = page.evaluate("document.documentElement.scrollWidth")
        page.screenshot(path=pictures / f"phone-{scheme}-{name}.png")
        assert width <= 375
    context.close()


def test_R59_it_is_reachable_by_keyboard(page: Page, scene: Scene) -> None:
    page.goto(scene.url)
    page.keyboard.press("Tab")
    expect(page.locator(".skip")).to_be_focused()
    reached = []
    while not reached or not reached[-1].startswith("/dashboard/queues/"):
        page.keyboard.press("Tab")
        reached.append(page.evaluate(FOCUSED))
        assert len(reached) < 10, reached
    assert reached[:3] == ["/dashboard/", "search", "Filter"]
    page.keyboard.press("Shift+Tab")  # to the headings, which are one stop
    for arrow, sort in (("Right", "ready"), ("Right", "in%20flight"), ("Left", "ready")):
        page.keyboard.press(f"Arrow{arrow}")
        assert page.evaluate(FOCUSED) == f"?sort={sort}&search="
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("/dashboard/queues/"))

    open_mailbox(f"{scene.url}/keys_dlq", str).send("a")
    page.goto(f"{scene.url}/dashboard/queues/keys_dlq")
    for wanted in ("state", "search", "Show", "id", "Delete selected", "Redrive", "Purge"):
        for _ in range(200):
            page.keyboard.press("Tab")
            if page.evaluate(FOCUSED) == wanted:
                break
        else:
            pytest.fail(f"{wanted} can't be reached by keyboard")


def test_R59_third_party_files_are_what_was_published() -> None:
    vendor = STATIC / "vendor"
    lines = (vendor / "CHECKSUMS").read_text().splitlines()
    known = dict(reversed(line.split()) for line in lines)
    files = {f.name for f in vendor.iterdir() if f.suffix in (".js", ".css")}
    assert files == set(known)
    for name, expected in known.items():
        assert hashlib.sha256((vendor / name).read_bytes()).hexdigest() == expected


def test_R59_all_assets_together_stay_under_60_kB() -> None:
    assets = [f for f in STATIC.rglob("*") if f.suffix in (".js", ".css", ".svg")]
    assert sum(len(gzip.compress(f.read_bytes())) for f in assets) < 60_000
