"""Messages between agents: a bus with delays, its processor, and its tool for language models."""

from pillarbox.bus.bus import AsyncMessageBus, MessageBus
from pillarbox.bus.envelope import Envelope, SendResult
from pillarbox.bus.errors import UnknownRecipientError
from pillarbox.bus.processor import BusProcessor, Processed
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
