"""A program that uses a mailbox as an agent does: through `pillarbox mcp` and an MCP client."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from mcp import Client, StdioServerParameters, stdio_client


async def session(url: str) -> list[str]:
    command = StdioServerParameters(
        command=sys.executable, args=["-m", "pillarbox.cli", "mcp", url]
    )
    lines: list[str] = []
    async with Client(stdio_client(command)) as client:

        async def call(tool: str, **arguments: Any) -> Any:
            result = await client.call_tool(tool, arguments)
            return result.structured_content

        tools = (await client.list_tools()).tools
        lines.append(f"tools: {', '.join(sorted(tool.name for tool in tools))}")
        await call("send", body={"brew": "tea", "cups": 2})
        (message,) = (await call("receive", wait_time_seconds=5))["messages"]
        lines.append(f"received {message['body']}")
        done = await call("acknowledge", receipt_handle=message["receiptHandle"])
        lines.append(f"acknowledged: {done['acknowledged']}")
        stats = await call("stats")
        lines.append(f"left: {stats['ready'] + stats['in_flight']}")
    return lines


def main(url: str) -> list[str]:
    return asyncio.run(session(url))


if __name__ == "__main__":
    print("\n".join(main(sys.argv[1] if len(sys.argv) > 1 else "file:./data/orders")))
