"""R115 in a real Chromium: what pages of other sites try at a broker that has no keys.

Another port of this machine, and another name, are other sites. `evil.example` is looked up as
127.0.0.1, as a name is that an attacker has rebound.
"""

from __future__ import annotations

import http.server
import threading
from collections.abc import Callable, Iterator
from typing import NamedTuple
from urllib.parse import quote, urlsplit

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from pillarbox import open_mailbox
from pillarbox.broker.cross_origin import CrossOriginProtection
from pillarbox.dashboard import mount
from pillarbox.mailbox.protocol import Mailbox
from pillarbox.testing.broker import RunningBroker, running_broker
from tests.ui.conftest import _chromium

NAMES = ["127.0.0.1", "evil.example"]  # of the site with the evil page


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One that finds every name at this machine."""
    rules = "--host-resolver-rules=MAP *.example 127.0.0.1"
    with sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=_chromium(), args=["--no-sandbox", rules])
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """Of a web server with one empty page."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(b"<!doctype html><title>evil</title><body></body>")

        def log_message(self, *_: object) -> None:
            """Keep quiet."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_port
    server.shutdown()
    server.server_close()


class Scene(NamedTuple):
    broker: RunningBroker
    orders: Mailbox[str]
    page: Page


def _scene(browser: Browser, name: str, port: int) -> Iterator[Scene]:
    with running_broker() as url:
        mount(url.broker)
        orders: Mailbox[str] = open_mailbox(f"{url}/orders", str)
        orders.send_many(["one", "two", "three"])
        context = browser.new_context()
        page = context.new_page()
        page.goto(f"http://{name}:{port}/")
        yield Scene(url, orders, page)
        context.close()


@pytest.fixture(params=NAMES)
def scene(request: pytest.FixtureRequest, browser: Browser, port: int) -> Iterator[Scene]:
    yield from _scene(browser, request.param, port)


@pytest.fixture
def unguarded(monkeypatch: pytest.MonkeyPatch, browser: Browser, port: int) -> Iterator[Scene]:
    """The same without the check that decides."""
    monkeypatch.setattr(CrossOriginProtection, "check", lambda *_: None)
    yield from _scene(browser, "127.0.0.1", port)


def _purge(url: str) -> str:
    """With a signature, which anyone can make up."""
    return f"{url}/?Action=PurgeQueue&QueueUrl=orders&X-Amz-Credential=k&X-Amz-Signature=0"


# Each is tried from a page of another site, and resolves when the browser knows how it went.


def _element(scene: Scene, kind: str) -> None:
    scene.page.evaluate(
        """([kind, url]) => new Promise(done => {
            const made = document.createElement(kind);
            made.onload = made.onerror = done;
            if (kind === "link") { made.rel = "stylesheet"; made.href = url; }
            else made.src = url;
            document.body.append(made);
        })""",
        [kind, _purge(scene.broker)],
    )


def _form(scene: Scene, kind: str) -> None:
    """A form that is sent to a frame of the page; a field's name hides an `=` for text/plain."""
    scene.page.evaluate(
        """([kind, url]) => new Promise(done => {
            document.body.innerHTML = '<iframe name="there"></iframe>';
            const form = document.createElement("form");
            Object.assign(form, {method: "post", action: url, enctype: kind, target: "there"});
            const field = document.createElement("input");
            field.name = "Action"; field.value = "PurgeQueue&QueueUrl=orders&x=";
            if (kind !== "text/plain") {
                field.value = "PurgeQueue";
                const queue = document.createElement("input");
                queue.name = "QueueUrl"; queue.value = "orders";
                form.append(queue);
            }
            form.append(field);
            document.body.append(form);
            document.querySelector("iframe").onload = done;
            form.submit();
        })""",
        [kind, f"{scene.broker}/"],
    )


def _fetch(scene: Scene, options: str, query: str = "", path: str = "/") -> object:
    return scene.page.evaluate(
        f"""async url => {{
            try {{
                const answer = await fetch(url, {options});
                return answer.type === "opaque" ? null : await answer.text();
            }} catch (error) {{ return null; }}
        }}""",
        f"{scene.broker}{path}{query}",
    )


FORM = "Action=PurgeQueue&QueueUrl=orders"
TRIES: dict[str, Callable[[Scene], object]] = {
    "img": lambda scene: _element(scene, "img"),
    "script": lambda scene: _element(scene, "script"),
    "style sheet": lambda scene: _element(scene, "link"),
    "iframe": lambda scene: _element(scene, "iframe"),
    "form": lambda scene: _form(scene, "application/x-www-form-urlencoded"),
    "form as text": lambda scene: _form(scene, "text/plain"),
    "form in parts": lambda scene: _form(scene, "multipart/form-data"),
    "fetch": lambda scene: _fetch(scene, "{}", f"?{FORM}"),
    "fetch without CORS": lambda scene: _fetch(scene, "{mode: 'no-cors'}", f"?{FORM}"),
    "POST without CORS": lambda scene: _fetch(
        scene, f"{{mode: 'no-cors', method: 'POST', body: '{FORM}'}}"
    ),
    "POST of a form without CORS": lambda scene: _fetch(
        scene, f"{{mode: 'no-cors', method: 'POST', body: new URLSearchParams('{FORM}')}}"
    ),
    "POST with CORS": lambda scene: _fetch(scene, f"{{method: 'POST', body: '{FORM}'}}"),
    "POST with credentials": lambda scene: _fetch(
        scene, f"{{method: 'POST', credentials: 'include', mode: 'no-cors', body: '{FORM}'}}"
    ),
    "POST without a referrer": lambda scene: _fetch(
        scene, f"{{method: 'POST', referrerPolicy: 'no-referrer', mode: 'no-cors', body: '{FORM}'}}"
    ),
    "JSON": lambda scene: _fetch(
        scene,
        "{method: 'POST', headers: {'X-Amz-Target': 'AmazonSQS.PurgeQueue'}, "
        """body: '{"QueueUrl": "orders"}'}""",
    ),
    "private protocol": lambda scene: _fetch(
        scene,
        "{method: 'POST', headers: {'Content-Type': 'application/msgpack'}, body: 'a'}",
        path="/pillarbox/v1/orders",
    ),
    "beacon": lambda scene: scene.page.evaluate(
        "([url, form]) => navigator.sendBeacon(url, new URLSearchParams(form))",
        [f"{scene.broker}/", FORM],
    ),
    "link": lambda scene: scene.page.goto(_purge(scene.broker)),
}


