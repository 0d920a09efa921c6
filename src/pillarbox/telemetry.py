"""OpenTelemetry traces and Prometheus metrics of workers. Needs `pillarbox[telemetry]`.

Both subscribe to a dispatcher, so an error in them does not affect a worker.
"""

from pillarbox.worker.metrics import measure
from pillarbox.worker.tracing import sending, trace

__all__ = ["measure", "sending", "trace"]
