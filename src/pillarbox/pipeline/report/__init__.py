"""`pillarbox report`: throughput, latency and failures, from the history of a mailbox."""

from pillarbox.pipeline.report.job import Report, check_history, make_report
from pillarbox.pipeline.report.page import page

__all__ = ["Report", "check_history", "make_report", "page"]
