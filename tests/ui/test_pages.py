"""What the dashboard does with a request that no browser needs to show."""

from __future__ import annotations

import asyncio
import threading
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from pillarbox import open_mailbox
from pillarbox.broker.errors import SqsError
from pillarbox.core.errors import MailboxConnectionError, MailboxError
from pillarbox.dashboard import BrokerMailboxes, Dashboard, dashboard, mount, render
from pillarbox.dashboard import samples as samples_module
from pillarbox.dashboard.admin import QueueAdmin
from pillarbox.dashboard.rings import History
from pillarbox.dashboard.samples import Samples
from pillarbox.testing.broker import running_broker


def test_R116_paths_that_clients_make_up_are_not_remembered() -> None:
    tracemalloc.start()
    try:
        assert render.asset("app.js") is not None
        before, _ = tracemalloc.get_traced_memory()
        for number in range(1_000):
            assert render.asset(f"{number:>1000}") is None
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 100_000


def test_R59_a_queue_that_was_just_deleted_is_an_error_that_says_so(tmp_path: Path) -> None:
    with running_broker(str(tmp_path), "os") as url:
        box = open_mailbox(f"{url}/jobs", str)
        sent = box.send("tea")
        box.receive(visibility_timeout=600)
        boxes = BrokerMailboxes(url.broker)
        mount(url.broker).mailboxes.admin.delete("jobs")  # type: ignore[union-attr]
        with pytest.raises(MailboxError, match="'jobs' was deleted"):
            boxes.peek("jobs", "ready", 10, 0)
        with pytest.raises(MailboxError, match="'jobs' was deleted"):
            boxes.times("jobs", "in_flight", 10, 0)
        for look in (boxes.find, boxes.history):
            with pytest.raises(MailboxError, match="'jobs' was deleted"):
                look("jobs", sent)
        assert not boxes.held(["jobs"])


def test_R39_a_dead_letter_queue_of_the_wrong_type_is_refused_and_not_created() -> None:
    with running_broker() as url:
        open_mailbox(f"{url}/jobs", str).send("tea")
        admin = QueueAdmin(url.broker)
        wanted = admin.settings("jobs")._replace(dead_letters="failed.fifo")
        with pytest.raises(SqsError, match="same type"):
            admin.change("jobs", wanted)
        assert "failed.fifo" not in url.broker.store.sessions


def test_R59_a_page_is_opened_while_the_history_is_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def state(history: History) -> Any:
        opening = threading.Thread(target=samples.keep_history, args=["jobs"])
        opening.start()
        opening.join(0.2)
        return {}

    monkeypatch.setattr(samples_module, "HISTORIES_MAX", 1)
    with running_broker(str(tmp_path), "os") as url:
        for name in ("jobs", "mail"):
            open_mailbox(f"{url}/{name}", str).send("tea")
        samples = Samples(BrokerMailboxes(url.broker))
        samples.keep_history("mail")
        samples.take()
        monkeypatch.setattr(History, "state", state)
        samples.save()


def test_R141_samples_are_taken_again_when_the_store_is_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dashboard, "QUIET_SECONDS", 0.0)
    monkeypatch.setattr(dashboard, "REFRESH_SECONDS", 0.0)
    with running_broker() as url:
        open_mailbox(f"{url}/jobs", str).send("tea")
        boxes = BrokerMailboxes(url.broker)
        plain, refused = boxes.names, iter([True, True])

        def names() -> Any:
            if next(refused, False):
                raise MailboxConnectionError("the store does not answer")
            return plain()

        monkeypatch.setattr(boxes, "names", names)

        async def sample() -> None:
            shown = Dashboard(boxes)
            shown.start()
            while shown.samples.row("jobs") is None:
                assert shown._sampler is not None
                assert not shown._sampler.done()
                await asyncio.sleep(0.01)
            shown._sampler.cancel()  # type: ignore[union-attr]

        asyncio.run(asyncio.wait_for(sample(), 20))
