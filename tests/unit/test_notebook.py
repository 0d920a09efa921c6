"""What a notebook shows of our objects: tables and pictures, with hostile text as text."""

from __future__ import annotations

from pathlib import Path

from pillarbox import InMemoryMailbox, Log
from pillarbox.pipeline import Pipeline

HOSTILE = "<script>alert(1)</script>"


def test_R59_mailboxes_messages_and_stats_show_themselves() -> None:
    box = InMemoryMailbox("orders", str)
    box.send(HOSTILE, attributes={"colour": HOSTILE})
    (message,) = box.receive()

    shown = box._repr_html_() + box.stats()._repr_html_() + message._repr_html_()

    assert "<script>" not in shown
    assert shown.count("&lt;script&gt;") == 2
    assert "<caption>InMemoryMailbox orders</caption>" in shown
    assert "in flight" in shown


def test_R59_logs_and_pipelines_show_themselves(tmp_path: Path) -> None:
    with Log.open(tmp_path / "log") as log:
        log.append_many([b"a", b"b"])
        assert ">2<" in log._repr_html_()
    pipeline = Pipeline("shop", path=tmp_path / "shop")
    pipeline.stream(inputs=pipeline.log("a"), outputs=pipeline.log("b"))(lambda a: a)
    assert pipeline._repr_html_().startswith("<svg")
