"""A sink into a mailbox of any kind: each row is a message, sent by the driver.

The deduplication id of a message comes of the step's hash, the body, and how many equal bodies
came before it in the step, so it does not depend on the order of rows. A mailbox takes a step
that is repeated within the time it remembers such ids (five minutes) once.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from contextlib import closing
from typing import TYPE_CHECKING, Any

from pillarbox.codec import codec_for
from pillarbox.mailbox.url import open_mailbox
from pillarbox.pipeline.sinks.files import Sink
from pillarbox.pipeline.step import Step

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def mailbox(url: str, body_type: Any = Any) -> Sink:
    """Send each row to a mailbox: as its body type, or as an object of its columns."""

    def write(batch: DataFrame, step: Step) -> None:
        from pillarbox.pipeline.columns import bodies_of  # noqa: PLC0415 - behind an extra

        decode = codec_for(body_type).decode
        seen: Counter[bytes] = Counter()
        with closing(open_mailbox(url, body_type)) as box:
            for (value,) in bodies_of(batch, body_type).toLocalIterator():
                body = bytes(value)
                box.send(decode(body), deduplication_id=_id(step, body, seen[body]))
                seen[body] += 1

    return write


def _id(step: Step, body: bytes, number: int) -> str:
    text = f"{step.hash} {number} ".encode() + body
    return hashlib.sha256(text).hexdigest()
