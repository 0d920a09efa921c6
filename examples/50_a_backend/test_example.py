"""The skeleton keeps the whole contract, and is found by its URL."""

from __future__ import annotations

import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from pillarbox import open_mailbox
from pillarbox.mailbox import url
from pillarbox.testing.contract import Backend, MailboxContract, MemoryBackend

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import attic  # noqa: E402 - it lies beside this file


class AtticBackend(MemoryBackend):
    name = "attic"
    mailbox_class: Any = attic.AtticMailbox

    def __init__(self) -> None:
        super().__init__()
        self._where = {"attic": self.store}


class TestAttic(MailboxContract):
    def make_backend(self) -> Backend:
        return AtticBackend()


def test_R121_a_backend_is_found_by_its_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = EntryPoint("attic", "attic", url.ENTRY_POINTS)
    monkeypatch.setattr(
        "importlib.metadata.entry_points", lambda *, group, name: [entry] if name == "attic" else []
    )
    monkeypatch.setattr(url, "_SCHEMES", dict(url._SCHEMES))
    with open_mailbox("attic:orders", str) as box:
        box.send("a")
        (message,) = box.receive()
        assert message.acknowledge()
