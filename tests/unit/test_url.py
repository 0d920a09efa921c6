"""R36: one word opens every backend, and says what is missing where one can't be opened."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pillarbox import InvalidParameterError, open_async_mailbox, open_mailbox
from pillarbox.mailbox import url as url_module
from pillarbox.mailbox.url import opener_of, without_password

SCHEMES = {
    "memory:orders": "pillarbox.mailbox.memory",
    "file:./data/orders": "pillarbox.mailbox.durable",
    "http://host:9324/orders": "pillarbox.mailbox.broker",
    "https://host/orders": "pillarbox.mailbox.broker",
    "redis://host/orders": "pillarbox.mailbox.redis",
    "rediss://host/orders": "pillarbox.mailbox.redis",
    "redis+cluster://host/orders": "pillarbox.mailbox.redis",
    "redis+sentinel://host/master/orders": "pillarbox.mailbox.redis",
    "sqs://eu-west-1/orders": "pillarbox.mailbox.sqs",
    "sqs+http://host:9324/orders": "pillarbox.mailbox.sqs",
    "sqs+https://host/orders": "pillarbox.mailbox.sqs",
}


@pytest.mark.parametrize(("url", "module"), SCHEMES.items(), ids=SCHEMES.keys())
def test_R36_every_scheme_has_an_opener_for_threads_and_for_asyncio(url: str, module: str) -> None:
    opener = opener_of(url)
    assert getattr(opener, "__module__", opener.__name__) == module
    assert callable(opener.open_url)
    assert callable(opener.open_async_url)


@pytest.mark.parametrize("url", ["", "orders", "memory", "ftp://host/orders", "redis", 7, None])
@pytest.mark.parametrize("open_it", [open_mailbox, open_async_mailbox])
def test_R36_what_is_no_url_of_a_mailbox_is_refused_with_the_known_forms(
    open_it: Any, url: Any
) -> None:
    with pytest.raises(InvalidParameterError) as raised:
        open_it(url, str)
    assert raised.value.parameter == "url"
    if isinstance(url, str) and url:
        for form in ("memory:name", "file:", "http://", "redis://", "sqs://", "postgresql:"):
            assert form in raised.value.allowed


@pytest.mark.parametrize(
    ("package", "url", "extra"),
    [("redis", "redis://host/orders", "redis"), ("boto3", "sqs://eu-west-1/orders", "sqs")],
)
def test_R36_an_absent_extra_is_named_with_its_pip_command(
    package: str, url: str, extra: str
) -> None:
    code = (
        f"import sys; sys.modules[{package!r}] = None\n"
        f"from pillarbox import open_mailbox\n"
        f"try: open_mailbox({url!r}, str)\n"
        f"except ImportError as error: print(error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert f"pip install 'pillarbox[{extra}]'" in done.stdout, done.stderr


@pytest.mark.parametrize(
    "url",
    [
        "gopher://me:hush@host/orders",
        "redis://me:hush@[::1/orders",
        "redis://me:hush@\u2100/orders",
        "redis://me:hush/2@host/orders",
        "redis://me:12/hush@host/orders",
        "//me:hush@[::1/orders",
        "redis+cluster://me:hu#hush@host/orders",
        "postgresql://me:hush@[::1/shop/orders",
        "postgresql://me:hush?2@host/shop/orders",
        "postgresql://me:hush%zz@host/shop/orders",
        "postgresql://me:hush%00@host/shop/orders",
        "http://key:hush@[::1/orders",
        "http://key:hush@host/",
        "http://key:hush@host:99999/orders",
        "http://key:hush@host/orders?create=1",
        "sqs+http://key:hush@[::1/orders",
        "sqs+http://key:hush@host/1/2/orders",
    ],
)
def test_R36_a_url_that_is_refused_is_shown_without_its_password(url: str) -> None:
    with pytest.raises(InvalidParameterError) as refused:
        open_mailbox(url, str)
    assert "hu" not in str(refused.value)


def test_R36_a_url_that_can_be_read_is_shown_with_its_hosts() -> None:
    for url, shown in (
        ("redis://me:secret@h1:1,h2/orders?password=secret", "redis://me@h1:1,h2/orders"),
        ("redis://h1:1,h2:2/orders?client_name=a@b", "redis://h1:1,h2:2/orders"),
        ("redis://[::1]/orders?client_name=a@b", "redis://[::1]/orders"),
        ("file:./data/orders", "file:./data/orders"),
    ):
        assert without_password(url) == shown
        opener_of(url)


def test_R121_a_package_from_elsewhere_registers_its_scheme(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    about = tmp_path / "attic-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: attic\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[pillarbox.backends]\nattic = attic_mailboxes\n")
    (tmp_path / "attic_mailboxes.py").write_text(
        "from pillarbox import AsyncInMemoryMailbox, InMemoryMailbox\n"
        "def open_url(url, body_type, **options):\n"
        "    return InMemoryMailbox(url.rpartition('/')[2], body_type, **options)\n"
        "def open_async_url(url, body_type, **options):\n"
        "    return AsyncInMemoryMailbox(url.rpartition('/')[2], body_type, **options)\n"
    )
    with pytest.raises(InvalidParameterError):  # the control: it is not installed yet
        open_mailbox("attic://roof/orders", str)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(url_module, "_SCHEMES", dict(url_module._SCHEMES))
    box = open_mailbox("attic://roof/orders", str, capacity=1)
    box.send("tea")
    assert (box.name, [message.body for message in box.receive()]) == ("orders", ["tea"])
    assert open_async_mailbox("attic://roof/orders", str).name == "orders"


def test_R31_open_mailbox_imports_no_backend_before_it_is_used() -> None:
    """A program pays for the backends that it opens, and for nothing that takes long to import."""
    code = "import sys; from pillarbox import open_mailbox; print(*sys.modules)"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(shown.stdout.split())
    backends = {f"pillarbox.mailbox.{name}" for name in ("memory", "durable", "broker", "redis")}
    assert "pillarbox.mailbox.url" in loaded
    assert not loaded & {*backends, "pillarbox.log", "asyncio", "logging", "ssl", "socket"}
