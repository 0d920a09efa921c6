"""A broker with a believable load, its dashboard, and a real Chromium to look at it with."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from pillarbox import Log, open_mailbox
from pillarbox.dashboard import mount
from pillarbox.dashboard.pipelines import Pipelines
from pillarbox.mailbox.protocol import Mailbox
from pillarbox.pipeline import Pipeline
from pillarbox.pipeline.paths import Paths
from pillarbox.pipeline.running import acquire_run
from pillarbox.pipeline.status import StatusFile, first_status
from pillarbox.testing.broker import running_broker

HOSTILE = "<script>document.title='owned'</script><img src=x onerror=alert(1)> & \"quoted\""


class Scene(NamedTuple):
    """What the tests of a page begin with."""

    url: str
    orders: Mailbox[str]
    status: StatusFile  # of the pipeline `tea`


def _chromium() -> str:
    """The system's browser, which `make test` installs when it is missing."""
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    assert found is not None, "Chromium is missing; try: make services"
    return found


@pytest.fixture(scope="module")  # its driver keeps an event loop running in this thread
def browser() -> Iterator[Browser]:
    with sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=_chromium(), args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture(scope="session")
def pictures() -> Path:
    """Where screenshots are kept, to be looked at."""
    folder = Path(__file__).parents[2] / "build" / "screenshots"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _pipeline(path: Path) -> StatusFile:
    """A pipeline that has read 3 of 5 orders, as its run would report it."""
    pipeline = Pipeline("tea", path=path)
    orders, totals = pipeline.log("orders"), pipeline.log("totals")
    pipeline.stream(inputs=orders, outputs=totals, id="add_up")(lambda orders: orders)
    for log in (orders, totals):
        directory = Path(pipeline.directory(log.name))
        directory.parent.mkdir(parents=True, exist_ok=True)
        with Log.open(directory) as made:
            made.append_many([b"{}"] * 5)
    status = StatusFile(
        pipeline.paths.status, first_status("tea", "local[2]", pipeline.graph, {"add_up"})
    )
    known = status.of("add_up")
    known.state, known.rows, known.read = "running", 3, {"orders": 3}
    known.steps, known.step = 1, 0
    status.note_duration("add_up", 0, 120)
    return status


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    status = tmp_path_factory.mktemp("pipelines")
    tea = _pipeline(status / "tea")
    data = str(tmp_path_factory.mktemp("data"))
    with acquire_run(Paths(str(status / "tea"))), running_broker(data, "os") as url:
        mount(url.broker, pipelines=Pipelines([status]))
        orders: Mailbox[str] = open_mailbox(f"{url}/orders", str)
        orders.send_many([f'{{"order": {n}, "item": "pillar box"}}' for n in range(60)])
        orders.receive(max_messages=2)
        orders.send(HOSTILE, attributes={"colour": HOSTILE}, priority=9)
        orders.send("tomorrow", delay_seconds=600)
        mail: Mailbox[str] = open_mailbox(f"{url}/mail", str)
        mail.send_many(["poison 1", "poison 2", "poison 3"])
        for _ in range(5):
            mail.nack_many(mail.receive(max_messages=10))
        yield Scene(str(url), orders, tea)


@pytest.fixture
def page(browser: Browser, scene: Scene) -> Iterator[Page]:
    """A page that must meet no error, and ask nothing of anyone else."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    tab = context.new_page()
    problems: list[str] = []
    tab.on("console", lambda m: problems.append(m.text) if m.type == "error" else None)
    tab.on("pageerror", lambda error: problems.append(str(error)))
    tab.on(
        "request",
        lambda r: None if r.url.startswith(scene.url) else problems.append(f"asked {r.url}"),
    )
    yield tab
    context.close()
    assert problems == []
