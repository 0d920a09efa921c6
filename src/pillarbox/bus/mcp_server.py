"""An MCP server that gives agents mailboxes by URL: send, receive, acknowledge, peek, stats.

Bodies are text or JSON objects and lists, so that any mailbox of text or JSON can be used; nothing
is lost in between. A receipt handle is good for what this server has delivered. Needs the extra
`mcp`.
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

with extra("mcp", "the MCP server"):
    from mcp.server.mcpserver import MCPServer
    from mcp.server.mcpserver.exceptions import ToolError
    from pydantic import Field

_HELD_MAX = 10_000  # deliveries that can be acknowledged; the oldest are forgotten first

Which = Annotated[
    str | None, Field(description="Name or URL of the mailbox; needed if there are several.")
]


class MailboxTools:
    """The tools, on mailboxes that are open while the server runs."""

    def __init__(self, urls: Sequence[str]) -> None:
        if not urls:
            raise InvalidParameterError("urls", "none", "at least one URL of a mailbox")
        self._urls = list(dict.fromkeys(urls))
        self._boxes: dict[str, AsyncMailbox[str]] = {}
        self._held: OrderedDict[str, AsyncMessage[str]] = OrderedDict()

    @asynccontextmanager
    async def opened(self, server: object = None) -> AsyncIterator[None]:
        """Open the mailboxes, on the event loop that uses them, and close them in the end."""
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
        body: Annotated[Any, Field(description="A text, or a JSON object or list.")],
        mailbox: Which = None,
        delay_seconds: Annotated[float, Field(ge=0, description="Not received before.")] = 0,
        priority: Annotated[int, Field(ge=0, le=255, description="The higher goes first.")] = 0,
        attributes: Annotated[
            dict[str, str] | None, Field(description="Small texts beside the body.")
        ] = None,
    ) -> dict[str, Any]:
        """Put a message into a mailbox; its id."""
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
            float, Field(gt=0, description="Seconds until it is redelivered, unless acknowledged.")
        ] = 30,
        wait_time_seconds: Annotated[
            float, Field(ge=0, le=300, description="How long to wait for the first message.")
        ] = 0,
    ) -> dict[str, Any]:
        """Take messages and hold them: do the work, then acknowledge each by its receipt handle."""
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
        self, receipt_handle: Annotated[str, Field(description="What receive answered with.")]
    ) -> dict[str, Any]:
        """The work is done: delete the message. False if its lease is over, and it comes again."""
        message = self._held.pop(receipt_handle, None)
        return {"acknowledged": message is not None and await message.acknowledge()}

    async def peek(
        self,
        mailbox: Which = None,
        max_messages: Annotated[int, Field(ge=1, le=100)] = 10,
        state: Annotated[State, Field(description="Which messages to look at.")] = "ready",
    ) -> dict[str, Any]:
        """Look at messages without taking them."""
        seen = await self._box(mailbox).peek(max_messages, state=state)
        return {"messages": [_described(message) for message in seen]}

    async def stats(self, mailbox: Which = None) -> dict[str, Any]:
        """How many messages are ready, scheduled, in flight and dead, and the age of the oldest."""
        found: dict[str, Any] = msgspec.to_builtins(await self._box(mailbox).stats())
        return found

    def _box(self, which: str | None) -> AsyncMailbox[str]:
        if which in self._boxes:
            return self._boxes[which]
        named = [box for box in self._boxes.values() if which in (None, box.name)]
        if len(named) == 1:
            return named[0]
        what = "which mailbox is not clear" if named else f"there is no mailbox {which!r} here"
        raise InvalidParameterError("mailbox", which, f"one of {', '.join(self._boxes)} ({what})")


def build_server(urls: Sequence[str]) -> MCPServer[None]:
    """A server for these mailboxes; `run()` serves over standard input and output."""
    tools = MailboxTools(urls)
    server: MCPServer[None] = MCPServer(
        "pillarbox",
        instructions=f"Mailboxes (work queues): {', '.join(urls)}. Acknowledge what you have done.",
        version=__version__,
        log_level="WARNING",
        lifespan=tools.opened,
    )
    for verb in (tools.send, tools.receive, tools.acknowledge, tools.peek, tools.stats):
        server.add_tool(_told(verb))
    return server


def _told(verb: Any) -> Any:
    """A tool whose refusals the model may read; what else goes wrong is the server's business."""

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
    """A JSON object or list as such, any other text as it is."""
    if isinstance(body, Undecodable):
        return {"undecodable": body.error}
    if body[:1] in ("{", "["):
        try:
            return msgspec.json.decode(body)
        except (msgspec.DecodeError, RecursionError):
            return body
    return body
