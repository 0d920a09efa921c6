"""A sink into a mailbox of any kind: each row is a message, sent by the driver.

The deduplication id of a message comes of the step's hash, the body, and how many equal bodies
came before it in the step, so it does not depend on the order of rows. A mailbox takes a step
that is repeated within the time it remembers such ids (five minutes) once.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

from pillarbox.codec import codec_for
from pillarbox.mailbox.url import open_async_mailbox
from pillarbox.pipeline.sinks.files import Sink
from pillarbox.spark.steps import Step

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_AT_ONCE = 1000
_DIGEST_BYTES = 16


def mailbox(url: str, body_type: Any = Any) -> Sink:
    """Send each row to a mailbox: as its body type, or as an object of its columns."""

    def write(batch: DataFrame, step: Step) -> None:
        from pillarbox.pipeline.columns import bodies_of  # noqa: PLC0415 - behind an extra

        rows = bodies_of(batch, body_type).toLocalIterator()
        asyncio.run(send_all(url, body_type, step, (bytes(body) for (body,) in rows)))

    return write


async def send_all(url: str, body_type: Any, step: Step, bodies: Iterator[bytes]) -> None:
    """Send encoded bodies, many of them waiting for their confirmation together."""
    decode = codec_for(body_type).decode
    seen: Counter[bytes] = Counter()  # by digest: the bodies of a step may be many
    async with open_async_mailbox(url, body_type) as box:
        while some := list(islice(bodies, _AT_ONCE)):
            ids = []
            for body in some:
                digest = hashlib.sha256(body).digest()[:_DIGEST_BYTES]
                ids.append(_id(step, body, seen[digest]))
                seen[digest] += 1
            pairs = zip(map(decode, some), ids, strict=True)
            await asyncio.gather(*(box.send(body, deduplication_id=id_) for body, id_ in pairs))


def _id(step: Step, body: bytes, number: int) -> str:
    text = f"{step.hash} {number} ".encode() + body
    return hashlib.sha256(text).hexdigest()
