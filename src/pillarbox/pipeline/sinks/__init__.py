"""Ready-made sinks. A batch that is delivered twice takes effect once.

pipeline.sink(inputs=totals, id="archive")(sinks.parquet("./archive"))
"""

from pillarbox.pipeline.sinks.database import database, sqlite
from pillarbox.pipeline.sinks.delta import delta
from pillarbox.pipeline.sinks.files import json_lines, parquet
from pillarbox.pipeline.sinks.mailbox import mailbox

__all__ = ["database", "delta", "json_lines", "mailbox", "parquet", "sqlite"]
