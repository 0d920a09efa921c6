"""Messages between agents: a bus with delays, its processor, and its tool for language models."""

from pillarbox.bus.async_bus import AsyncMessageBus
from pillarbox.bus.bus import MessageBus
from pillarbox.bus.envelope import Envelope, SendResult
from pillarbox.bus.processor import BusProcessor, Processed
from pillarbox.bus.recipients import UnknownRecipientError
from pillarbox.bus.tool import SendMessageTool

__all__ = [
    "AsyncMessageBus",
    "BusProcessor",
    "Envelope",
    "MessageBus",
    "Processed",
    "SendMessageTool",
    "SendResult",
    "UnknownRecipientError",
]
