"""A sink that sends each row as a message to a mailbox, from the driver.

A step that is repeated within the deduplication window of the mailbox (five minutes) is sent once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pillarbox.pipeline.sinks.files import Sink
from pillarbox.spark.steps import Step

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def mailbox(url: str, body_type: Any = Any) -> Sink:
    """Send each row to a mailbox: as `body_type`, or as a JSON object of its columns."""

    def write(batch: DataFrame, step: Step) -> None:
        from pillarbox.pipeline.columns import bodies_of  # noqa: PLC0415 - behind an extra
        from pillarbox.spark.mailbox_sink import MessageIds, Row, send_rows  # noqa: PLC0415

        def rows() -> Iterator[Row]:
            ids = MessageIds(step.hash)
            for (body,) in bodies_of(batch, body_type).toLocalIterator():
                row = Row(bytes(body), {})
                row.options["deduplication_id"] = ids.next(row)
                yield row

        send_rows(url, rows(), body_type=body_type)

    return write
