"""An MCP server for mailboxes by URL: send, receive, acknowledge, peek, stats.

Bodies are text, or JSON objects and arrays. A receipt handle is valid only in the server that
delivered the message. Needs the extra `mcp`.
"""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Annotated, Any

import msgspec

from pillarbox import AsyncMailbox, AsyncMessage, MailboxError, __version__, open_async_mailbox
from pillarbox.core.errors import InvalidParameterError
from pillarbox.extras import extra
from pillarbox.mailbox.message import Undecodable
from pillarbox.mailbox.protocol import State
from pillarbox.mailbox.url import without_password

with extra("mcp", "the MCP server"):
    from mcp.server.mcpserver import MCPServer
    from mcp.server.mcpserver.exceptions import ToolError
    from pydantic import Field

_HELD_MAX = 10_000  # unacknowledged deliveries to remember; the oldest are dropped first

Which = Annotated[
    str | None, Field(description="Name or URL of the mailbox; needed if there are several.")
]


class MailboxTools:
    """The tools of the server, and the mailboxes they use."""

    def __init__(self, urls: Sequence[str]) -> None:
        if not urls:
            raise InvalidParameterError("urls", "none", "at least one URL of a mailbox")
        self._urls = list(dict.fromkeys(urls))
        self._boxes: dict[str, AsyncMailbox[str]] = {}
        self._held: OrderedDict[str, AsyncMessage[str]] = OrderedDict()

    @asynccontextmanager
    async def lifespan(self, server: object = None) -> AsyncIterator[None]:
        """Open the mailboxes on the server's event loop, and close them at the end."""
        try:
            for url in self._urls:
                self._boxes[url] = await open_async_mailbox(url, str).open()
            yield
        finally:
            for box in self._boxes.values():
                await box.close()
            self._boxes.clear()

    async def send(
        self,
        body: Annotated[Any, Field(description="Text, or a JSON object or array.")],
        mailbox: Which = None,
        delay_seconds: Annotated[
            float, Field(ge=0, description="Seconds before it can be received.")
        ] = 0,
        priority: Annotated[int, Field(ge=0, le=255, description="Higher goes first.")] = 0,
        attributes: Annotated[
            dict[str, str] | None, Field(description="Short texts sent with the body.")
        ] = None,
    ) -> dict[str, Any]:
        """Send a message and return its id."""
        text = body if isinstance(body, str) else msgspec.json.encode(body).decode()
        message_id = await self._box(mailbox).send(
            text, delay_seconds=delay_seconds, priority=priority, attributes=attributes
        )
        return {"messageId": message_id}

    async def receive(
        self,
        mailbox: Which = None,
        max_messages: Annotated[int, Field(ge=1, le=100)] = 1,
        visibility_timeout: Annotated[
            float, Field(gt=0, description="Seconds until redelivery, unless acknowledged.")
        ] = 30,
        wait_time_seconds: Annotated[
            float, Field(ge=0, le=300, description="Seconds to wait for the first message.")
        ] = 0,
    ) -> dict[str, Any]:
        """Receive messages. Do the work, then acknowledge each by its receipt handle."""
        messages = await self._box(mailbox).receive(
            max_messages=max_messages,
            visibility_timeout=visibility_timeout,
            wait_time_seconds=wait_time_seconds,
        )
        for message in messages:
            self._held[message.receipt_handle] = message
        while len(self._held) > _HELD_MAX:
            self._held.popitem(last=False)
        return {
            "messages": [
                _described(message) | {"receiptHandle": message.receipt_handle}
                for message in messages
            ]
        }

    async def acknowledge(
        self, receipt_handle: Annotated[str, Field(description="From the result of receive.")]
    ) -> dict[str, Any]:
        """Delete a handled message. False if its lease has expired; it is then redelivered."""
        message = self._held.get(receipt_handle)
        acknowledged = message is not None and await message.acknowledge()
        self._held.pop(receipt_handle, None)  # not after an error: the model may try again
        return {"acknowledged": acknowledged}

    async def peek(
        self,
        mailbox: Which = None,
        max_messages: Annotated[int, Field(ge=1, le=100)] = 10,
        state: Annotated[State, Field(description="State of the messages.")] = "ready",
    ) -> dict[str, Any]:
        """Show messages without receiving them."""
        messages = await self._box(mailbox).peek(max_messages, state=state)
        return {"messages": [_described(message) for message in messages]}

    async def stats(self, mailbox: Which = None) -> dict[str, Any]:
        """Count ready, scheduled, in-flight and dead messages, with the age of the oldest."""
        stats: dict[str, Any] = msgspec.to_builtins(await self._box(mailbox).stats())
        return stats

    def _box(self, which: str | None) -> AsyncMailbox[str]:
        if which in self._boxes:
            return self._boxes[which]
        urls = list(map(without_password, self._boxes))
        boxes = zip(urls, self._boxes.values(), strict=True)
        named = [box for url, box in boxes if which in (None, box.name, url)]
        if len(named) == 1:
            return named[0]
        what = "the name is ambiguous" if named else f"there is no mailbox {which!r} here"
        raise InvalidParameterError("mailbox", which, f"one of {', '.join(urls)} ({what})")


def build_server(urls: Sequence[str]) -> MCPServer[None]:
    """Return a server for these mailboxes; `run()` serves over standard input and output."""
    tools = MailboxTools(urls)
    server: MCPServer[None] = MCPServer(
        "pillarbox",
        instructions=f"Mailboxes (work queues): {', '.join(map(without_password, urls))}. "
        "Acknowledge handled messages.",
        version=__version__,
        log_level="WARNING",
        lifespan=tools.lifespan,
    )
    for verb in (tools.send, tools.receive, tools.acknowledge, tools.peek, tools.stats):
        server.add_tool(_tool(verb))
    return server


def _tool(verb: Any) -> Any:
    """Wrap a method as a tool that reports errors of the mailbox to the model."""

    @functools.wraps(verb)
    async def tool(*args: Any, **options: Any) -> dict[str, Any]:
        try:
            answer: dict[str, Any] = await verb(*args, **options)
        except MailboxError as error:
            raise ToolError(str(error)) from error
        return answer

    return tool


def _described(message: AsyncMessage[Any]) -> dict[str, Any]:
    return {
        "id": message.id,
        "body": _readable(message.body),
        "deliveryCount": message.delivery_count,
        "enqueuedAt": message.enqueued_at.isoformat().replace("+00:00", "Z"),
        "attributes": dict(message.attributes),
        "priority": message.priority,
    }


def _readable(body: str | Undecodable) -> Any:
    """Decode a JSON object or array; return any other text as is."""
    if isinstance(body, Undecodable):
        return {"undecodable": body.error}
    if body[:1] in ("{", "["):
        try:
            return msgspec.json.decode(body)
        except (msgspec.DecodeError, RecursionError):
            return body
    return body
