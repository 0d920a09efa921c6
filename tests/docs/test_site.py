"""The documentation site builds without warnings, loads nothing from other sites, has a search."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

import pillarbox

ROOT = Path(__file__).parents[2]
LOADED = re.compile(r"""<(?:script|link|img|iframe)\b[^>]*?(?:src|href)=["']?(?:https?:)?//""")
OTHER_SITE = re.compile(r"^(?!file:|data:|about:|http://127\.0\.0\.1:)")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", folder],
        cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True, text=True, check=False, timeout=110,
    )  # fmt: skip
    assert built.returncode == 0, built.stderr
    return folder


@pytest.fixture(scope="module")
def served(site: Path) -> Iterator[str]:
    handler = functools.partial(_Quiet, directory=str(site))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    assert program is not None, "Chromium is missing; try: make services"
    with sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield chromium
        chromium.close()


def test_R30_no_page_of_the_site_loads_anything_from_another_site(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 50
    assert [page for page in pages if LOADED.search(page.read_text())] == []
    assert LOADED.search('<script src="https://elsewhere.example/x.js">') is not None


@pytest.mark.parametrize("opened", ["from disk", "served"])
def test_R30_the_search_of_the_site_works(
    opened: str, site: Path, served: str, browser: Browser
) -> None:
    page = browser.new_page()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    start = site.as_uri() if opened == "from disk" else served
    page.goto(f"{start}/how-to/redis.html")
    page.click("input[name=query]")
    page.keyboard.type("redelivery")
    found = page.wait_for_selector(".md-search-result__link", timeout=30_000)
    assert found is not None
    links = page.eval_on_selector_all(".md-search-result__link", "all => all.map(a => a.href)")
    assert any("choose-redelivery.html" in link for link in links)
    assert [url for url in asked if OTHER_SITE.match(url)] == []
    page.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1280])
def test_R30_pages_fit_the_window_in_light_and_dark(
    scheme: str, width: int, site: Path, browser: Browser
) -> None:
    context = browser.new_context(
        viewport={"width": width, "height": 900},
        color_scheme=scheme,  # type: ignore[arg-type]
    )
    page = context.new_page()
    for name in ("index", "how-to/run-the-broker", "reference/backends", "reference/command-line"):
        page.goto(f"{site.as_uri()}/{name}.html")
        wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert wide <= 0, name
        dark = page.evaluate("document.body.dataset.mdColorScheme") == "slate"
        assert dark == (scheme == "dark")
    context.close()


def test_R30_every_guide_says_first_what_its_reader_will_have() -> None:
    guides = sorted((ROOT / "docs" / "how-to").glob("*.md"))
    overview = (ROOT / "docs" / "how-to" / "index.md").read_text()
    for guide in guides:
        if guide.name != "index.md":
            paragraphs = guide.read_text().split("\n\n")
            assert paragraphs[1].startswith("*By the end of this page you will have* "), guide
            assert f"({guide.name})" in overview, guide


def test_R30_every_public_name_is_in_the_reference() -> None:
    page = (ROOT / "docs" / "reference" / "api.md").read_text()
    elsewhere = {"Dispatcher", "MainLoop", "MessageBus", "Pipeline", "Worker"}
    listed = re.findall(r"^::: pillarbox\.(\w+)$", page, re.MULTILINE)
    assert sorted([*listed, *elsewhere]) == sorted(pillarbox.__all__)
    assert all(f"`{name}`" in page for name in elsewhere)
