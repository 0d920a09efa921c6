"""`pillarbox mcp` with the real client of the protocol, over standard input and output (R96)."""

from __future__ import annotations

import asyncio
import builtins
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from mcp import Client, StdioServerParameters, stdio_client

from pillarbox import (
    DurableMailbox,
    InvalidParameterError,
    MailboxConnectionError,
    open_async_mailbox,
)
from pillarbox.bus.mcp_server import MailboxTools, build_server
from pillarbox.cli import run as run_cli

VERBS = ["acknowledge", "peek", "receive", "send", "stats"]


def session(
    urls: list[str], story: Callable[[Callable[..., Awaitable[Any]], Client], Awaitable[None]]
) -> None:
    """Start the server as an agent would, and tell it this story."""
    command = StdioServerParameters(
        command=sys.executable, args=["-m", "pillarbox.cli", "mcp", *urls]
    )

    async def tell() -> None:
        async with Client(stdio_client(command)) as client:

            async def call(tool: str, **arguments: Any) -> Any:
                result = await client.call_tool(tool, arguments)
                assert not result.is_error, result.content
                return result.structured_content

            await story(call, client)

    asyncio.run(tell())


def test_R96_an_agent_sends_receives_acknowledges_peeks_and_counts(tmp_path: Path) -> None:
    async def story(call: Callable[..., Awaitable[Any]], client: Client) -> None:
        listed = (await client.list_tools()).tools
        assert sorted(tool.name for tool in listed) == VERBS
        assert all(tool.description for tool in listed)

        sent = await call("send", body={"do": "tea"}, priority=3, attributes={"for": "ada"})
        await call("send", body="plain text")
        await call("send", body="later", delay_seconds=600)
        stats = await call("stats")
        assert (stats["ready"], stats["scheduled"], stats["in_flight"]) == (2, 1, 0)

        peeked = await call("peek", state="scheduled")
        assert [message["body"] for message in peeked["messages"]] == ["later"]

        (tea,) = (await call("receive", wait_time_seconds=5))["messages"]
        assert (tea["id"], tea["body"]) == (sent["messageId"], {"do": "tea"})
        assert (tea["priority"], tea["attributes"]) == (3, {"for": "ada"})
        assert tea["deliveryCount"] == 1
        assert (await call("stats"))["in_flight"] == 1
        handle = tea["receiptHandle"]
        assert await call("acknowledge", receipt_handle=handle) == {"acknowledged": True}
        assert await call("acknowledge", receipt_handle=handle) == {"acknowledged": False}

        (text,) = (await call("receive", max_messages=9))["messages"]
        assert text["body"] == "plain text"

    session([f"file:{tmp_path}/orders"], story)

    with DurableMailbox("orders", str, path=tmp_path) as box:  # what was not acknowledged is here
        assert box.stats().total == 2


def test_R96_several_mailboxes_are_told_apart_and_refusals_can_be_read(tmp_path: Path) -> None:
    urls = [f"file:{tmp_path}/jobs", f"file:{tmp_path}/results"]

    async def story(call: Callable[..., Awaitable[Any]], client: Client) -> None:
        await call("send", body=["a", 1], mailbox="jobs")
        await call("send", body="b", mailbox=urls[1])
        assert (await call("stats", mailbox=urls[0]))["ready"] == 1
        (message,) = (await call("peek", mailbox="jobs"))["messages"]
        assert message["body"] == ["a", 1]
        for arguments, words in (
            ({"body": "x"}, "the name is ambiguous"),
            ({"body": "x", "mailbox": "nope"}, "no mailbox 'nope'"),
            ({"body": "x", "mailbox": "jobs", "priority": 999}, "255"),
            ({"body": "x" * (1 << 20) + "x", "mailbox": "jobs"}, "1,048,576 bytes"),
        ):
            refused = await client.call_tool("send", arguments)
            assert refused.is_error
            assert words in refused.content[0].text
        assert (await call("stats", mailbox="jobs"))["ready"] == 1

    session(urls, story)


def test_R96_an_agent_is_told_no_password_and_needs_none() -> None:
    urls = [f"redis://me:hush@{host}/orders" for host in ("one", "two")]
    assert "redis://me@one/orders" in str(build_server(urls).instructions)
    assert "hush" not in str(build_server(urls).instructions)
    tools = MailboxTools(urls)
    tools._boxes = {url: open_async_mailbox(url, str) for url in urls}
    assert tools._box("redis://me@two/orders") is tools._boxes[urls[1]]
    for which in (None, "orders", "three"):
        with pytest.raises(InvalidParameterError) as refused:
            tools._box(which)
        assert "hush" not in str(refused.value)


def test_R96_an_acknowledge_that_failed_may_be_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        tools = MailboxTools([f"memory:{uuid4().hex}"])
        async with tools.lifespan():
            await tools.send("tea")
            (message,) = (await tools.receive())["messages"]
            handle = message["receiptHandle"]
            with monkeypatch.context() as broken:
                broken.setattr(type(tools._held[handle]), "acknowledge", unreachable)
                with pytest.raises(MailboxConnectionError):
                    await tools.acknowledge(handle)
            assert await tools.acknowledge(handle) == {"acknowledged": True}
            assert await tools.acknowledge(handle) == {"acknowledged": False}

    async def unreachable(message: Any) -> bool:
        raise MailboxConnectionError("the server can't be reached")

    asyncio.run(story())


def test_R96_the_command_needs_a_url(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(["mcp"]) == 2
    assert "at least one mailbox" in capsys.readouterr().err


def test_R96_without_the_extra_the_command_says_what_to_install(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def missing(name: str, *rest: Any) -> Any:
        if name.split(".", maxsplit=1)[0] == "mcp":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return real(name, *rest)

    monkeypatch.delitem(sys.modules, "pillarbox.bus.mcp_server", raising=False)
    monkeypatch.setattr(builtins, "__import__", missing)
    assert run_cli(["mcp", "memory:x"]) == 1
    assert "pip install 'pillarbox[mcp]'" in capsys.readouterr().err


def test_R96_a_url_that_can_not_be_opened_ends_the_server_with_the_reason() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pillarbox.cli", "mcp", "nonsense:x"],
        input="",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert "url must be" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert done.stdout == ""


def test_R96_ctrl_c_in_a_terminal_ends_it() -> None:
    """Without a line to read: the server waits for one in a thread."""
    ours, terminal = pty.openpty()
    command = [sys.executable, "-m", "pillarbox.cli", "mcp", "memory:orders"]
    with subprocess.Popen(
        command, stdin=terminal, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as server:
        assert server.stdin is None
        assert server.stdout is not None
        assert server.stderr is not None
        assert "press Ctrl-C to stop" in server.stderr.readline()
        os.write(ours, b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}\n')
        server.stdout.readline()  # it reads
        server.send_signal(signal.SIGINT)
        assert server.wait(30) == -signal.SIGINT
    os.close(ours)
    os.close(terminal)
