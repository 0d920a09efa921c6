"""`pillarbox report`: what a mailbox's history tells about throughput, waiting and failing."""

from pillarbox.pipeline.report.job import Report, check_history, make_report
from pillarbox.pipeline.report.page import page

__all__ = ["Report", "check_history", "make_report", "page"]