@pytest.mark.parametrize("way", TRIES)
def test_R115_a_page_of_another_site_changes_nothing(scene: Scene, way: str) -> None:
    TRIES[way](scene)
    _wait_until_asked(scene)
    assert scene.orders.stats().ready == 3


def _wait_until_asked(scene: Scene) -> None:
    """Chromium has sent it (a preflight is not told of), and the broker has answered."""
    scene.page.goto(f"{scene.broker}/livez")
    expect(scene.page.get_by_text("ok")).to_be_visible()


@pytest.mark.parametrize("way", ["form", "form as text", "POST without CORS", "beacon"])
def test_R115_control_without_the_check_the_queue_is_emptied(unguarded: Scene, way: str) -> None:
    TRIES[way](unguarded)
    _wait_until_asked(unguarded)
    assert unguarded.orders.stats().ready == 0


@pytest.mark.parametrize("way", ["img", "script", "iframe", "link"])
def test_R115_control_without_the_rule_for_GET_an_image_empties_the_queue(
    unguarded: Scene, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pillarbox.broker.sqs.Sqs._may_get", lambda *_: True)
    TRIES[way](unguarded)
    _wait_until_asked(unguarded)
    assert unguarded.orders.stats().ready == 0


@pytest.mark.parametrize("way", ["img", "script", "iframe", "link"])
def test_R115_a_GET_of_a_browser_changes_nothing_whatever_it_tells_of_its_site(
    unguarded: Scene, way: str
) -> None:
    TRIES[way](unguarded)
    _wait_until_asked(unguarded)
    assert unguarded.orders.stats().ready == 3


def test_R115_a_page_of_another_site_reads_nothing(scene: Scene) -> None:
    for path in ("/", "/metrics", "/dashboard/queues/orders", "/pillarbox/v1/orders/messages"):
        assert _fetch(scene, "{}", path=path) is None
        assert _fetch(scene, "{mode: 'no-cors'}", path=path) is None


REBOUND = """async () => {
    const page = await (await fetch("/dashboard/queues/orders")).text();
    const token = /name="token" value="([^"]+)"/.exec(page);
    if (token === null) return "no token";
    const form = new URLSearchParams({token: token[1], name: "orders"});
    await fetch("/dashboard/queues/orders/purge", {method: "POST", body: form});
    return "purged";
}"""


def _rebound(scene: Scene) -> str:
    """The page's own name leads to the broker now: for the browser they are one site."""
    scene.page.goto(f"http://evil.example:{urlsplit(str(scene.broker)).port}/livez")
    found: str = scene.page.evaluate(REBOUND)
    return found


def test_R115_a_name_that_was_rebound_gets_no_token(scene: Scene) -> None:
    assert _rebound(scene) == "no token"
    assert scene.orders.stats().ready == 3


def test_R115_control_without_the_check_a_rebound_name_purges(unguarded: Scene) -> None:
    assert _rebound(unguarded) == "purged"
    assert unguarded.orders.stats().ready == 0


def test_R115_the_dashboard_is_not_framed(scene: Scene) -> None:
    scene.page.evaluate(
        """url => new Promise(done => {
            const frame = document.createElement("iframe");
            frame.onload = frame.onerror = done;
            frame.src = url;
            document.body.append(frame);
        })""",
        f"{scene.broker}/dashboard/queues/orders",
    )
    assert scene.page.frame_locator("iframe").locator("form").count() == 0


def test_R115_the_dashboard_itself_works_and_is_linked_to(scene: Scene) -> None:
    """A link of another site opens it; its own forms are taken, by each name of this machine."""
    page = scene.page
    for name in ("127.0.0.1", "localhost"):
        there = scene.broker.replace("127.0.0.1", name)
        page.evaluate("url => { location.href = url }", f"{there}/dashboard/queues/orders")
        page.wait_for_url(f"{there}/dashboard/queues/orders")
        token = page.locator("input[name=token]").first.get_attribute("value")
        assert token
        status = page.evaluate(
            """async token => (await fetch("/dashboard/queues/orders/send",
                {method: "POST", body: new URLSearchParams({token, body: "from here"})})).status""",
            token,
        )
        assert status == 200
    assert scene.orders.stats().ready == 5
    assert quote("orders") in page.url
